#include "engine.hpp"

#include <algorithm>
#include <stdexcept>

#include "processor.hpp"

namespace ratoon {

Engine::Engine(int num_threads, const std::string& isa, bool keeps_to_cores)
    : threads(std::max(1, num_threads), keeps_to_cores), kernels(kernels_named(isa)) {}

Running::Running(Engine& engine) : engine_(engine) {
    if (engine_.busy.test_and_set(std::memory_order_acquire)) {
        throw std::runtime_error("two threads use one Ops object at the same time");
    }
}

Running::~Running() { engine_.busy.clear(std::memory_order_release); }

}  // namespace ratoon
