float mine = 0.0f;
for (uint at = item; at < length; at += ITEMS)
    mine += load_0(first + at * stride);
ALL(add, mine, sum)
float mean = sum / (float)length;
float squares = 0.0f;
for (uint at = item; at < length; at += ITEMS) {
    float apart = load_0(first + at * stride) - mean;
    squares += apart * apart;
}
ALL(add, squares, total)
float factor = 1.0f / sqrt(total / (float)length + scalar_0());
uint to = row_place(WORDS_3, row), to_stride = row_stride(WORDS_3);
for (uint at = item; at < length; at += ITEMS) {
    float gamma = load_1(WORDS_1[0] + at * WORDS_1[10]);
    float beta = load_2(WORDS_2[0] + at * WORDS_2[10]);
    store_3(to + at * to_stride, (load_0(first + at * stride) - mean) * factor * gamma + beta);
}
