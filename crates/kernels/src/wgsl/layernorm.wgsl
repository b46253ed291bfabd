fn each_row(row: u32, item: u32) {
    let length = row_length(WORDS_0);
    let first = row_place(WORDS_0, row);
    let stride = row_stride(WORDS_0);
    var sum = 0.0;
    for (var at = item; at < length; at += ITEMS) {
        sum += load_0(first + at * stride);
    }
    let mean = sum_of_all(item, sum) / f32(length);
    var squares = 0.0;
    for (var at = item; at < length; at += ITEMS) {
        let apart = load_0(first + at * stride) - mean;
        squares += apart * apart;
    }
    let variance = sum_of_all(item, squares) / f32(length);
    let factor = 1.0 / sqrt(variance + scalar_0());
    let to = row_place(WORDS_3, row);
    let to_stride = row_stride(WORDS_3);
    for (var at = item; at < length; at += ITEMS) {
        let gamma = load_1(params[WORDS_1] + at * params[WORDS_1 + 10u]);
        let beta = load_2(params[WORDS_2] + at * params[WORDS_2 + 10u]);
        store_3(to + at * to_stride, (load_0(first + at * stride) - mean) * factor * gamma + beta);
    }
}
