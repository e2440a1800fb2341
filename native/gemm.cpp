// Matrix products: rows of activations times packed panels of weights.
//
// Quantised weights multiply int8 activations; each group of 32 inputs is an exact integer sum, and the groups are added in
// order, each by the same two multiply-adds, whatever the tile's height. Float weights multiply float rows (tile.hpp).
#include "tile.hpp"

namespace ratoon::RATOON_ISA {
namespace {

// ---- reading a group of a panel

struct Scales {
    Vec scale, offset;  // a weight is scale * q + offset
};

template <Format kFormat>
struct Reader {
    static constexpr PanelLayout kLayout = layout_of(kFormat);
    static constexpr int kBits = kLayout.bits;
    // Parts of a group with a scale of their own.
    static constexpr int kParts = kLayout.scaling == Scaling::kNestedCenter ? 2 : 1;
    static constexpr bool kOffset = kLayout.scaling != Scaling::kScale || kLayout.center != 0;

    template <int kPart>
    INLINE static Scales scales(const std::uint8_t* header, const std::uint8_t* group) {
        const auto* d = reinterpret_cast<const Half*>(kLayout.scaling >= Scaling::kNested ? header : group);
        if constexpr (kLayout.scaling == Scaling::kScale) {
            const Vec scale = load(d);
            return {scale, scale * set1(-kLayout.center)};
        } else if constexpr (kLayout.scaling == Scaling::kScaleOffset) {
            return {load(d), load(d + kPanel)};
        } else if constexpr (kLayout.scaling == Scaling::kNested) {
            return {load(d) * load(group), zero() - load(d + kPanel) * load(group + kPanel)};
        } else {
            const Vec scale = load(d) * load(reinterpret_cast<const std::int8_t*>(group) + kPart * kPanel);
            return {scale, scale * set1(-kLayout.center)};
        }
    }

    // Inputs 4 * kStep to 4 * kStep + 3 of all columns.
    template <int kStep>
    INLINE static Bytes weights(const std::uint8_t* group) {
        const std::uint8_t* quants = group + scale_bytes(kLayout);
        if constexpr (kBits == 8) return load_bytes(quants + 64 * kStep);
        const Bytes nibbles = load_bytes(quants + 64 * (kStep / 2));
        const Bytes low = keep_bits(kStep % 2 ? shift<-4>(nibbles) : nibbles, 0x0F);
        if constexpr (kBits == 5) {
            return join(low, keep_bits(shift<4 - kStep>(load_bytes(quants + 256)), 0x10));
        } else if constexpr (kBits == 6) {
            return join(low, keep_bits(shift<4 - 2 * (kStep % 4)>(load_bytes(quants + 256 + 64 * (kStep / 4))), 0x30));
        } else {
            return low;
        }
    }
};

// ---- integer tiles

// One group of kRows rows times one panel; `rows` is a group of QuantTiles.
template <class Reader, int kRows, int kPart>
INLINE void add_part(const std::uint8_t* header, const std::uint8_t* group, const std::uint8_t* rows, Vec (&sums)[kRows]) {
    constexpr int kSteps = 8 / Reader::kParts;
    const auto* q = reinterpret_cast<const std::int8_t*>(rows);
    const auto* scale = reinterpret_cast<const float*>(rows + kRows * kGroup);
    const float* offset_sum = scale + kRows * (Reader::kParts == 1 ? 1 : 2 + kPart);
    const auto* shift = reinterpret_cast<const std::int32_t*>(scale + 4 * kRows);

    Dot<Reader::kBits> dots[kRows];
    const auto step = [&]<int kStep>() {
        const Bytes w = Reader::template weights<kPart * kSteps + kStep>(group);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            dots[r].template add<kStep, kSteps>(w, q + r * kGroup + 4 * (kPart * kSteps + kStep), shift[r]);
        }
    };
    step.template operator()<0>();
    step.template operator()<1>();
    step.template operator()<2>();
    step.template operator()<3>();
    if constexpr (kSteps == 8) {
        step.template operator()<4>();
        step.template operator()<5>();
        step.template operator()<6>();
        step.template operator()<7>();
    }

    const Scales w = Reader::template scales<kPart>(header, group);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
        sums[r] = fma(dots[r].value(), w.scale * set1(scale[r]), sums[r]);
        if constexpr (Reader::kOffset) sums[r] = fma(w.offset, set1(offset_sum[r]), sums[r]);
    }
}

// With one row the weights come from memory at full speed, and the processor's own guesses stop at the ends of pages.
constexpr int kPrefetchBytes = 8192;
template <int kBytes>
INLINE void prefetch(const std::uint8_t* from) {
    for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(from + i);
}

template <class Reader, int kRows>
void multiply_tile(const std::uint8_t* panel, const std::uint8_t* rows, std::int64_t depth, float* out, std::int64_t stride, int columns, bool add) {
    Vec sums[kRows];
    for (Vec& sum : sums) sum = zero();
    constexpr int kGroups = groups_per_block(Reader::kLayout);
    for (std::int64_t block = depth / kGroup / kGroups; block > 0; --block) {
        const std::uint8_t* header = panel;
        panel += header_bytes(Reader::kLayout);
        for (int g = 0; g < kGroups; ++g) {
            if constexpr (kRows == 1) prefetch<group_bytes(Reader::kLayout)>(panel + kPrefetchBytes);
            add_part<Reader, kRows, 0>(header, panel, rows, sums);
            if constexpr (Reader::kParts == 2) add_part<Reader, kRows, 1>(header, panel, rows, sums);
            panel += group_bytes(Reader::kLayout);
            rows += kRows * QuantTiles::kRowBytes;
        }
    }
    for (int r = 0; r < kRows; ++r) {
        float* to = out + r * stride;
        if (columns == kPanel) store(to, add ? load(to) + sums[r] : sums[r]);
        else store_first(to, columns, add ? load_first(to, columns) + sums[r] : sums[r]);
    }
}

template <class Reader>
void multiply_tile(std::int64_t height, const std::uint8_t* panel, const std::uint8_t* rows, std::int64_t depth, float* out,
                   std::int64_t stride, int columns, bool add) {
    const auto run = [&]<int kRows>() { multiply_tile<Reader, kRows>(panel, rows, depth, out, stride, columns, add); };
    if (height == kTileHeight) return run.template operator()<kTileHeight>();
    switch (height) {
        case 1: return run.template operator()<1>();
        case 2: return run.template operator()<2>();
        case 3: return run.template operator()<3>();
    }
    if constexpr (kTileHeight > 4) {
        switch (height) {
            case 4: return run.template operator()<4>();
            case 5: return run.template operator()<5>();
            case 6: return run.template operator()<6>();
            case 7: return run.template operator()<7>();
        }
    }
}

template <Format kFormat>
void multiply_quantised(const Panels& w, std::int64_t first_panel, std::int64_t end_panel, const Rows& in, std::int64_t first_row,
                        std::int64_t end_row, float* out, std::int64_t stride, bool add) {
    for (std::int64_t p = first_panel; p < end_panel; ++p) {
        const std::uint8_t* panel = w.data + p * w.panel_bytes;
        for (std::int64_t row = first_row, height; row < end_row; row += height) {
            height = tile_rows(in.tiles, row);
            multiply_tile<Reader<kFormat>>(height, panel, tile_data(in.tiles, row), w.depth, out + (row - first_row) * stride, stride,
                                           columns_of(w, p), add);
        }
        out += kPanel;
    }
}

// ---- float weights

template <class T>
void multiply_floats(const Panels& w, std::int64_t first_panel, std::int64_t end_panel, const Rows& in, std::int64_t first_row,
                     std::int64_t end_row, float* out, std::int64_t stride, bool add) {
    const int rows = static_cast<int>(end_row - first_row), panels = static_cast<int>(end_panel - first_panel);
    const float* values = in.values + first_row * in.depth;
    for_row_tiles(rows, [&]<class R>(R, int row) {
        for_column_tiles<columns_for(R::value)>(0, panels, [&]<class C>(C, int panel) {
            const T* columns[C::value];
            for (int c = 0; c < C::value; ++c) {
                columns[c] = reinterpret_cast<const T*>(w.data + (first_panel + panel + c) * w.panel_bytes);
            }
            FloatTile<R::value, C::value> tile;
            tile.clear();
            tile.multiply(values + row * in.depth, in.depth, columns, kPanel, in.depth);
            for (int r = 0; r < R::value; ++r) {
                for (int c = 0; c < C::value; ++c) {
                    float* to = out + (row + r) * stride + (panel + c) * kPanel;
                    const int n = columns_of(w, first_panel + panel + c);
                    const Vec sum = tile.sums[r][c];
                    store_first(to, n, add ? load_first(to, n) + sum : sum);
                }
            }
        });
    });
}

}  // namespace

void product(const Panels& w, std::int64_t first_panel, std::int64_t end_panel, const Rows& in, std::int64_t first_row,
             std::int64_t end_row, float* out, std::int64_t stride, bool add) {
    const auto run = [&](auto multiply) { multiply(w, first_panel, end_panel, in, first_row, end_row, out, stride, add); };
    switch (w.format) {
        case Format::kF32: return run(multiply_floats<float>);
        case Format::kF16: return run(multiply_floats<Half>);
        case Format::kBF16: return run(multiply_floats<BFloat>);
        case Format::kQ8_0: return run(multiply_quantised<Format::kQ8_0>);
        case Format::kQ4_0: return run(multiply_quantised<Format::kQ4_0>);
        case Format::kQ4_1: return run(multiply_quantised<Format::kQ4_1>);
        case Format::kQ5_0: return run(multiply_quantised<Format::kQ5_0>);
        case Format::kQ5_1: return run(multiply_quantised<Format::kQ5_1>);
        case Format::kQ4_K: return run(multiply_quantised<Format::kQ4_K>);
        case Format::kQ5_K: return run(multiply_quantised<Format::kQ5_K>);
        case Format::kQ6_K: return run(multiply_quantised<Format::kQ6_K>);
    }
}

}  // namespace ratoon::RATOON_ISA
