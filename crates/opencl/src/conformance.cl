// The kernels of the conformance suite, for contiguous arguments of one dimension.

#pragma OPENCL FP_CONTRACT OFF

#define WORDS 18

// Groups beyond what fits along x continue along y.
static uint element(void) {
    uint group = get_group_id(0) + get_group_id(1) * get_num_groups(0);
    return group * get_local_size(0) + get_local_id(0);
}

__kernel void add_one(__global float *x, __global const uint *params) {
    uint at = element();
    if (at < params[2]) x[params[0] + at] += 1.0f;
}

__kernel void scale(__global float *x, __global const uint *params) {
    uint at = element();
    if (at < params[2]) x[params[0] + at] *= as_float(params[WORDS]);
}

__kernel void add(__global const float *a, __global const float *b, __global float *sums,
                  __global const uint *params) {
    uint at = element();
    if (at < params[2])
        sums[params[2 * WORDS] + at] = a[params[0] + at] + b[params[WORDS] + at];
}
