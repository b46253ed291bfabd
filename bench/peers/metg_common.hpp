// What the METG peers share: the body, the peak, the edges, and the best of a few runs.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

// What the last loop of this thread ended with: a loop continues the chain of the one before it, so that a core cannot run
// several short loops at once, out of order.
inline thread_local double last_value = 1.0;

// The compiler must not know the numbers: with these, the chain stays at one, and the whole loop would be left out.
inline void compute(int length) {
    double value = last_value, factor = 0.999999, summand = 0.000001;
    asm volatile("" : "+x"(value), "+x"(factor), "+x"(summand));
    for (int at = 0; at < length; at++) value = value * factor + summand;
    asm volatile("" : "+x"(value));
    last_value = value;
}

inline double now_ns() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::nano>(now).count();
}

// Rounds per nanosecond that plain threads reach together, starting at the same time: the best of several tries.
inline double peak(int cores) {
    const int rounds = 1 << 22;
    double best = 0;
    for (int attempt = 0; attempt < 9; attempt++) {
        std::atomic<int> waiting(cores);
        std::vector<double> times(cores);
        std::vector<std::thread> threads;
        for (int at = 0; at < cores; at++) {
            threads.emplace_back([&, at] {
                waiting--;
                while (waiting > 0) std::this_thread::yield();
                double start = now_ns();
                compute(rounds);
                times[at] = now_ns() - start;
            });
        }
        for (auto &thread : threads) thread.join();
        best = std::max(best, cores * double(rounds) / *std::max_element(times.begin(), times.end()));
    }
    return best;
}

struct Edges {
    std::size_t count = 0;
    std::vector<std::vector<std::size_t>> preds;
};

inline Edges read_edges(const char *path) {
    Edges edges;
    std::ifstream file(path);
    if (!(file >> edges.count)) std::exit(2);
    edges.preds.resize(edges.count);
    std::size_t pred, succ;
    while (file >> pred >> succ) edges.preds[succ].push_back(pred);
    return edges;
}

template <typename Run> double best_ns(Run run) {
    run();
    double best = 1e30;
    for (int at = 0; at < 5; at++) {
        double start = now_ns();
        run();
        best = std::min(best, now_ns() - start);
    }
    return best;
}
