// Element i of the target: the element in the middle and its four neighbours.
let width = params[WORDS_1 + 3u];
let down = params[WORDS_0 + 10u];
let right = params[WORDS_0 + 11u];
let middle = params[WORDS_0] + (i / width + 1u) * down + (i % width + 1u) * right;
let around = load_0(middle - down) + load_0(middle + down) + load_0(middle - right) + load_0(middle + right);
store_1(place_1(i), scalar_0() * load_0(middle) + scalar_1() * around);
