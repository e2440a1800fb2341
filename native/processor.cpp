#include "processor.hpp"

#include <algorithm>

#include "require.hpp"

#if defined(RATOON_X86) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ratoon {
namespace {

#ifdef RATOON_X86

// Linux gives a process the memory for tiles only if asked, once and for all of its threads.
bool may_use_amx() {
#if defined(RATOON_AMX) && defined(__linux__)
    constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;  // of leaf 7's edx
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    static const bool answer = [] {
        unsigned a, b, c, d;
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTile) && (d & kInt8) &&
               syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
    }();
    return answer;
#else
    return false;
#endif
}

bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

#endif

}  // namespace

std::vector<std::string> available_variants() {
    std::vector<std::string> variants;
#ifdef RATOON_X86
    __builtin_cpu_init();
    const bool fma = __builtin_cpu_supports("fma");
    const bool avx2 = __builtin_cpu_supports("avx2") && fma && __builtin_cpu_supports("f16c");
    if (avx2 && has_avx512()) {
        if (may_use_amx()) variants.emplace_back("amx");
        variants.emplace_back("avx512");
    }
    if (avx2 && __builtin_cpu_supports("avxvnni")) variants.emplace_back("avxvnni");
    if (avx2) variants.emplace_back("avx2");
    if (fma) variants.emplace_back("portable_fma");
#endif
    variants.emplace_back("portable");
    return variants;
}

std::vector<std::string> emulated_variants() {
#ifdef RATOON_X86
    if (std::ranges::count(available_variants(), "avx512") != 0) return {"amx_emulated"};
#endif
    return {};
}

const Kernels& kernels_named(const std::string& isa) {
    if (std::ranges::count(available_variants(), isa) == 0 && std::ranges::count(emulated_variants(), isa) == 0)
        refuse("this processor does not run " + isa + " kernels");
#ifdef RATOON_X86
#ifdef RATOON_AMX
    if (isa == "amx") return amx::kernels;
#endif
    if (isa == "amx_emulated") return amx_emulated::kernels;
    if (isa == "avx512") return avx512::kernels;
    if (isa == "avxvnni") return avxvnni::kernels;
    if (isa == "avx2") return avx2::kernels;
    if (isa == "portable_fma") return portable_fma::kernels;
#endif
    return portable::kernels;
}

}  // namespace ratoon
