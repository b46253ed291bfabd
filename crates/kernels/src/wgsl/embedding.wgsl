// Element i of the target: its column of the row that the id names. An id without a row gives a number that is none.
let width = params[WORDS_2 + 3u];
let row = load_1(params[WORDS_1] + (i / width) * params[WORDS_1 + 10u]);
if row < params[WORDS_0 + 2u] {
    store_2(place_2(i), load_0(params[WORDS_0] + row * params[WORDS_0 + 10u] + (i % width) * params[WORDS_0 + 11u]));
} else {
    store_2(place_2(i), not_a_number());
}
