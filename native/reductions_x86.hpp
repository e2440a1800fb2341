// Sums and maxima over four 256-bit registers at once, for both widths of x86.
#pragma once

#include <immintrin.h>

namespace ratoon::RATOON_ISA {

// The largest integer of each register, as the bits of a float.
INLINE Float32x4 largest_of_each(const __m256i (&m)[4]) {
    const auto pair = [](__m256i x, __m256i y) {
        return _mm256_max_epi32(_mm256_unpacklo_epi32(x, y), _mm256_unpackhi_epi32(x, y));
    };
    const __m256i m01 = pair(m[0], m[1]), m23 = pair(m[2], m[3]);
    const __m256i all =
        _mm256_max_epi32(_mm256_unpacklo_epi64(m01, m23), _mm256_unpackhi_epi64(m01, m23));
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    return Float32x4(_mm_castsi128_ps(four));
}

// The sums of either half of each register.
INLINE void sum_halves(const __m256i (&sums)[4], Int32x4& low, Int32x4& high) {
    const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]),
                                          _mm256_hadd_epi32(sums[2], sums[3]));
    low = Int32x4(_mm256_castsi256_si128(all));
    high = Int32x4(_mm256_extracti128_si256(all, 1));
}

}  // namespace ratoon::RATOON_ISA
