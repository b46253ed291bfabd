// One group works through the columns; its items share the rows of each. A pivot that is not positive becomes a number
// that is none, and so does everything after it.

#define ITEMS 128
#define PLACE(row, column) (WORDS_0[0] + (row) * WORDS_0[10] + (column) * WORDS_0[11])

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void ENTRY(ARGUMENTS) {
    __local float pivot;
    uint item = get_local_id(0), order = WORDS_0[2];
    for (uint column = 0; column < order; column++) {
        for (uint row = column + item; row < order; row += ITEMS) {
            float rest = load_0(PLACE(row, column));
            for (uint k = 0; k < column; k++)
                rest -= load_0(PLACE(row, k)) * load_0(PLACE(column, k));
            if (row == column) {
                rest = rest > 0.0f ? sqrt(rest) : NAN;
                pivot = rest;
            }
            store_0(PLACE(row, column), rest);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // Every item divides what it has stored itself.
        for (uint row = column + item; row < order; row += ITEMS)
            if (row > column)
                store_0(PLACE(row, column), load_0(PLACE(row, column)) / pivot);
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    }
}
