fn left(row: u32, k: u32) -> f32 {
    if row >= params[WORDS_0 + 2u] || k >= params[WORDS_0 + 3u] {
        return 0.0;
    }
    return load_0(params[WORDS_0] + row * params[WORDS_0 + 10u] + k * params[WORDS_0 + 11u]);
}

fn right(k: u32, column: u32) -> f32 {
    return left(column, k);
}

fn shared_depth() -> u32 {
    return params[WORDS_0 + 3u];
}

/// Tiles that reach the lower triangle.
fn tile_is_wanted(first_row: u32, first_column: u32) -> bool {
    return first_column < first_row + 32u;
}

fn finish(row: u32, column: u32, sum: f32) {
    if row >= params[WORDS_1 + 2u] || column > row {
        return;
    }
    let place = params[WORDS_1] + row * params[WORDS_1 + 10u] + column * params[WORDS_1 + 11u];
    var value = scalar_0() * sum;
    if scalar_1() != 0.0 {
        value += scalar_1() * load_1(place);
    }
    store_1(place, value);
}
