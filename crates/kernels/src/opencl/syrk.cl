#define LEFT(row, k) \
    ((row) < WORDS_0[2] && (k) < WORDS_0[3] ? load_0(WORDS_0[0] + (row) * WORDS_0[10] + (k) * WORDS_0[11]) : 0)
#define RIGHT(k, column) LEFT(column, k)
#define SHARED_DEPTH WORDS_0[3]
#define TARGET WORDS_1
#define LOAD_TARGET load_1
#define STORE_TARGET store_1
// Tiles and sums of the lower triangle.
#define TILE_IS_WANTED(row, column) ((column) < (row) + TILE)
#define SUM_IS_WANTED(row, column) ((row) < TARGET[2] && (column) <= (row))
