// Element i of the target: its column of the row that the id names. An id without a row gives a number that is none.
uint width = WORDS_2[3];
uint row = load_1(WORDS_1[0] + i / width * WORDS_1[10]);
float value = NAN;
if (row < WORDS_0[2])
    value = load_0(WORDS_0[0] + row * WORDS_0[10] + i % width * WORDS_0[11]);
store_2(place_2(i), value);
