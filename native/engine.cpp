#include "engine.hpp"

#include <algorithm>
#include <stdexcept>

#include "require.hpp"

namespace ratoon {
namespace {

const Kernels& kernels_named(const std::string& isa) {
    if (std::ranges::count(available_variants(), isa) == 0)
        refuse("this processor does not run " + isa + " kernels");
#ifdef RATOON_X86
    if (isa == "avx512") return avx512::kernels;
    if (isa == "avxvnni") return avxvnni::kernels;
    if (isa == "avx2") return avx2::kernels;
#endif
    return portable::kernels;
}

}  // namespace

Engine::Engine(int num_threads, const std::string& isa, bool keeps_to_cores)
    : threads(std::max(1, num_threads), keeps_to_cores), kernels(kernels_named(isa)) {}

Running::Running(Engine& engine) : engine_(engine) {
    if (engine_.busy.test_and_set(std::memory_order_acquire)) {
        throw std::runtime_error("two threads use one Ops object at the same time");
    }
}

Running::~Running() { engine_.busy.clear(std::memory_order_release); }

std::vector<std::string> available_variants() {
    std::vector<std::string> variants;
#ifdef RATOON_X86
    __builtin_cpu_init();
    const bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vnni");
    if (avx512) variants.emplace_back("avx512");
    if (avx2 && __builtin_cpu_supports("avxvnni")) variants.emplace_back("avxvnni");
    if (avx2) variants.emplace_back("avx2");
#endif
    variants.emplace_back("portable");
    return variants;
}

}  // namespace ratoon
