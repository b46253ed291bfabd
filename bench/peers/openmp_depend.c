// The task graphs of `submit`, given to OpenMP as `depend` clauses on tile addresses. Bodies are empty.
// Usage: openmp_depend cholesky TILES | stencil TILES ROUNDS | random BUFFERS TASKS ; prints nanoseconds a task.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *tiles;

static long cholesky(long n) {
    long count = 0;
    for (long k = 0; k < n; k++) {
        char *kk = &tiles[k * n + k];
#pragma omp task depend(inout : kk[0])
        {}
        count++;
        for (long i = k + 1; i < n; i++) {
            char *ik = &tiles[i * n + k];
#pragma omp task depend(in : kk[0]) depend(inout : ik[0])
            {}
            count++;
        }
        for (long i = k + 1; i < n; i++) {
            char *ik = &tiles[i * n + k];
            for (long j = k + 1; j < i; j++) {
                char *jk = &tiles[j * n + k], *ij = &tiles[i * n + j];
#pragma omp task depend(in : ik[0], jk[0]) depend(inout : ij[0])
                {}
                count++;
            }
            char *ii = &tiles[i * n + i];
#pragma omp task depend(in : ik[0]) depend(inout : ii[0])
            {}
            count++;
        }
    }
    return count;
}

static long stencil(long n, long rounds) {
    for (long round = 0; round < rounds; round++) {
        char *from = tiles + (round % 2) * n * n, *to = tiles + ((round + 1) % 2) * n * n;
        for (long row = 0; row < n; row++) {
            for (long column = 0; column < n; column++) {
                long up = row > 0 ? row - 1 : row, down = row < n - 1 ? row + 1 : row;
                long left = column > 0 ? column - 1 : column, right = column < n - 1 ? column + 1 : column;
                char *a = &from[up * n + left], *b = &from[up * n + column], *c = &from[up * n + right];
                char *d = &from[row * n + left], *e = &from[row * n + column], *f = &from[row * n + right];
                char *g = &from[down * n + left], *h = &from[down * n + column], *i = &from[down * n + right];
                char *out = &to[row * n + column];
#pragma omp task depend(in : a[0], b[0], c[0], d[0], e[0], f[0], g[0], h[0], i[0]) depend(out : out[0])
                {}
            }
        }
    }
    return n * n * rounds;
}

static long random_buffers(long buffers, long tasks) {
    uint64_t state = 1;
    for (long task = 0; task < tasks; task++) {
        char *at[3];
        for (int arg = 0; arg < 3; arg++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            at[arg] = &tiles[(state >> 33) % buffers];
        }
        char *a = at[0], *b = at[1], *c = at[2];
#pragma omp task depend(in : a[0], b[0]) depend(inout : c[0])
        {}
    }
    return tasks;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    long first = atol(words[2]), second = count > 3 ? atol(words[3]) : 0;
    tiles = calloc(2 * first * first + 2 * first, 1);
    for (int run = 0; run < 6; run++) {
        double start = omp_get_wtime();
        long tasks = 0;
#pragma omp parallel
#pragma omp single
        {
            if (!strcmp(words[1], "cholesky")) tasks = cholesky(first);
            if (!strcmp(words[1], "stencil")) tasks = stencil(first, second);
            if (!strcmp(words[1], "random")) tasks = random_buffers(first, second);
#pragma omp taskwait
        }
        // The first run starts the threads.
        if (run > 0) printf("%f\n", (omp_get_wtime() - start) * 1e9 / tasks);
    }
    return 0;
}
