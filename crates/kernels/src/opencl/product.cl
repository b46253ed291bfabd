// Products of matrices: one group of 8 x 8 items for each tile of 32 x 32 sums, four by four an item. Tiles of the
// factors, 16 deep, come through the memory of the group: each element is loaded once a tile, not once a sum.

#define DEPTH 16
#define TILE 32

__kernel __attribute__((reqd_work_group_size(8, 8, 1)))
void ENTRY(ARGUMENTS) {
    // By depth, then by row (left) or column (right).
    __local number left_tile[DEPTH * TILE], right_tile[DEPTH * TILE];
    uint x = get_local_id(0), y = get_local_id(1), item = 8 * y + x;
    uint first_row = get_group_id(1) * TILE, first_column = get_group_id(0) * TILE;
    if (!TILE_IS_WANTED(first_row, first_column))
        return;
    number4 sums[4] = {0, 0, 0, 0};
    for (uint start = 0; start < SHARED_DEPTH; start += DEPTH) {
        for (uint part = item; part < DEPTH * TILE; part += 64) {
            uint k = start + part / TILE, at = part % TILE;
            left_tile[part] = LEFT(first_row + at, k);
            right_tile[part] = RIGHT(k, first_column + at);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < DEPTH; k++) {
            number4 rows = vload4(k * TILE / 4 + y, left_tile);
            number4 columns = vload4(k * TILE / 4 + x, right_tile);
            sums[0] = fma((number4)rows.x, columns, sums[0]);
            sums[1] = fma((number4)rows.y, columns, sums[1]);
            sums[2] = fma((number4)rows.z, columns, sums[2]);
            sums[3] = fma((number4)rows.w, columns, sums[3]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint down = 0; down < 4; down++) {
        number four[4];
        vstore4(sums[down], 0, four);
        for (uint across = 0; across < 4; across++) {
            uint row = first_row + 4 * y + down, column = first_column + 4 * x + across;
            if (SUM_IS_WANTED(row, column)) {
                uint place = TARGET[0] + row * TARGET[10] + column * TARGET[11];
                number value = scalar_0() * four[across];
                // With a factor of zero, what was there does not count, not even if it is no number.
                if (scalar_1() != 0)
                    value += scalar_1() * LOAD_TARGET(place);
                STORE_TARGET(place, value);
            }
        }
    }
}
