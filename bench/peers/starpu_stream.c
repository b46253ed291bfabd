// The task graphs of `stream`, given to StarPU as data handles, one for each tile; which graph, and its sizes:
// starpu_stream cholesky TILES | stencil WIDTH STEPS | wavefront SIDE ROUNDS | chain TASKS | independent TASKS
// Bodies are empty. Prints nanoseconds a task.
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static starpu_data_handle_t *tiles;

static void body(void *buffers[], void *argument) {
    (void)buffers;
    (void)argument;
}

static struct starpu_codelet codelets[5];

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void submit(int count, const long *at, const enum starpu_data_access_mode *modes) {
    struct starpu_task *task = starpu_task_create();
    struct starpu_codelet *codelet = &codelets[count];
    task->cl = codelet;
    task->nbuffers = count;
    for (int argument = 0; argument < count; argument++) {
        task->handles[argument] = tiles[at[argument]];
        task->modes[argument] = modes[argument];
    }
    if (starpu_task_submit(task) != 0) exit(3);
}

static long cholesky(long n) {
    const enum starpu_data_access_mode modes[] = {STARPU_R, STARPU_R, STARPU_RW};
    long count = 0;
    for (long k = 0; k < n; k++) {
        submit(1, (long[]){k * n + k}, modes + 2);
        count++;
        for (long i = k + 1; i < n; i++, count++) submit(2, (long[]){k * n + k, i * n + k}, modes + 1);
        for (long i = k + 1; i < n; i++) {
            for (long j = k + 1; j < i; j++, count++)
                submit(3, (long[]){i * n + k, j * n + k, i * n + j}, modes);
            submit(2, (long[]){i * n + k, i * n + i}, modes + 1);
            count++;
        }
    }
    return count;
}

static long stencil(long width, long steps) {
    for (long step = 0; step < steps; step++) {
        long from = step % 2 * width, to = (step + 1) % 2 * width;
        for (long at = 0; at < width; at++) {
            long places[4];
            enum starpu_data_access_mode modes[4];
            int count = 0;
            for (long near = at > 0 ? at - 1 : 0; near <= at + 1 && near < width; near++, count++) {
                places[count] = from + near;
                modes[count] = STARPU_R;
            }
            places[count] = to + at;
            modes[count++] = STARPU_W;
            submit(count, places, modes);
        }
    }
    return width * steps;
}

static long wavefront(long side, long rounds) {
    for (long round = 0; round < rounds; round++) {
        for (long row = 0; row < side; row++) {
            for (long column = 0; column < side; column++) {
                long places[3];
                enum starpu_data_access_mode modes[3] = {STARPU_R, STARPU_R, STARPU_R};
                int count = 0;
                if (row > 0) places[count++] = (row - 1) * side + column;
                if (column > 0) places[count++] = row * side + column - 1;
                modes[count] = STARPU_RW;
                places[count++] = row * side + column;
                submit(count, places, modes);
            }
        }
    }
    return side * side * rounds;
}

static long rows(long width, long steps) {
    const enum starpu_data_access_mode mode = STARPU_RW;
    for (long step = 0; step < steps; step++)
        for (long at = 0; at < width; at++) submit(1, &at, &mode);
    return width * steps;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *graph = words[1];
    long first = atol(words[2]), second = count > 3 ? atol(words[3]) : 0;
    struct starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncuda = conf.nopencl = 0;
    if (starpu_init(&conf) != 0) return 4;
    for (int at = 0; at < 5; at++) {
        starpu_codelet_init(&codelets[at]);
        codelets[at].cpu_funcs[0] = body;
        codelets[at].nbuffers = STARPU_VARIABLE_NBUFFERS;
        codelets[at].name = "empty";
    }
    long width = !strcmp(graph, "chain") ? 1 : !strcmp(graph, "independent") ? first : !strcmp(graph, "stencil") ? 2 * first : first * first;
    char *memory = calloc(width, 64);
    tiles = calloc(width, sizeof *tiles);
    for (long at = 0; at < width; at++)
        starpu_variable_data_register(&tiles[at], STARPU_MAIN_RAM, (uintptr_t)(memory + 64 * at), 64);
    for (int run = 0; run < 4; run++) {
        double start = now_ns();
        long tasks = 0;
        if (!strcmp(graph, "cholesky")) tasks = cholesky(first);
        if (!strcmp(graph, "stencil")) tasks = stencil(first, second);
        if (!strcmp(graph, "wavefront")) tasks = wavefront(first, second);
        if (!strcmp(graph, "chain")) tasks = rows(1, first);
        if (!strcmp(graph, "independent")) tasks = rows(first, 1);
        starpu_task_wait_for_all();
        // The first run warms up.
        if (run > 0) printf("%f\n", (now_ns() - start) / tasks);
    }
    for (long at = 0; at < width; at++) starpu_data_unregister(tiles[at]);
    starpu_shutdown();
    return 0;
}
