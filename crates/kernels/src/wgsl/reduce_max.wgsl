fn each_row(row: u32, item: u32) {
    let first = row_place(WORDS_0, row);
    let stride = row_stride(WORDS_0);
    var best = load_0(first);
    for (var at = item; at < row_length(WORDS_0); at += ITEMS) {
        best = larger(best, load_0(first + at * stride));
    }
    let largest = largest_of_all(item, best);
    if item == 0u {
        store_1(place_1(row), largest);
    }
}
