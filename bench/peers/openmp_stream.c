// The task graphs of `stream`, given to OpenMP as `depend` clauses on tile addresses; two numbers of the body, the first
// of which is the work of each task (0 for empty bodies), and which graph:
// openmp_stream ITERATIONS cholesky TILES | stencil WIDTH STEPS | wavefront SIDE ROUNDS | chain TASKS | independent TASKS |
//               trivial WIDTH STEPS ; prints nanoseconds a task.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *tiles;
static long iterations;

static void body(void) {
    volatile double x = 1.0;
    for (long i = 0; i < iterations; i++) x = x * 1.000000001 + 0.000000001;
}

static long cholesky(long n) {
    long count = 0;
    for (long k = 0; k < n; k++) {
        char *kk = &tiles[k * n + k];
#pragma omp task depend(inout : kk[0])
        body();
        count++;
        for (long i = k + 1; i < n; i++) {
            char *ik = &tiles[i * n + k];
#pragma omp task depend(in : kk[0]) depend(inout : ik[0])
            body();
            count++;
        }
        for (long i = k + 1; i < n; i++) {
            char *ik = &tiles[i * n + k];
            for (long j = k + 1; j < i; j++) {
                char *jk = &tiles[j * n + k], *ij = &tiles[i * n + j];
#pragma omp task depend(in : ik[0], jk[0]) depend(inout : ij[0])
                body();
                count++;
            }
            char *ii = &tiles[i * n + i];
#pragma omp task depend(in : ik[0]) depend(inout : ii[0])
            body();
            count++;
        }
    }
    return count;
}

static long stencil(long width, long steps) {
    for (long step = 0; step < steps; step++) {
        char *from = tiles + (step % 2) * width, *to = tiles + ((step + 1) % 2) * width;
        for (long at = 0; at < width; at++) {
            char *left = &from[at > 0 ? at - 1 : at], *mid = &from[at];
            char *right = &from[at < width - 1 ? at + 1 : at], *out = &to[at];
#pragma omp task depend(in : left[0], mid[0], right[0]) depend(out : out[0])
            body();
        }
    }
    return width * steps;
}

static long wavefront(long side, long rounds) {
    for (long round = 0; round < rounds; round++) {
        for (long row = 0; row < side; row++) {
            for (long column = 0; column < side; column++) {
                char *up = &tiles[(row > 0 ? row - 1 : row) * side + column];
                char *left = &tiles[row * side + (column > 0 ? column - 1 : column)];
                char *own = &tiles[row * side + column];
#pragma omp task depend(in : up[0], left[0]) depend(inout : own[0])
                body();
            }
        }
    }
    return side * side * rounds;
}

static long rows(long width, long steps) {
    for (long step = 0; step < steps; step++) {
        for (long at = 0; at < width; at++) {
            char *own = &tiles[at];
#pragma omp task depend(inout : own[0])
            body();
        }
    }
    return width * steps;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    iterations = atol(words[1]);
    const char *graph = words[2];
    long first = atol(words[3]), second = count > 4 ? atol(words[4]) : 0;
    tiles = calloc(strcmp(graph, "independent") && strcmp(graph, "chain") ? 2 * first * first + 2 * first : first + 1, 1);
    for (int run = 0; run < 4; run++) {
        double start = omp_get_wtime();
        long tasks = 0;
#pragma omp parallel
#pragma omp single
        {
            if (!strcmp(graph, "cholesky")) tasks = cholesky(first);
            if (!strcmp(graph, "stencil")) tasks = stencil(first, second);
            if (!strcmp(graph, "wavefront")) tasks = wavefront(first, second);
            if (!strcmp(graph, "chain")) tasks = rows(1, first);
            if (!strcmp(graph, "independent")) tasks = rows(first, 1);
            if (!strcmp(graph, "trivial")) tasks = rows(first, second);
#pragma omp taskwait
        }
        // The first run starts the threads.
        if (run > 0) printf("%f\n", (omp_get_wtime() - start) * 1e9 / tasks);
    }
    return 0;
}
