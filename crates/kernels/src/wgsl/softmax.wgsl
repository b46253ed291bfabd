fn each_row(row: u32, item: u32) {
    let length = row_length(WORDS_0);
    if length == 0u {
        return;
    }
    var visible = length;
    if scalar_0() {
        let rank = params[WORDS_0 + 1u];
        let height = select(1u, params[WORDS_0 + max(rank, 1u)], rank >= 2u);
        visible = min(length, row % height + 1u);
    }
    let first = row_place(WORDS_0, row);
    let stride = row_stride(WORDS_0);
    var best = load_0(first);
    for (var at = item; at < visible; at += ITEMS) {
        best = larger(best, load_0(first + at * stride));
    }
    let largest = largest_of_all(item, best);
    // The first element, which all have read, may be stored by the first item below.
    storageBarrier();
    var sum = 0.0;
    for (var at = item; at < visible; at += ITEMS) {
        sum += exp(load_0(first + at * stride) - largest);
    }
    let total = sum_of_all(item, sum);
    // Every item stores only what it alone has read, so that the target may be the source.
    let to = row_place(WORDS_1, row);
    let to_stride = row_stride(WORDS_1);
    for (var at = item; at < length; at += ITEMS) {
        var share = 0.0;
        if at < visible {
            share = exp(load_0(first + at * stride) - largest) / total;
        }
        store_1(to + at * to_stride, share);
    }
}
