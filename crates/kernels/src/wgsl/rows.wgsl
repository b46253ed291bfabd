// One group for each row of argument 0. Its items take the elements in turn, and what they found is put together in a
// tree whose shape does not depend on timing: the same numbers give the same result, bit for bit.

const ITEMS = 64u;
var<workgroup> parts: array<number, ITEMS>;

fn rows_of(words: u32) -> u32 {
    var count = 1u;
    for (var dim = 1u; dim < params[words + 1u]; dim++) {
        count *= params[words + 1u + dim];
    }
    return count;
}

/// Elements in a row: along the last dimension.
fn row_length(words: u32) -> u32 {
    let rank = params[words + 1u];
    return select(params[words + 1u + rank], 1u, rank == 0u);
}

fn row_stride(words: u32) -> u32 {
    let rank = params[words + 1u];
    return select(params[words + 9u + rank], 0u, rank == 0u);
}

/// The place of the first element of row `row`.
fn row_place(words: u32, row: u32) -> u32 {
    let rank = params[words + 1u];
    return walk_outer(words, row, max(rank, 1u) - 1u);
}

/// The sum of what all items bring.
fn sum_of_all(item: u32, mine: number) -> number {
    parts[item] = mine;
    workgroupBarrier();
    for (var half = ITEMS / 2u; half > 0u; half /= 2u) {
        if item < half {
            parts[item] = add(parts[item], parts[item + half]);
        }
        workgroupBarrier();
    }
    let all = parts[0];
    // Nobody may begin the next round before everybody has seen the result of this one.
    workgroupBarrier();
    return all;
}

/// The largest of what all items bring.
fn largest_of_all(item: u32, mine: number) -> number {
    parts[item] = mine;
    workgroupBarrier();
    for (var half = ITEMS / 2u; half > 0u; half /= 2u) {
        if item < half {
            parts[item] = larger(parts[item], parts[item + half]);
        }
        workgroupBarrier();
    }
    let all = parts[0];
    workgroupBarrier();
    return all;
}

@compute @workgroup_size(64)
fn ENTRY(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) item: u32,
) {
    let row = group.x + group.y * groups.x;
    if row < rows_of(WORDS_0) {
        each_row(row, item);
    }
}
