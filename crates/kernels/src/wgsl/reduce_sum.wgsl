fn each_row(row: u32, item: u32) {
    let first = row_place(WORDS_0, row);
    let stride = row_stride(WORDS_0);
    var sum = zero();
    for (var at = item; at < row_length(WORDS_0); at += ITEMS) {
        sum = add(sum, load_0(first + at * stride));
    }
    let total = sum_of_all(item, sum);
    if item == 0u {
        store_1(place_1(row), total);
    }
}
