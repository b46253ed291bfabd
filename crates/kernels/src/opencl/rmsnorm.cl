float squares = 0.0f;
for (uint at = item; at < length; at += ITEMS) {
    float x = load_0(first + at * stride);
    squares += x * x;
}
ALL(add, squares, total)
float factor = 1.0f / sqrt(total / (float)length + scalar_0());
uint to = row_place(WORDS_2, row), to_stride = row_stride(WORDS_2);
for (uint at = item; at < length; at += ITEMS) {
    float gamma = load_1(WORDS_1[0] + at * WORDS_1[10]);
    store_2(to + at * to_stride, load_0(first + at * stride) * (factor * gamma));
}
