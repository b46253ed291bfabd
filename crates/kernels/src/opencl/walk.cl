// Places of elements, from the words that describe an argument. All arithmetic is modulo 2^32: a negative stride is a
// large number that wraps around.

typedef __global const uint *words_t;

/// Elements of the argument.
uint elements(words_t words) {
    uint count = 1;
    for (uint dim = 0; dim < words[1]; dim++)
        count *= words[2 + dim];
    return count;
}

/// The place of element number `index` over the first `dims` dimensions, at the beginning of the others.
uint walk_outer(words_t words, uint index, uint dims) {
    uint place = words[0];
    for (uint dim = dims; dim > 0; dim--) {
        uint size = words[1 + dim];
        place += index % size * words[9 + dim];
        index /= size;
    }
    return place;
}

/// The place of element number `index`, the last dimension counting fastest.
uint walk(words_t words, uint index) {
    return walk_outer(words, index, words[1]);
}

/// The number of this group, where groups are counted in one dimension.
uint group_number(void) {
    return get_group_id(0) + get_group_id(1) * get_num_groups(0);
}
