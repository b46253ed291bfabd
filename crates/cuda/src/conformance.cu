// The kernels of the conformance suite, for contiguous arguments of one dimension.

#define WORDS 18

// Groups beyond what fits along x continue along y.
static __device__ unsigned element() {
    unsigned group = blockIdx.x + blockIdx.y * gridDim.x;
    return group * blockDim.x + threadIdx.x;
}

extern "C" __global__ void add_one(float *x, const unsigned *params) {
    unsigned at = element();
    if (at < params[2]) x[params[0] + at] += 1.0f;
}

extern "C" __global__ void scale(float *x, const unsigned *params) {
    unsigned at = element();
    if (at < params[2]) x[params[0] + at] *= __uint_as_float(params[WORDS]);
}

extern "C" __global__ void add(const float *a, const float *b, float *sums, const unsigned *params) {
    unsigned at = element();
    if (at < params[2])
        sums[params[2 * WORDS] + at] = a[params[0] + at] + b[params[WORDS] + at];
}
