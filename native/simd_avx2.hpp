// Sixteen floats and sixty-four bytes with AVX2, FMA and F16C: pairs of 32-byte registers. Where the compiler
// may use AVX-VNNI too, one instruction takes the place of the three of a dot product.
#pragma once

#include "reductions_x86.hpp"

namespace ratoon::RATOON_ISA {

constexpr int kTileHeight = 4;   // rows of an integer tile: 16 registers hold no more
constexpr int kTilePanels = 1;   // side by side
constexpr bool kExpand = true;   // expand a panel's integers to bytes first, if rows are many
constexpr int kFloatRows = 6;    // of a float tile
constexpr int kFloatChains = 5;  // sums (of sixteen columns) that a tile of few rows may keep

// ---- sixteen floats

struct Vec {
    __m256 lo, hi;
};

INLINE Vec set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
INLINE Vec load(const Half* p) { return {_mm256_cvtph_ps(load16(p)), _mm256_cvtph_ps(load16(p + 8))}; }
INLINE Vec load(const BFloat* p) {
    const auto widen = [](const BFloat* q) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(q)), 16));
    };
    return {widen(p), widen(p + 8)};
}
INLINE Vec load(const std::uint8_t* p) {
    const __m128i x = load16(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))};
}
INLINE Vec load(const std::int8_t* p) {
    const __m128i x = load16(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}
INLINE void store(float* p, Vec x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}

INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
INLINE Vec fma(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

INLINE float first(Vec x) { return _mm256_cvtss_f32(x.lo); }
INLINE float sum(Vec x) {
    const __m256 eight = _mm256_add_ps(x.lo, x.hi);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
INLINE float largest(Vec x) {
    const __m256 eight = _mm256_max_ps(x.lo, x.hi);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
// The largest absolute value of each pair a[i], b[i]; NaN if one of them is NaN (without signs, floats are
// ordered as integers are).
INLINE Float32x4 largest_sizes(const Vec (&a)[4], const Vec (&b)[4]) {
    const auto size = [](__m256 x) {
        return _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x));
    };
    __m256i m[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        m[i] = _mm256_max_epi32(_mm256_max_epi32(size(a[i].lo), size(a[i].hi)),
                                _mm256_max_epi32(size(b[i].lo), size(b[i].hi)));
    }
    return largest_of_each(m);
}

// Lanes [begin, end) of x, `other` elsewhere.
INLINE Vec keep_lanes(Vec x, int begin, int end, Vec other) {
    const auto keep = [&](__m256 v, __m256 o, __m256i lane) {
        const __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                                                   _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
        return _mm256_blendv_ps(o, v, _mm256_castsi256_ps(inside));
    };
    return {keep(x.lo, other.lo, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            keep(x.hi, other.hi, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
// x with the lowest nine bits of n added to its exponent.
INLINE Vec add_exponent(Vec x, Vec n) {
    const auto add = [](__m256 a, __m256 b) {
        return _mm256_castsi256_ps(
            _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(b), 23)));
    };
    return {add(x.lo, n.lo), add(x.hi, n.hi)};
}
// Rounds four groups, a[i] followed by b[i], to nearest even; `low` and `high` are the sums of their halves.
INLINE void round_groups(const Vec (&a)[4], const Vec (&b)[4], std::int8_t (&q)[4][32], Int32x4& low,
                         Int32x4& high) {
    __m256i sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        // Packing keeps to halves of a register: the order of fours of bytes is put right after it.
        const auto words = [](Vec x) {
            return _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
        };
        const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words(a[i]), words(b[i])),
                                                          _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q[i]), bytes);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
        sums[i] = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    }
    sum_halves(sums, low, high);
}

// ---- sixty-four bytes: four weights of sixteen columns

struct Bytes {
    __m256i lo, hi;
};

INLINE Bytes load_bytes(const std::uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
INLINE void store_bytes(std::uint8_t* p, Bytes x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.lo);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.hi);
}
INLINE Bytes keep_bits(Bytes x, char mask) {
    const __m256i m = _mm256_set1_epi8(mask);
    return {_mm256_and_si256(x.lo, m), _mm256_and_si256(x.hi, m)};
}
INLINE Bytes join(Bytes a, Bytes b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
// Shifts by kBits to the left, to the right if negative. Bits cross from byte to byte; the caller masks them.
template <int kBits>
INLINE Bytes shift(Bytes x) {
    if constexpr (kBits >= 0) return {_mm256_slli_epi16(x.lo, kBits), _mm256_slli_epi16(x.hi, kBits)};
    else return {_mm256_srli_epi16(x.lo, -kBits), _mm256_srli_epi16(x.hi, -kBits)};
}

#ifdef __AVXVNNI__

// As with AVX-512: unsigned weights, signed ones with 128 added, which `shift` takes away again.
template <int kBits>
struct Dot {
    Bytes sums;

    template <int kStep, int kSteps>
    INLINE void add(Bytes w, const std::int8_t* x, std::int32_t shift) {
        std::int32_t four;
        __builtin_memcpy(&four, x, 4);
        const __m256i row = _mm256_set1_epi32(four);
        if constexpr (kBits == 8) {
            const __m256i sign = _mm256_set1_epi8(-128);
            w = {_mm256_xor_si256(w.lo, sign), _mm256_xor_si256(w.hi, sign)};
        }
        if constexpr (kStep == 0) sums.lo = sums.hi = _mm256_set1_epi32(kBits == 8 ? shift : 0);
        sums = {_mm256_dpbusd_avx_epi32(sums.lo, w.lo, row), _mm256_dpbusd_avx_epi32(sums.hi, w.hi, row)};
        asm("" : "+x"(sums.lo), "+x"(sums.hi));  // as below
    }
    INLINE Vec value() const { return {_mm256_cvtepi32_ps(sums.lo), _mm256_cvtepi32_ps(sums.hi)}; }
};

#else

// Dot products of one row with sixteen columns, four inputs per step, exact in integers. The instruction
// multiplies unsigned by signed bytes and adds pairs in 16 bits; kRun such pair sums of kBits-wide weights
// fit before they must be widened.
template <int kBits>
struct Dot {
    static constexpr int kRun = kBits == 4 ? 8 : kBits == 5 ? 4 : kBits == 6 ? 2 : 1;
    Bytes pairs, sums;

    template <int kStep, int kSteps>
    INLINE void add(Bytes w, const std::int8_t* x, std::int32_t) {
        std::int32_t four;
        __builtin_memcpy(&four, x, 4);
        const __m256i row = _mm256_set1_epi32(four);
        const auto multiply = [&](__m256i v) {
            // 8-bit weights are signed: their sign moves to the other factor.
            if constexpr (kBits == 8)
                return _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(row, v));
            else return _mm256_maddubs_epi16(v, row);
        };
        __m256i lo = multiply(w.lo), hi = multiply(w.hi);
        if constexpr (kStep % kRun != 0) {
            lo = _mm256_add_epi16(pairs.lo, lo);
            hi = _mm256_add_epi16(pairs.hi, hi);
        }
        // Compilers put off all the additions and run out of registers; this makes them add now: to the sums that
        // every step adds to.
        if constexpr (kRun > 1) asm("" : "+x"(lo), "+x"(hi));
        pairs = {lo, hi};
        if constexpr (kStep % kRun == kRun - 1 || kStep == kSteps - 1) {
            const __m256i ones = _mm256_set1_epi16(1);
            lo = _mm256_madd_epi16(lo, ones);
            hi = _mm256_madd_epi16(hi, ones);
            if constexpr (kStep >= kRun) {
                lo = _mm256_add_epi32(sums.lo, lo);
                hi = _mm256_add_epi32(sums.hi, hi);
            }
            if constexpr (kRun == 1) asm("" : "+x"(lo), "+x"(hi));
            sums = {lo, hi};
        }
    }
    INLINE Vec value() const { return {_mm256_cvtepi32_ps(sums.lo), _mm256_cvtepi32_ps(sums.hi)}; }
};

#endif

// ---- thirty-two 16-bit integers: pairs of sixteen columns

constexpr int kInt16Rows = 6;  // of a tile
constexpr int kInt16Chains = 6;

// Rounds to nearest even; NaN becomes some integer.
INLINE void store_rounded(std::int16_t* p, Vec x) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xD8));
}

// Sums of products of 16-bit integers, two inputs per step.
struct PairSums {
    __m256i lo, hi;

    INLINE void clear() { lo = hi = _mm256_setzero_si256(); }
    INLINE void add(Bytes w, std::int32_t pair) {
        const __m256i row = _mm256_set1_epi32(pair);
#ifdef __AVXVNNI__
        __m256i a = _mm256_dpwssd_avx_epi32(lo, w.lo, row), b = _mm256_dpwssd_avx_epi32(hi, w.hi, row);
#else
        __m256i a = _mm256_add_epi32(lo, _mm256_madd_epi16(w.lo, row));
        __m256i b = _mm256_add_epi32(hi, _mm256_madd_epi16(w.hi, row));
#endif
        asm("" : "+x"(a), "+x"(b));  // as in Dot
        lo = a;
        hi = b;
    }
    INLINE Vec value() const { return {_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)}; }
};

}  // namespace ratoon::RATOON_ISA
