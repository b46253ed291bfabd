// Element i of the target: the element in the middle and its four neighbours.
uint width = WORDS_1[3], down = WORDS_0[10], right = WORDS_0[11];
uint middle = WORDS_0[0] + (i / width + 1) * down + (i % width + 1) * right;
float around = load_0(middle - down) + load_0(middle + down) + load_0(middle - right) + load_0(middle + right);
store_1(place_1(i), scalar_0() * load_0(middle) + scalar_1() * around);
