// What all modules of one `Ops` object share: threads, kernels, memory.
#pragma once

#include <atomic>
#include <string>

#include "kernels.hpp"
#include "memory.hpp"
#include "thread_pool.hpp"

namespace ratoon {

// Intermediate results of the module that is running; every module uses the same memory.
struct Workspace {
    struct Input {
        Buffer values, tiles;
        Buffer low;  // what adapters make of it
    };
    Input first, last;  // of the module's first and last products
    Buffer queries, context;
    Buffer product;  // before a norm
    Buffer record_values, record_weights;
};

struct Engine {
    // Throws std::invalid_argument for a variant that this processor cannot run.
    Engine(int num_threads, const std::string& isa, bool keeps_to_cores);

    ThreadPool threads;
    const Kernels& kernels;
    Arena weights;
    Workspace workspace;
    std::atomic_flag busy;
};

// Marks the engine as running; a second thread is turned away rather than let in to overwrite results.
class Running {
public:
    explicit Running(Engine& engine);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

private:
    Engine& engine_;
};

}  // namespace ratoon
