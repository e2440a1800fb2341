// Vectors as 16-bit integers and a scale.
//
// Keys and queries are scaled such that their length becomes 32767, so that no sum of products of the two, in
// whatever order, leaves 32 bits (Cauchy and Schwarz). Values are scaled such that their largest element
// becomes 32767, and weights such that their sum does.
#pragma once

#include "kv_pages.hpp"

namespace ratoon::RATOON_ISA {

constexpr float kInt16Max = 32767.0f;
constexpr float kSmallest = 1e-30f;  // sizes below it count as 0: their inverse would be infinite

INLINE Vec part_of(const float* x, std::int64_t n, std::int64_t i) {
    return n - i < kLanes ? load_first(x + i, n - i) : load(x + i);
}

INLINE float length_of(const float* x, std::int64_t n) {
    Vec squares = zero();
    for (std::int64_t i = 0; i < n; i += kLanes) squares = fma(part_of(x, n, i), part_of(x, n, i), squares);
    return __builtin_sqrtf(sum(squares));
}

// NaN if one of them is NaN: without signs, floats are ordered as integers are, and NaNs come last.
INLINE float largest_of(const float* x, std::int64_t n) {
    std::int32_t largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const auto size = __builtin_bit_cast(std::int32_t, __builtin_fabsf(x[i]));
        largest = largest > size ? largest : size;
    }
    return __builtin_bit_cast(float, largest);
}

// put(i, integers, count) for n numbers from i on, up to sixteen at a time, scaled such that `size` becomes 32767.
// Returns what 1 stands for: NaN where the size is NaN or infinite, so that every row that reads the vector
// gets NaN.
template <class Put>
INLINE float round_to_int16(const float* x, std::int64_t n, float size, Put put) {
    const Vec inverse = set1(size >= kSmallest ? kInt16Max / size : 0.0f);
    for (std::int64_t i = 0; i < n; i += kLanes) {
        Int16 integers[kLanes];
        store_rounded(integers, part_of(x, n, i) * inverse);
        put(i, integers, n - i < kLanes ? n - i : kLanes);
    }
    if (size < kSmallest) return 0.0f;
    return size < __builtin_inff() ? size / kInt16Max : __builtin_nanf("");
}

}  // namespace ratoon::RATOON_ISA
