// One group for each row of argument 0. Its items take the elements in turn, and what they found is put together in a
// tree whose shape does not depend on timing: the same numbers give the same result, bit for bit.

#define ITEMS 64

uint rows_of(words_t words) {
    uint count = 1;
    for (uint dim = 1; dim < words[1]; dim++)
        count *= words[1 + dim];
    return count;
}

/// Elements in a row: along the last dimension.
uint row_length(words_t words) {
    return words[1] == 0 ? 1 : words[1 + words[1]];
}

uint row_stride(words_t words) {
    return words[1] == 0 ? 0 : words[9 + words[1]];
}

/// The place of the first element of row `row`.
uint row_place(words_t words, uint row) {
    return walk_outer(words, row, max(words[1], 1u) - 1);
}

/// What all items bring, put together by `combine` into parts[0]; nobody goes on before everybody has seen it.
#define ALL(combine, mine, result)                                              \
    parts[item] = (mine);                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                               \
    for (uint half_of = ITEMS / 2; half_of > 0; half_of /= 2) {                 \
        if (item < half_of)                                                     \
            parts[item] = combine(parts[item], parts[item + half_of]);          \
        barrier(CLK_LOCAL_MEM_FENCE);                                           \
    }                                                                           \
    number result = parts[0];                                                   \
    barrier(CLK_LOCAL_MEM_FENCE);

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void ENTRY(ARGUMENTS) {
    __local number parts[ITEMS];
    uint item = get_local_id(0), row = group_number();
    if (row >= rows_of(WORDS_0))
        return;
    uint length = row_length(WORDS_0);
    uint first = row_place(WORDS_0, row), stride = row_stride(WORDS_0);
    STATEMENT
}
