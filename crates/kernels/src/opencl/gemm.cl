// Each operand is asked within its own shape: elsewhere it is zero.
#define INSIDE(words, row, column) ((row) < words[2] && (column) < words[3])
#define AT(words, row, column) (words[0] + (row) * words[10] + (column) * words[11])
#define ELEMENT(arg, row, column) (INSIDE(WORDS_##arg, row, column) ? load_##arg(AT(WORDS_##arg, row, column)) : 0)
#define LEFT(row, k) (scalar_2() ? ELEMENT(0, k, row) : ELEMENT(0, row, k))
#define RIGHT(k, column) (scalar_3() ? ELEMENT(1, column, k) : ELEMENT(1, k, column))
#define SHARED_DEPTH (scalar_2() ? WORDS_0[2] : WORDS_0[3])
#define TARGET WORDS_2
#define LOAD_TARGET load_2
#define STORE_TARGET store_2
#define TILE_IS_WANTED(row, column) INSIDE(TARGET, row, column)
#define SUM_IS_WANTED(row, column) INSIDE(TARGET, row, column)
