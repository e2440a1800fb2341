// Sixteen floats and sixty-four bytes with AVX-512 (F, BW, DQ, VL, VNNI): one register each.
#pragma once

#include "reductions_x86.hpp"

namespace ratoon::RATOON_ISA {

#ifdef RATOON_MATRIX_TILES
constexpr int kTileHeight = 16;   // rows of an integer tile
constexpr int kTilePanels = 1;    // side by side
#else
constexpr int kTileHeight = 8;
constexpr int kTilePanels = 2;    // for many rows: each broadcast input serves both
#endif
constexpr bool kExpand = false;   // never expand a panel's integers first: there are instructions to spare
constexpr int kFloatRows = 6;     // of a float tile
constexpr int kFloatChains = 12;  // sums (of sixteen columns) that a tile of few rows may keep

// ---- sixteen floats

struct Vec {
    __m512 v;
};

INLINE Vec set1(float x) { return {_mm512_set1_ps(x)}; }
INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
INLINE __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
INLINE Vec load(const Half* p) { return {_mm512_cvtph_ps(load32(p))}; }
INLINE Vec load(const BFloat* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16))};
}
INLINE Vec load(const std::uint8_t* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p)))}; }
INLINE Vec load(const std::int8_t* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p)))}; }
INLINE Vec load(const std::int32_t* p) { return {_mm512_cvtepi32_ps(_mm512_loadu_si512(p))}; }
INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }

INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }

INLINE float first(Vec x) { return _mm512_cvtss_f32(x.v); }
INLINE float sum(Vec x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
INLINE float largest(Vec x) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
// The largest absolute value of each pair a[i], b[i]; NaN if one of them is NaN (without signs, floats are
// ordered as integers are).
INLINE Float32x4 largest_sizes(const Vec (&a)[4], const Vec (&b)[4]) {
    __m256i m[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512i most = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a[i].v)),
                                              _mm512_castps_si512(_mm512_abs_ps(b[i].v)));
        m[i] = _mm256_max_epi32(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    }
    return largest_of_each(m);
}

// Lanes [begin, end) of x, `other` elsewhere.
INLINE Vec keep_lanes(Vec x, int begin, int end, Vec other) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 inside = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(begin)) &
                             _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
    return {_mm512_mask_blend_ps(inside, other.v, x.v)};
}
// x with the lowest nine bits of n added to its exponent.
INLINE Vec add_exponent(Vec x, Vec n) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(n.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), exponent))};
}
// Rounds four groups, a[i] followed by b[i], to nearest even; `low` and `high` are the sums of their halves.
INLINE void round_groups(const Vec (&a)[4], const Vec (&b)[4], std::int8_t (&q)[4][32], Int32x4& low,
                         Int32x4& high) {
    __m256i sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const auto round = [](Vec x) { return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x.v)); };
        const __m256i bytes =
            _mm256_inserti128_si256(_mm256_castsi128_si256(round(a[i])), round(b[i]), 1);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q[i]), bytes);
        sums[i] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
    }
    sum_halves(sums, low, high);
}

// ---- sixty-four bytes: four weights of sixteen columns

struct Bytes {
    __m512i v;
};

INLINE Bytes load_bytes(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE void store_bytes(std::uint8_t* p, Bytes x) { _mm512_storeu_si512(p, x.v); }
INLINE Bytes keep_bits(Bytes x, char mask) { return {_mm512_and_si512(x.v, _mm512_set1_epi8(mask))}; }
INLINE Bytes join(Bytes a, Bytes b) { return {_mm512_or_si512(a.v, b.v)}; }
// Shifts by kBits to the left, to the right if negative. Bits cross from byte to byte; the caller masks them.
template <int kBits>
INLINE Bytes shift(Bytes x) {
    if constexpr (kBits >= 0) return {_mm512_slli_epi16(x.v, kBits)};
    else return {_mm512_srli_epi16(x.v, -kBits)};
}

// Dot products of one row with sixteen columns, four inputs per step, exact in integers. The instruction
// wants unsigned weights: signed ones get 128 added, which `shift`, -128 times the sum of the row's inputs,
// takes away again.
template <int kBits>
struct Dot {
    __m512i sums;

    template <int kStep, int kSteps>
    INLINE void add(Bytes w, const std::int8_t* x, std::int32_t shift) {
        std::int32_t four;
        __builtin_memcpy(&four, x, 4);
        if constexpr (kBits == 8) w.v = _mm512_xor_si512(w.v, _mm512_set1_epi8(-128));
        if constexpr (kStep == 0) sums = kBits == 8 ? _mm512_set1_epi32(shift) : _mm512_setzero_si512();
        sums = _mm512_dpbusd_epi32(sums, w.v, _mm512_set1_epi32(four));
    }
    INLINE Vec value() const { return {_mm512_cvtepi32_ps(sums)}; }
};

// The low bytes of 16-bit integers, or the high ones, with zeros in place of the others.
INLINE Bytes low_bytes(Bytes x) { return {_mm512_and_si512(x.v, _mm512_set1_epi16(0x00FF))}; }
INLINE Bytes high_bytes(Bytes x) { return {_mm512_andnot_si512(_mm512_set1_epi16(0x00FF), x.v)}; }
// once + 256 * middle + 65536 * high in 32 bits, whatever wraps around on the way.
INLINE Vec to_float(const std::int32_t* once, const std::int32_t* middle, const std::int32_t* high) {
    const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(high), 16),
                                           _mm512_slli_epi32(_mm512_loadu_si512(middle), 8));
    return {_mm512_cvtepi32_ps(_mm512_add_epi32(upper, _mm512_loadu_si512(once)))};
}

// ---- thirty-two 16-bit integers: pairs of sixteen columns

constexpr int kInt16Rows = 6;  // of a tile
constexpr int kInt16Chains = 24;

// Rounds to nearest even; NaN becomes some integer.
INLINE void store_rounded(std::int16_t* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x.v)));
}

// Sums of products of 16-bit integers, two inputs per step.
struct PairSums {
    __m512i v;

    INLINE void clear() { v = _mm512_setzero_si512(); }
    INLINE void add(Bytes w, std::int32_t pair) {
        __m512i sum = _mm512_dpwssd_epi32(v, w.v, _mm512_set1_epi32(pair));
        asm("" : "+v"(sum));  // else compilers copy sums around and run out of registers
        v = sum;
    }
    INLINE Vec value() const { return {_mm512_cvtepi32_ps(v)}; }
};

}  // namespace ratoon::RATOON_ISA
