// Places of elements, from the words that describe an argument. `words` is where these begin in `params`.
// All arithmetic is modulo 2^32: a negative stride is a large number that wraps around.

/// Elements of the argument.
fn elements(words: u32) -> u32 {
    var count = 1u;
    for (var dim = 0u; dim < params[words + 1u]; dim++) {
        count *= params[words + 2u + dim];
    }
    return count;
}

/// The place of element number `index`, the last dimension counting fastest.
fn walk(words: u32, index: u32) -> u32 {
    return walk_outer(words, index, params[words + 1u]);
}

/// The same over the first `dims` dimensions only, at the beginning of the others.
fn walk_outer(words: u32, index: u32, dims: u32) -> u32 {
    var place = params[words];
    var rest = index;
    for (var dim = dims; dim > 0u; dim--) {
        let size = params[words + 1u + dim];
        place += (rest % size) * params[words + 9u + dim];
        rest /= size;
    }
    return place;
}

/// The language refuses a constant that is no number, so this one depends on a word that is read.
fn not_a_number() -> f32 {
    return bitcast<f32>(0x7fc00000u | params[1]);
}
