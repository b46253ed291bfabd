fn each_row(row: u32, item: u32) {
    let length = row_length(WORDS_0);
    let first = row_place(WORDS_0, row);
    let stride = row_stride(WORDS_0);
    var squares = 0.0;
    for (var at = item; at < length; at += ITEMS) {
        let x = load_0(first + at * stride);
        squares += x * x;
    }
    let factor = 1.0 / sqrt(sum_of_all(item, squares) / f32(length) + scalar_0());
    let to = row_place(WORDS_2, row);
    let to_stride = row_stride(WORDS_2);
    for (var at = item; at < length; at += ITEMS) {
        let gamma = load_1(params[WORDS_1] + at * params[WORDS_1 + 10u]);
        store_2(to + at * to_stride, load_0(first + at * stride) * (factor * gamma));
    }
}
