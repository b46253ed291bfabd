// One group for each tile of 16 x 16, through the memory of the group: rows are read and rows are written.

// One more than 16, so that a column does not lie in one bank.
#define PITCH 17

__kernel __attribute__((reqd_work_group_size(16, 8, 1)))
void ENTRY(ARGUMENTS) {
    __local number tile[16 * PITCH];
    uint x = get_local_id(0), y = get_local_id(1);
    for (uint down = y; down < 16; down += 8) {
        uint row = get_group_id(0) * 16 + down, column = get_group_id(1) * 16 + x;
        if (row < WORDS_0[2] && column < WORDS_0[3])
            tile[down * PITCH + x] = load_0(WORDS_0[0] + row * WORDS_0[10] + column * WORDS_0[11]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint down = y; down < 16; down += 8) {
        uint row = get_group_id(1) * 16 + down, column = get_group_id(0) * 16 + x;
        if (row < WORDS_1[2] && column < WORDS_1[3])
            store_1(WORDS_1[0] + row * WORDS_1[10] + column * WORDS_1[11], tile[x * PITCH + down]);
    }
}
