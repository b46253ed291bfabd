// The kernels of the conformance suite: the first two for contiguous arguments of one dimension.

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

// Where element `rest` of argument `arg` lies.
static int place(uint arg, uint rest, __global const uint *params) {
    __global const uint *words = params + WORDS * arg;
    int at = (int)words[0];
    for (int dim = (int)words[1] - 1; dim >= 0; dim--) {
        at += (int)(rest % words[2 + dim]) * (int)words[10 + dim];
        rest /= words[2 + dim];
    }
    return at;
}

__kernel void add(__global const float *a, __global const float *b, __global float *sums,
                  __global const uint *params) {
    uint at = element(), count = 1;
    for (uint dim = 0; dim < params[1]; dim++) count *= params[2 + dim];
    if (at < count)
        sums[place(2, at, params)] = a[place(0, at, params)] + b[place(1, at, params)];
}
