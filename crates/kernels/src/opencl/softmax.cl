if (length == 0)
    return;
uint visible = length;
if (scalar_0()) {
    uint height = WORDS_0[1] >= 2 ? WORDS_0[WORDS_0[1]] : 1;
    visible = min(length, row % height + 1);
}
float best = load_0(first);
for (uint at = item; at < visible; at += ITEMS)
    best = larger(best, load_0(first + at * stride));
ALL(larger, best, largest)
// The first element, which all have read, may be stored by the first item below.
barrier(CLK_GLOBAL_MEM_FENCE);
float mine = 0.0f;
for (uint at = item; at < visible; at += ITEMS)
    mine += exp(load_0(first + at * stride) - largest);
ALL(add, mine, total)
// Every item stores only what it alone has read, so that the target may be the source.
uint to = row_place(WORDS_1, row), to_stride = row_stride(WORDS_1);
for (uint at = item; at < length; at += ITEMS) {
    float share = 0.0f;
    if (at < visible)
        share = exp(load_0(first + at * stride) - largest) / total;
    store_1(to + at * to_stride, share);
}
