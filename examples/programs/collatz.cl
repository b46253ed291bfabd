// steps[i] = how often numbers[i] must be halved (or tripled, and one added, if it is odd) until it is 1.

// 18 words describe each argument: offset, rank, 8 sizes, 8 strides. Then come the scalars.
#define NUMBERS 0
#define STEPS 18
#define LIMIT 36

__kernel void collatz(__global const uint *numbers, __global uint *steps, __global const uint *params) {
    uint i = (get_group_id(0) + get_group_id(1) * get_num_groups(0)) * get_local_size(0) + get_local_id(0);
    if (i >= params[STEPS + 2])
        return;
    uint n = numbers[params[NUMBERS] + i * params[NUMBERS + 10]];
    uint count = 0;
    while (n > 1 && count < params[LIMIT]) {
        n = n % 2 == 0 ? n / 2 : 3 * n + 1;
        count++;
    }
    steps[params[STEPS] + i * params[STEPS + 10]] = count;
}
