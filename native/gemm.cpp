// Matrix products: rows of activations times packed panels of weights.
//
// Quantised weights multiply int8 activations; each group of 32 inputs is an exact integer sum, and the
// groups are added in order, each by the same two multiply-adds, whatever the tile's height. Float weights
// multiply float rows (tile.hpp).
#include "gemm_tiles.hpp"
#include "tile.hpp"

namespace ratoon::RATOON_ISA {
namespace {

// ---- integer tiles

// One group, or one half of it, of a tile: kRows rows times kPanels panels, the second `distance` bytes
// behind the first; `rows` is a group of QuantTiles.
template <class Reader, int kPart, bool kExpanded, int kRows, int kPanels>
INLINE void add_part(const std::uint8_t* header, const std::uint8_t* group, std::int64_t distance,
                     const std::uint8_t* expanded, const std::uint8_t* rows, Vec (&sums)[kRows][kPanels]) {
    constexpr int kSteps = 8 / Reader::kParts;
    const auto* q = reinterpret_cast<const std::int8_t*>(rows);
    const auto* scale = reinterpret_cast<const float*>(rows + kRows * kGroup);
    const float* offset_sum = scale + kRows * (Reader::kParts == 1 ? 1 : 2 + kPart);
    const auto* shift = reinterpret_cast<const std::int32_t*>(scale + 4 * kRows);

    Dot<Reader::kBits> dots[kRows][kPanels];
    unroll<kSteps>([&]<int kIndex>() {
        constexpr int kStep = kPart * kSteps + kIndex;
        Bytes w[kPanels];
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) {
            w[p] = kExpanded ? load_bytes(expanded + 64 * kStep)
                             : Reader::template weights<kStep>(group + p * distance);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
            for (int p = 0; p < kPanels; ++p)
                dots[r][p].template add<kIndex, kSteps>(w[p], q + r * kGroup + 4 * kStep, shift[r]);
        }
    });

    Scales w[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p)
        w[p] = Reader::template scales<kPart>(header + p * distance, group + p * distance);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) {
            sums[r][p] = fma(dots[r][p].value(), w[p].scale * set1(scale[r]), sums[r][p]);
            if constexpr (Reader::kOffset) sums[r][p] = fma(w[p].offset, set1(offset_sum[r]), sums[r][p]);
        }
    }
}

// A number of groups of a tile, straight from the panels or from their expanded integers.
template <class Reader, bool kExpanded, int kRows, int kPanels>
INLINE void add_groups(const std::uint8_t* panel, std::int64_t distance, const std::uint8_t* expanded,
                       const std::uint8_t* rows, std::int64_t count, Vec (&sums)[kRows][kPanels]) {
    // A single panel is walked as it lies; panels side by side are followed by as many more.
    const std::int64_t ahead = kPanels == 1 ? kPrefetchBytes : kPanels * distance;
    for_groups<Reader>(panel, count, [&](const std::uint8_t* header, const std::uint8_t* group) {
        if constexpr (!kExpanded) {
#pragma GCC unroll 2
            for (int p = 0; p < kPanels; ++p)
                prefetch<group_bytes(Reader::kLayout)>(group + p * distance + ahead);
        }
        add_part<Reader, 0, kExpanded>(header, group, distance, expanded, rows, sums);
        if constexpr (Reader::kParts == 2)
            add_part<Reader, 1, kExpanded>(header, group, distance, expanded, rows, sums);
        expanded += kExpandedBytes;
        rows += kRows * QuantTiles::kRowBytes;
    });
}

// A tile of kRows rows times panels of which the last may be partly empty, straight from the panels.
template <class Reader, int kRows, int kPanels>
[[gnu::noinline]] void multiply_tile(const std::uint8_t* panel, std::int64_t distance,
                                     const std::uint8_t* rows, std::int64_t groups, float* out,
                                     std::int64_t stride, int last_columns, bool add) {
    Vec sums[kRows][kPanels];
    const auto for_sums = [](auto f) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
            for (int p = 0; p < kPanels; ++p) f(r, p);
        }
    };
    for_sums([&](int r, int p) { sums[r][p] = zero(); });
    add_groups<Reader, false>(panel, distance, nullptr, rows, groups, sums);
    for_sums([&](int r, int p) {
        put(out + r * stride + p * kPanel, sums[r][p], p == kPanels - 1 ? last_columns : kPanel, add);
    });
}

// Many rows times a panel, by way of its expanded integers.
template <class Reader>
void multiply_expanded(const std::uint8_t* panel, const QuantTiles& tiles, std::int64_t first_row,
                       std::int64_t num_tiles, float* out, std::int64_t stride, int columns, bool add) {
    alignas(64) std::uint8_t expanded[kChunkGroups * kExpandedBytes];
    alignas(64) float waiting[kMostRows * kPanel];
    for (std::int64_t first = 0; first < tiles.groups; first += kChunkGroups) {
        const std::int64_t count = tiles.groups - first < kChunkGroups ? tiles.groups - first : kChunkGroups;
        expand_groups<Reader>(panel, count, expanded);
        for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
            float* sum = waiting + tile * kTileHeight * kPanel;
            Vec sums[kTileHeight][1];
            for (int r = 0; r < kTileHeight; ++r) sums[r][0] = first == 0 ? zero() : load(sum + r * kPanel);
            const std::uint8_t* rows = tile_data(tiles, first_row + tile * kTileHeight) +
                                       first * kTileHeight * QuantTiles::kRowBytes;
            add_groups<Reader, true>(panel, 0, expanded, rows, count, sums);
            for (int r = 0; r < kTileHeight; ++r) store(sum + r * kPanel, sums[r][0]);
        }
        panel += panel_bytes(Reader::kLayout, count * kGroup);
    }
    for (std::int64_t row = 0; row < num_tiles * kTileHeight; ++row)
        put(out + row * stride, load(waiting + row * kPanel), columns, add);
}

// From so many rows on, arithmetic takes longer than memory, and panels are worth being read side by side or
// being expanded.
constexpr std::int64_t kManyRows = 32;

// The highest tile whose sums are computed in vectors: higher ones are the matrix unit's, where there is one.
#ifdef RATOON_MATRIX_TILES
constexpr int kVectorHeight = kFewestTileRows - 1;
#else
constexpr int kVectorHeight = kTileHeight;
#endif

template <Format kFormat>
void multiply_quantised(const Panels& w, std::int64_t first_panel, std::int64_t end_panel, const Rows& in,
                        std::int64_t first_row, std::int64_t end_row, float* out, std::int64_t stride,
                        bool add) {
    using Source = Reader<kFormat>;
    const QuantTiles& tiles = in.tiles;
#ifdef RATOON_MATRIX_TILES
    for (std::int64_t end; first_row < end_row; out += (end - first_row) * stride, first_row = end) {
        const std::int64_t height = tile_rows(tiles, first_row);
        end = height < kTileHeight ? end_row : end_row - (end_row - first_row) % kTileHeight;
        if (height < kFewestTileRows) break;
        multiply_tiles<Source>(w, first_panel, end_panel, tiles, first_row, end, out, stride, add);
    }
#endif
    const std::int64_t whole_rows = (end_row - first_row) / kTileHeight * kTileHeight;
    const bool many = end_row - first_row >= kManyRows;
    for (std::int64_t p = first_panel, panels; p < end_panel; p += panels) {
        panels = many && p + kTilePanels <= end_panel ? kTilePanels : 1;
        std::int64_t row = first_row;
        const auto to = [&](std::int64_t panel) {
            return out + (row - first_row) * stride + (panel - first_panel) * kPanel;
        };
        const auto tile = [&]<int kRows, int kPanels>(std::int64_t panel) {
            multiply_tile<Source, kRows, kPanels>(
                w.data + panel * w.panel_bytes, w.panel_bytes, tile_data(tiles, row), tiles.groups,
                to(panel), stride, columns_of(w, panel + kPanels - 1), add);
        };
        if constexpr (kTilePanels > 1) {
            if (panels > 1) {
                for (; row < first_row + whole_rows; row += kTileHeight)
                    tile.template operator()<kTileHeight, kTilePanels>(p);
            }
        } else if constexpr (kExpand) {
            while (many && row < first_row + whole_rows) {
                const std::int64_t left = first_row + whole_rows - row,
                                   rows = left < kMostRows ? left : kMostRows;
                multiply_expanded<Source>(w.data + p * w.panel_bytes, tiles, row, rows / kTileHeight, to(p),
                                          stride, columns_of(w, p), add);
                row += rows;
            }
        }
        for (std::int64_t height; row < end_row; row += height) {
            height = tile_rows(tiles, row);
            unroll<kVectorHeight>([&]<int kIndex>() {
                if (height != kIndex + 1) return;
                for (std::int64_t panel = p; panel < p + panels; ++panel)
                    tile.template operator()<kIndex + 1, 1>(panel);
            });
        }
    }
}

// ---- float weights

template <class T>
void multiply_floats(const Panels& w, std::int64_t first_panel, std::int64_t end_panel, const Rows& in,
                     std::int64_t first_row, std::int64_t end_row, float* out, std::int64_t stride,
                     bool add) {
    const int rows = static_cast<int>(end_row - first_row),
              panels = static_cast<int>(end_panel - first_panel);
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
                    const int count = columns_of(w, first_panel + panel + c);
                    put(out + (row + r) * stride + (panel + c) * kPanel, tile.sums[r][c], count, add);
                }
            }
        });
    });
}

}  // namespace

void product(const Panels& w, std::int64_t first_panel, std::int64_t end_panel, const Rows& in,
             std::int64_t first_row, std::int64_t end_row, float* out, std::int64_t stride, bool add) {
    const auto run = [&](auto multiply) {
        multiply(w, first_panel, end_panel, in, first_row, end_row, out, stride, add);
    };
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
