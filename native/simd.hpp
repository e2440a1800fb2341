// The vectors of the instruction set that this translation unit is compiled for (RATOON_ISA, set by CMake),
// and what is written in terms of them. Sixteen lanes everywhere, so that sums over lanes have one order on
// every machine.
#pragma once

#include <cstdint>

#include "kernels.hpp"

#define INLINE [[gnu::always_inline]] inline

namespace ratoon {
// One number for each of four groups that are quantised side by side.
using Float32x4 = float __attribute__((vector_size(16)));
using Int32x4 = std::int32_t __attribute__((vector_size(16)));
}  // namespace ratoon

#define RATOON_SIMD_portable "simd_portable.hpp"
#define RATOON_SIMD_portable_fma "simd_portable.hpp"
#define RATOON_SIMD_avx2 "simd_avx2.hpp"
#define RATOON_SIMD_avxvnni "simd_avx2.hpp"
#define RATOON_SIMD_avx512 "simd_avx512.hpp"
#define RATOON_SIMD_amx "simd_avx512.hpp"
#define RATOON_SIMD_amx_emulated "simd_avx512.hpp"
#define RATOON_JOIN(a, b) a##b
#define RATOON_SIMD(isa) RATOON_JOIN(RATOON_SIMD_, isa)
#include RATOON_SIMD(RATOON_ISA)
#ifdef RATOON_MATRIX_TILES
#include RATOON_MATRIX_TILES
#endif

namespace ratoon::RATOON_ISA {

// f.operator()<i>() for i in [0, kCount).
template <int kCount, class F>
INLINE void unroll(F f) {
    if constexpr (kCount > 0) {
        unroll<kCount - 1>(f);
        f.template operator()<kCount - 1>();
    }
}

INLINE Vec zero() { return set1(0.0f); }

// 2^x for x up to 127, exactly 1 at 0; below -60 it stays at 2^-60, because products with smaller numbers
// soon are no normal numbers, which some processors are slow with. The relative error is 3e-6.
INLINE Vec exp2(Vec x) {
    const Vec big = set1(0x1.8p23f);  // a sum with it has no bits behind the point: rounded to nearest even
    x = max(set1(-60.0f), x);
    const Vec n = x + big, r = x - (n - big);
    Vec p = set1(9.582852945e-3f);
    p = fma(p, r, set1(5.590642616e-2f));
    p = fma(p, r, set1(2.402409911e-1f));
    p = fma(p, r, set1(6.931241751e-1f));
    p = fma(p, r, set1(1.0f));
    return add_exponent(p, n);
}

// 1 / (1 + e^-x)
INLINE Vec sigmoid(Vec x) {
    return set1(1.0f) / (set1(1.0f) + exp2(min(set1(126.0f), x * set1(-1.44269504f))));
}

INLINE Vec tanh(Vec x) { return fma(set1(2.0f), sigmoid(x + x), set1(-1.0f)); }

// The first n of sixteen floats, zeros behind them.
INLINE Vec load_first(const float* p, std::int64_t n) {
    float lanes[16] = {};
    for (std::int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return load(lanes);
}
INLINE void store_first(float* p, std::int64_t n, Vec x) {
    float lanes[16];
    store(lanes, x);
    for (std::int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

}  // namespace ratoon::RATOON_ISA
