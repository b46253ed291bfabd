// Each operand is asked within its own shape: elsewhere it is zero.

fn left(row: u32, k: u32) -> f32 {
    let swap = scalar_2();
    let at = select(vec2(row, k), vec2(k, row), swap);
    return element_0(at);
}

fn right(k: u32, column: u32) -> f32 {
    let swap = scalar_3();
    let at = select(vec2(k, column), vec2(column, k), swap);
    return element_1(at);
}

fn element_0(at: vec2<u32>) -> f32 {
    if at.x >= params[WORDS_0 + 2u] || at.y >= params[WORDS_0 + 3u] {
        return 0.0;
    }
    return load_0(params[WORDS_0] + at.x * params[WORDS_0 + 10u] + at.y * params[WORDS_0 + 11u]);
}

fn element_1(at: vec2<u32>) -> f32 {
    if at.x >= params[WORDS_1 + 2u] || at.y >= params[WORDS_1 + 3u] {
        return 0.0;
    }
    return load_1(params[WORDS_1] + at.x * params[WORDS_1 + 10u] + at.y * params[WORDS_1 + 11u]);
}

fn shared_depth() -> u32 {
    return select(params[WORDS_0 + 3u], params[WORDS_0 + 2u], scalar_2());
}

fn tile_is_wanted(first_row: u32, first_column: u32) -> bool {
    return first_row < params[WORDS_2 + 2u] && first_column < params[WORDS_2 + 3u];
}

fn finish(row: u32, column: u32, sum: f32) {
    if row >= params[WORDS_2 + 2u] || column >= params[WORDS_2 + 3u] {
        return;
    }
    let place = params[WORDS_2] + row * params[WORDS_2 + 10u] + column * params[WORDS_2 + 11u];
    var value = scalar_0() * sum;
    // With a factor of zero, what was there does not count, not even if it is no number.
    if scalar_1() != 0.0 {
        value += scalar_1() * load_2(place);
    }
    store_2(place, value);
}
