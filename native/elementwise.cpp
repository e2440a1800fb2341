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

void quantise(const float* x, std::int64_t row, std::int64_t first_group, std::int64_t end_group,
              const QuantTiles& tiles) {
    const std::int64_t in_tile = row % tiles.height, first_row = row - in_tile,
                       height = tile_rows(tiles, first_row);
    std::uint8_t* group = tile_data(tiles, first_row) + first_group * height * QuantTiles::kRowBytes;
    for (std::int64_t g = first_group; g < end_group;
         ++g, x += kGroup, group += height * QuantTiles::kRowBytes) {
        const Vec a = load(x), b = load(x + 16);
        const float peak = largest_size(a, b);
        const bool normal =
            !(peak < 1e-30f);  // below, 127 / peak would overflow; not a number stays what it is
        const Vec inverse = set1(normal ? 127.0f / peak : 0.0f);
        const float scale = normal ? peak / 127.0f : 0.0f;

        auto* q = reinterpret_cast<std::int8_t*>(group + in_tile * kGroup);
        const std::int32_t low = store_rounded(q, a * inverse), high = store_rounded(q + 16, b * inverse);
        auto* scales = reinterpret_cast<float*>(group + height * kGroup) + in_tile;
        scales[0] = scale;
        scales[height] = scale * static_cast<float>(low + high);
        scales[2 * height] = scale * static_cast<float>(low);
        scales[3 * height] = scale * static_cast<float>(high);
        const std::int32_t shift = -128 * (low + high);
        __builtin_memcpy(scales + 4 * height, &shift, sizeof shift);
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

}  // namespace ratoon::RATOON_ISA
