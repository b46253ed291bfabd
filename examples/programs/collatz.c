/* steps[i] = how often numbers[i] must be halved (or tripled, and one added, if it is odd) until it is 1.
   cc -shared -fPIC -O2 -o libcollatz.so collatz.c, and "cpu": "libcollatz.so:collatz" in collatz.json. */
struct syncline_arg {
    void *data;                       /* the element whose indices are all zero */
    const unsigned long long *shape;
    const long long *strides;         /* in bytes */
    unsigned int rank, element_bytes;
};

int collatz(const struct syncline_arg *args, unsigned int arg_count, const double *scalars, unsigned int scalar_count) {
    if (arg_count != 2 || scalar_count != 1 || args[0].rank != 1 || args[0].element_bytes != 4)
        return 1;
    for (unsigned long long i = 0; i < args[1].shape[0]; i++) {
        unsigned int n = *(unsigned int *)((char *)args[0].data + (long long)i * args[0].strides[0]);
        unsigned int count = 0;
        while (n > 1 && count < scalars[0]) {
            n = n % 2 == 0 ? n / 2 : 3 * n + 1;
            count++;
        }
        *(unsigned int *)((char *)args[1].data + (long long)i * args[1].strides[0]) = count;
    }
    return 0;
}
