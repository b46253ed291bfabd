// Runs a task graph of empty bodies on oneTBB's flow graph: argument 1 is a file with the number of tasks and then
// pairs of predecessor and successor, argument 2 the number of threads. Prints the median of nanoseconds per task.
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <vector>

using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    std::ifstream file(argv[1]);
    int threads = std::atoi(argv[2]);
    std::size_t count = 0;
    if (!(file >> count)) return 2;
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
    tbb::flow::graph graph;
    std::vector<std::unique_ptr<Node>> nodes;
    volatile std::size_t sink = 0;
    for (std::size_t at = 0; at < count; at++) {
        nodes.push_back(std::make_unique<Node>(graph, [](const tbb::flow::continue_msg &) {}));
    }
    std::vector<bool> has_pred(count, false);
    std::size_t pred, succ;
    while (file >> pred >> succ) {
        tbb::flow::make_edge(*nodes[pred], *nodes[succ]);
        has_pred[succ] = true;
    }
    auto run = [&] {
        for (std::size_t at = 0; at < count; at++) {
            if (!has_pred[at]) nodes[at]->try_put(tbb::flow::continue_msg());
        }
        graph.wait_for_all();
    };
    for (int at = 0; at < 3; at++) run();
    std::vector<double> samples;
    for (int at = 0; at < 31; at++) {
        auto start = std::chrono::steady_clock::now();
        for (int again = 0; again < 3; again++) run();
        std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
        samples.push_back(took.count() / (3.0 * count));
    }
    std::sort(samples.begin(), samples.end());
    std::printf("%f\n", samples[samples.size() / 2]);
    (void)sink;
    return 0;
}
