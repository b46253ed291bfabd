// steps[i] = how often numbers[i] must be halved (or tripled, and one added, if it is odd) until it is 1.
@group(0) @binding(0) var<storage, read> numbers: array<u32>;
@group(0) @binding(1) var<storage, read_write> steps: array<u32>;
@group(0) @binding(2) var<storage, read> params: array<u32>;

// 18 words describe each argument: offset, rank, 8 sizes, 8 strides. Then come the scalars.
const NUMBERS = 0u;
const STEPS = 18u;
const LIMIT = 36u;

@compute @workgroup_size(64)
fn collatz(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) item: u32,
) {
    let i = (group.x + group.y * groups.x) * 64u + item;
    if i >= params[STEPS + 2u] {
        return;
    }
    var n = numbers[params[NUMBERS] + i * params[NUMBERS + 10u]];
    var count = 0u;
    while n > 1u && count < params[LIMIT] {
        n = select(3u * n + 1u, n / 2u, n % 2u == 0u);
        count++;
    }
    steps[params[STEPS] + i * params[STEPS + 10u]] = count;
}
