// METG on oneTBB's flow graph: a file of edges, the number of cores, then loop lengths. Prints the peak in rounds per
// nanosecond, and for each length the best time of a run in nanoseconds.
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>

#include <memory>

#include "metg_common.hpp"

using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    Edges edges = read_edges(argv[1]);
    int cores = std::atoi(argv[2]);
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, cores);
    std::printf("%f\n", peak(cores));
    int length = 0;
    tbb::flow::graph graph;
    std::vector<std::unique_ptr<Node>> nodes;
    for (std::size_t at = 0; at < edges.count; at++) {
        nodes.push_back(std::make_unique<Node>(
            graph, [&length](const tbb::flow::continue_msg &) { compute(length); }));
        for (std::size_t pred : edges.preds[at]) tbb::flow::make_edge(*nodes[pred], *nodes[at]);
    }
    for (int argument = 3; argument < argc; argument++) {
        length = std::atoi(argv[argument]);
        std::printf("%f\n", best_ns([&] {
            for (std::size_t at = 0; at < edges.count; at++) {
                if (edges.preds[at].empty()) nodes[at]->try_put(tbb::flow::continue_msg());
            }
            graph.wait_for_all();
        }));
    }
    return 0;
}
