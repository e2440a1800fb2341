// Norms, activations, quantisation: what happens to a row between two products.
#include "simd.hpp"

namespace ratoon::RATOON_ISA {

void normalise(const float* x, const float* weight, float eps, std::int64_t n, float* out) {
    const std::int64_t whole = n / 16 * 16;
    Vec squares = zero();
    for (std::int64_t i = 0; i < whole; i += 16) squares = fma(load(x + i), load(x + i), squares);
    if (whole < n) {
        const Vec rest = load_first(x + whole, n - whole);
        squares = fma(rest, rest, squares);
    }
    const float scale = 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(n) + eps);
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

namespace {

// Where a group of a row is written: its integers, and the first of its scales, which are `height` apart.
struct GroupAddress {
    std::int8_t* q;
    float* scales;
};

// Quantise up to four groups side by side, which lie behind each other at x.
INLINE void quantise_four(const float* x, const GroupAddress (&addresses)[4], int count, std::int64_t height) {
    Vec a[4], b[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const float* group = x + (i < count ? i : 0) * kGroup;
        a[i] = load(group);
        b[i] = load(group + 16);
    }
    // Below, 127 / peak would overflow; NaN stays NaN.
    const Float32x4 peaks = largest_sizes(a, b), none = {}, infinite = none + __builtin_inff();
    const auto tiny = peaks < 1e-30f;
    const Float32x4 scales = (tiny ? none : peaks) / 127.0f, inverse = 127.0f / (tiny ? infinite : peaks);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        a[i] = a[i] * set1(inverse[i]);
        b[i] = b[i] * set1(inverse[i]);
    }
    std::int8_t q[4][kGroup];
    Int32x4 low, high;
    round_groups(a, b, q, low, high);
    const Float32x4 low_sums = scales * __builtin_convertvector(low, Float32x4),
               high_sums = scales * __builtin_convertvector(high, Float32x4),
               sums = scales * __builtin_convertvector(low + high, Float32x4);
    const Int32x4 shifts = -128 * (low + high);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        if (i >= count) break;
        __builtin_memcpy(addresses[i].q, q[i], kGroup);
        float* at = addresses[i].scales;
        at[0] = scales[i];
        at[height] = sums[i];
        at[2 * height] = low_sums[i];
        at[3 * height] = high_sums[i];
        const std::int32_t shift = shifts[i];
        __builtin_memcpy(at + 4 * height, &shift, sizeof shift);
    }
}

}  // namespace

void quantise(const float* x, std::int64_t first_row, std::int64_t end_row, std::int64_t first_group,
              std::int64_t end_group, const QuantTiles& tiles) {
    for (std::int64_t row = first_row; row < end_row;) {
        const std::int64_t tile = row - row % tiles.height, height = tile_rows(tiles, tile);
        const std::int64_t group_bytes = height * QuantTiles::kRowBytes;
        const std::int64_t end = end_row < tile + height ? end_row : tile + height;
        GroupAddress addresses[4];
        int count = 0;
        for (; row < end; ++row) {
            std::uint8_t* group = tile_data(tiles, tile) + first_group * group_bytes;
            for (std::int64_t g = first_group; g < end_group; ++g, group += group_bytes) {
                addresses[count++] = {reinterpret_cast<std::int8_t*>(group + (row - tile) * kGroup),
                                   reinterpret_cast<float*>(group + height * kGroup) + (row - tile)};
                if (count == 4) {
                    quantise_four(x, addresses, 4, height);
                    x += 4 * kGroup;
                    count = 0;
                }
            }
        }
        if (count > 0) quantise_four(x, addresses, count, height);
        x += count * kGroup;
    }
}

void rotate(float* __restrict head, const float* __restrict cos, const float* __restrict sin,
            std::int64_t half, bool interleaved) {
    const auto turn = [&](float& x, float& y, std::int64_t i) {
        const float a = x, b = y;
        x = a * cos[i] - b * sin[i];
        y = b * cos[i] + a * sin[i];
    };
    if (interleaved) {
        for (std::int64_t i = 0; i < half; ++i) turn(head[2 * i], head[2 * i + 1], i);
    } else {
        for (std::int64_t i = 0; i < half; ++i) turn(head[i], head[half + i], i);
    }
}

void activate(Activation activation, const float* gate, const float* up, std::int64_t n, float* out) {
    for (std::int64_t i = 0; i < n; i += 16) {
        const Vec x = load(gate + i);
        Vec slope = x;
        if (activation == Activation::kGeluTanh) {
            // x/2 (1 + tanh(u)) is x times the sigmoid of 2u, u = sqrt(2/pi) (x + 0.044715 x^3).
            slope = set1(1.59576912f) * fma(set1(0.044715f) * x, x * x, x);
        }
        store(out + i, x * sigmoid(slope) * load(up + i));
    }
}

void softcap(float* x, std::int64_t n, float cap) {
    const std::int64_t whole = n / 16 * 16;
    const auto squash = [&](Vec v) { return set1(cap) * tanh(v / set1(cap)); };
    for (std::int64_t i = 0; i < whole; i += 16) store(x + i, squash(load(x + i)));
    if (whole < n) store_first(x + whole, n - whole, squash(load_first(x + whole, n - whole)));
}

float highest(const float* x, std::int64_t n) {
    // As wide as a register: what is wider, compilers take apart number by number.
    constexpr int kBytes = __BIGGEST_ALIGNMENT__, kCount = kBytes / 4;
    using Floats = float __attribute__((vector_size(kBytes)));
    using Ints = std::int32_t __attribute__((vector_size(kBytes)));
    constexpr int kChains = 4;
    Floats high[kChains];
    Ints is_nan[kChains] = {};
    for (Floats& chain : high) chain = Floats{} - __builtin_inff();
    const auto add = [&](int chain, const float* from, std::int64_t count) {
        Floats numbers = high[chain];
        __builtin_memcpy(&numbers, from, static_cast<std::size_t>(count) * sizeof(float));
        high[chain] = numbers > high[chain] ? numbers : high[chain];
        is_nan[chain] |= numbers != numbers;
    };
    std::int64_t i = 0;
    for (; i + kCount * kChains <= n; i += kCount * kChains) {
        for (int chain = 0; chain < kChains; ++chain) add(chain, x + i + kCount * chain, kCount);
    }
    for (; i < n; i += kCount) add(0, x + i, n - i < kCount ? n - i : kCount);
    for (int chain = 1; chain < kChains; ++chain) {
        high[0] = high[chain] > high[0] ? high[chain] : high[0];
        is_nan[0] |= is_nan[chain];
    }
    float result = high[0][0];
    std::int32_t any_nan = 0;
    for (int lane = 0; lane < kCount; ++lane) {
        result = high[0][lane] > result ? high[0][lane] : result;
        any_nan |= is_nan[0][lane];
    }
    if (any_nan) return __builtin_nanf("");
    return result;
}

}  // namespace ratoon::RATOON_ISA
