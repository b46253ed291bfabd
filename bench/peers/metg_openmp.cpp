// METG on OpenMP tasks with depend clauses: a file of edges, the number of cores, then loop lengths. Prints the peak in
// rounds per nanosecond, and for each length the best time of a run in nanoseconds.
#include <omp.h>

#include "metg_common.hpp"

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    Edges edges = read_edges(argv[1]);
    int cores = std::atoi(argv[2]);
    omp_set_num_threads(cores);
    std::printf("%f\n", peak(cores));
    std::vector<char> cells(edges.count);
    char *cell = cells.data();
    for (int argument = 3; argument < argc; argument++) {
        int length = std::atoi(argv[argument]);
        std::printf("%f\n", best_ns([&] {
#pragma omp parallel
#pragma omp single
            for (std::size_t at = 0; at < edges.count; at++) {
                const std::size_t *pred = edges.preds[at].data();
                int preds = int(edges.preds[at].size());
#pragma omp task firstprivate(length) depend(iterator(k = 0 : preds), in : cell[pred[k]]) depend(out : cell[at])
                compute(length);
            }
        }));
    }
    return 0;
}
