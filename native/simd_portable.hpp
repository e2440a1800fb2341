// Sixteen floats and sixty-four bytes in plain C++, for processors without a variant of their own.
//
// Loops over lanes, which compilers turn into whatever vectors there are. Multiply-add rounds once where the
// processor does that in one instruction (as AArch64 does) and twice where it would need a library call.
#pragma once

namespace ratoon::RATOON_ISA {

constexpr int kTileHeight = 2;
constexpr int kTilePanels = 1;
constexpr bool kExpand = false;  // never expand a panel's integers first
constexpr int kFloatRows = 3;    // of a float tile
constexpr int kFloatChains = 2;  // sums (of sixteen columns) that a tile of few rows may keep

// ---- sixteen floats

struct Vec {
    float v[16];
};

template <class F>
INLINE Vec each_lane(F f) {
    Vec out;
    for (int i = 0; i < 16; ++i) out.v[i] = f(i);
    return out;
}
INLINE float to_float(float x) { return x; }
INLINE float to_float(std::uint8_t x) { return x; }
INLINE float to_float(std::int8_t x) { return x; }
INLINE float to_float(BFloat x) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
}
INLINE float to_float(Half x) {
    const std::uint32_t sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7FFFu;
    const float small = static_cast<float>(rest) * 0x1p-24f;  // below 2^-14: not a normal number
    const std::uint32_t exponent = rest >= 0x7C00u ? 0x70000000u : 0x38000000u;
    const std::uint32_t bits =
        rest < 0x0400u ? __builtin_bit_cast(std::uint32_t, small) : (rest << 13) + exponent;
    return __builtin_bit_cast(float, bits | sign);
}

INLINE Vec set1(float x) {
    return each_lane([&](int) { return x; });
}
template <class T>
INLINE Vec load(const T* p) {
    return each_lane([&](int i) { return to_float(p[i]); });
}
INLINE void store(float* p, Vec x) { __builtin_memcpy(p, x.v, sizeof x.v); }

INLINE Vec operator+(Vec a, Vec b) {
    return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
INLINE Vec operator-(Vec a, Vec b) {
    return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
INLINE Vec operator*(Vec a, Vec b) {
    return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
INLINE Vec operator/(Vec a, Vec b) {
    return each_lane([&](int i) { return a.v[i] / b.v[i]; });
}
INLINE Vec fma(Vec a, Vec b, Vec c) {
#ifdef __FP_FAST_FMAF
    return each_lane([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
#else
    return each_lane([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
#endif
}
INLINE Vec max(Vec a, Vec b) {
    return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
INLINE Vec min(Vec a, Vec b) {
    return each_lane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}

INLINE float first(Vec x) { return x.v[0]; }
INLINE float sum(Vec x) {
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
    }
    return x.v[0];
}
INLINE float largest(Vec x) {
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
    }
    return x.v[0];
}
// The largest absolute value of each pair a[i], b[i]; NaN if one of them is NaN (without signs, floats are
// ordered as integers are).
INLINE Float32x4 largest_sizes(const Vec (&a)[4], const Vec (&b)[4]) {
    Float32x4 out;
    for (int i = 0; i < 4; ++i) {
        std::int32_t most = 0;
        for (int k = 0; k < 16; ++k) {
            const auto x = __builtin_bit_cast(std::int32_t, __builtin_fabsf(a[i].v[k]));
            const auto y = __builtin_bit_cast(std::int32_t, __builtin_fabsf(b[i].v[k]));
            const std::int32_t larger = x > y ? x : y;
            most = most > larger ? most : larger;
        }
        out[i] = __builtin_bit_cast(float, most);
    }
    return out;
}

// Lanes [begin, end) of x, `other` elsewhere.
INLINE Vec keep_lanes(Vec x, int begin, int end, Vec other) {
    return each_lane([&](int i) { return begin <= i && i < end ? x.v[i] : other.v[i]; });
}
// x with the lowest nine bits of n added to its exponent.
INLINE Vec add_exponent(Vec x, Vec n) {
    return each_lane([&](int i) {
        const auto exponent = __builtin_bit_cast(std::uint32_t, n.v[i]) << 23;
        return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x.v[i]) + exponent);
    });
}
// Rounds four groups, a[i] followed by b[i], to nearest even; `low` and `high` are the sums of their halves.
INLINE void round_groups(const Vec (&a)[4], const Vec (&b)[4], std::int8_t (&q)[4][32], Int32x4& low,
                         Int32x4& high) {
    const auto round = [](Vec x, std::int8_t* to) {
        const Vec whole = (x + set1(0x1.8p23f)) - set1(0x1.8p23f);
        std::int32_t total = 0;
        for (int k = 0; k < 16; ++k)
            total += to[k] = static_cast<std::int8_t>(static_cast<std::int32_t>(whole.v[k]));
        return total;
    };
    for (int i = 0; i < 4; ++i) {
        low[i] = round(a[i], q[i]);
        high[i] = round(b[i], q[i] + 16);
    }
}

// ---- sixty-four bytes: four weights of sixteen columns

struct Bytes {
    std::uint8_t v[64];
};

template <class F>
INLINE Bytes each_byte(F f) {
    Bytes out;
    for (int i = 0; i < 64; ++i) out.v[i] = static_cast<std::uint8_t>(f(i));
    return out;
}
INLINE Bytes load_bytes(const std::uint8_t* p) {
    Bytes out;
    __builtin_memcpy(out.v, p, 64);
    return out;
}
INLINE void store_bytes(std::uint8_t* p, Bytes x) { __builtin_memcpy(p, x.v, 64); }
INLINE Bytes keep_bits(Bytes x, char mask) {
    return each_byte([&](int i) { return x.v[i] & mask; });
}
INLINE Bytes join(Bytes a, Bytes b) {
    return each_byte([&](int i) { return a.v[i] | b.v[i]; });
}
// Shifts by kBits to the left, to the right if negative.
template <int kBits>
INLINE Bytes shift(Bytes x) {
    return each_byte([&](int i) { return kBits >= 0 ? x.v[i] << (kBits & 7) : x.v[i] >> (-kBits & 7); });
}

// Dot products of one row with sixteen columns, four inputs per step, exact in integers.
template <int kBits>
struct Dot {
    std::int32_t sums[16];

    template <int kStep, int kSteps>
    INLINE void add(Bytes w, const std::int8_t* x, std::int32_t) {
        for (int i = 0; i < 16; ++i) {
            std::int32_t total = kStep == 0 ? 0 : sums[i];
            for (int t = 0; t < 4; ++t) {
                const std::uint8_t byte = w.v[4 * i + t];
                total +=
                    x[t] * (kBits == 8 ? static_cast<std::int8_t>(byte) : static_cast<std::int32_t>(byte));
            }
            sums[i] = total;
        }
    }
    INLINE Vec value() const {
        return each_lane([&](int i) { return static_cast<float>(sums[i]); });
    }
};

// ---- thirty-two 16-bit integers: pairs of sixteen columns

constexpr int kInt16Rows = 3;  // of a tile
constexpr int kInt16Chains = 3;

// Rounds to nearest even; NaN becomes some integer.
INLINE void store_rounded(std::int16_t* p, Vec x) {
    for (int i = 0; i < 16; ++i) {
        const float whole = (x.v[i] + 0x1.8p23f) - 0x1.8p23f;
        p[i] = whole >= -32768.0f && whole <= 32767.0f ? static_cast<std::int16_t>(whole) : std::int16_t{-32768};
    }
}

// Sums of products of 16-bit integers, two inputs per step. They wrap around where there are integers that no key has.
struct PairSums {
    std::uint32_t v[16];

    INLINE void clear() { *this = {}; }
    INLINE void add(Bytes w, std::int32_t pair) {
        std::int16_t factors[2], words[32];
        __builtin_memcpy(factors, &pair, 4);
        __builtin_memcpy(words, w.v, 64);
        for (int i = 0; i < 16; ++i) {
            v[i] += static_cast<std::uint32_t>(words[2 * i] * factors[0]);
            v[i] += static_cast<std::uint32_t>(words[2 * i + 1] * factors[1]);
        }
    }
    INLINE Vec value() const {
        return each_lane([&](int i) { return static_cast<float>(static_cast<std::int32_t>(v[i])); });
    }
};

}  // namespace ratoon::RATOON_ISA
