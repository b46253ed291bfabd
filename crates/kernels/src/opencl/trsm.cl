// One work item for each row of b (or column, with `left`): they are independent of each other, and each is solved in
// the order of the triangle. The grid covers b in tiles of 64 x 64; one row or column of tiles has all the work.
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void ENTRY(ARGUMENTS) {
    bool on_left = scalar_1(), transposed = scalar_2();
    uint across = on_left ? get_group_id(1) : get_group_id(0);
    uint vector = (on_left ? get_group_id(0) : get_group_id(1)) * 64 + get_local_id(0);
    if (across > 0 || vector >= WORDS_1[on_left ? 3 : 2])
        return;
    uint order = min(WORDS_0[2], WORDS_1[on_left ? 2 : 3]);
    // Solving with the triangle itself goes from the first unknown to the last, with its transpose backwards.
    bool forwards = on_left != transposed;
    uint unknown_stride = WORDS_1[on_left ? 10 : 11];
    uint first = WORDS_1[0] + vector * WORDS_1[on_left ? 11 : 10];
    uint row_stride = WORDS_0[forwards ? 10 : 11], column_stride = WORDS_0[forwards ? 11 : 10];
    for (uint count = 0; count < order; count++) {
        uint at = forwards ? count : order - 1 - count;
        float rest = scalar_0() * load_1(first + at * unknown_stride);
        for (uint before = 0; before < count; before++) {
            uint other = forwards ? before : order - 1 - before;
            float factor = load_0(WORDS_0[0] + at * row_stride + other * column_stride);
            rest -= factor * load_1(first + other * unknown_stride);
        }
        store_1(first + at * unknown_stride, rest / load_0(WORDS_0[0] + at * (row_stride + column_stride)));
    }
}
