// The kernels of the conformance suite: the first two for contiguous arguments of one dimension.

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

// Where element `rest` of argument `arg` lies.
static __device__ int place(unsigned arg, unsigned rest, const unsigned *params) {
    const unsigned *words = params + WORDS * arg;
    int at = (int)words[0];
    for (int dim = (int)words[1] - 1; dim >= 0; dim--) {
        at += (int)(rest % words[2 + dim]) * (int)words[10 + dim];
        rest /= words[2 + dim];
    }
    return at;
}

extern "C" __global__ void add(const float *a, const float *b, float *sums, const unsigned *params) {
    unsigned at = element(), count = 1;
    for (unsigned dim = 0; dim < params[1]; dim++) count *= params[2 + dim];
    if (at < count)
        sums[place(2, at, params)] = a[place(0, at, params)] + b[place(1, at, params)];
}
