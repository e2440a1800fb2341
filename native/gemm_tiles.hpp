// Matrix products on a matrix unit: sixteen rows times a panel of sixteen columns, group by group.
//
// A group's integer sums leave the unit before they are scaled, so the sums of floats are those of every other
// way to compute the product: the same operations in the same order.
#pragma once

#include "panel_reader.hpp"

#ifdef RATOON_MATRIX_TILES

namespace ratoon::RATOON_ISA {

// From so many rows on, a tile is worth the expansion of the weights.
constexpr std::int64_t kFewestTileRows = 8;

// Which register holds what.
constexpr int kSumTile = 0, kInputTile = 1, kWeightTile = 2;

// One group, or one half of it, of up to sixteen rows: sums(r) is where row r's sums are.
template <class Reader, int kPart, class Sums>
INLINE void add_tile_part(MatrixTiles& unit, const std::uint8_t* header, const std::uint8_t* group,
                          const std::uint8_t* weights, const std::uint8_t* rows, std::int64_t height,
                          std::int32_t (&dots)[16][kPanel], Sums for_rows) {
    constexpr int kInputs = kGroup / Reader::kParts;
    const auto* scale = reinterpret_cast<const float*>(rows + height * kGroup);
    const float* offset_sum = scale + height * (Reader::kParts == 1 ? 1 : 2 + kPart);
    unit.template zero<kSumTile>();
    unit.template load<kInputTile>(rows + kPart * kInputs, kGroup);
    unit.template load<kWeightTile>(weights + kPart * 16 * kInputs, 64);
    unit.template multiply<kSumTile, kInputTile, kWeightTile, true, Reader::kBits == 8>();
    unit.template store<kSumTile>(dots, sizeof dots[0]);
    const Scales w = Reader::template scales<kPart>(header, group);
    for_rows([&](std::int64_t r, Vec sum) {
        sum = fma(load(dots[r]), w.scale * set1(scale[r]), sum);
        if constexpr (Reader::kOffset) sum = fma(w.offset, set1(offset_sum[r]), sum);
        return sum;
    });
}

// Groups of one tile of rows. The sums of a whole tile stay in registers, those of a lower one in memory.
template <class Reader, bool kWhole>
INLINE void add_tile_groups(MatrixTiles& unit, const std::uint8_t* panel, const std::uint8_t* expanded,
                            const std::uint8_t* rows, std::int64_t height, std::int64_t count, float* waiting) {
    alignas(64) std::int32_t dots[2 * Reader::kParts][16][kPanel];
    Vec sums[16];
    if constexpr (kWhole) {
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) sums[r] = load(waiting + r * kPanel);
    }
    const auto for_rows = [&](auto add) {
        if constexpr (kWhole) {
#pragma GCC unroll 16
            for (int r = 0; r < 16; ++r) sums[r] = add(r, sums[r]);
        } else {
            for (std::int64_t r = 0; r < height; ++r)
                store(waiting + r * kPanel, add(r, load(waiting + r * kPanel)));
        }
    };
    int parity = 0;  // of the memory between unit and sums: the next group need not wait for this one's scaling
    for_groups<Reader>(panel, count, [&](const std::uint8_t* header, const std::uint8_t* group) {
        const std::uint8_t* weights = Reader::kBits == 8 ? group + scale_bytes(Reader::kLayout) : expanded;
        const auto add = [&]<int kPart>() {
            add_tile_part<Reader, kPart>(unit, header, group, weights, rows, height,
                                         dots[parity * Reader::kParts + kPart], for_rows);
        };
        add.template operator()<0>();
        if constexpr (Reader::kParts == 2) add.template operator()<1>();
        parity ^= 1;
        expanded += kExpandedBytes;
        rows += height * QuantTiles::kRowBytes;
    });
    if constexpr (kWhole) {
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) store(waiting + r * kPanel, sums[r]);
    }
}

// Rows [first_row, end_row), at most kMostRows, times a panel: tiles of `height` rows.
template <class Reader>
void multiply_panel(MatrixTiles& unit, const std::uint8_t* panel, const QuantTiles& tiles, std::int64_t height,
                    std::int64_t first_row, std::int64_t end_row, float* out, std::int64_t stride, int columns,
                    bool add) {
    alignas(64) std::uint8_t expanded[Reader::kBits == 8 ? 64 : kChunkGroups * kExpandedBytes];
    alignas(64) float waiting[kMostRows * kPanel] = {};
    for (std::int64_t first = 0; first < tiles.groups; first += kChunkGroups) {
        const std::int64_t count = tiles.groups - first < kChunkGroups ? tiles.groups - first : kChunkGroups;
        if constexpr (Reader::kBits != 8) expand_groups<Reader>(panel, count, expanded);
        for (std::int64_t row = first_row; row < end_row; row += height) {
            const std::uint8_t* rows = tile_data(tiles, row) + first * height * QuantTiles::kRowBytes;
            float* sums = waiting + (row - first_row) * kPanel;
            if (height == 16) add_tile_groups<Reader, true>(unit, panel, expanded, rows, 16, count, sums);
            else add_tile_groups<Reader, false>(unit, panel, expanded, rows, height, count, sums);
        }
        panel += panel_bytes(Reader::kLayout, count * kGroup);
    }
    for (std::int64_t row = first_row; row < end_row; ++row, out += stride)
        put(out, load(waiting + (row - first_row) * kPanel), columns, add);
}

// Rows [first_row, end_row) times panels; the rows are whole tiles, or one lower tile.
template <class Reader>
void multiply_tiles(const Panels& w, std::int64_t first_panel, std::int64_t end_panel, const QuantTiles& tiles,
                    std::int64_t first_row, std::int64_t end_row, float* out, std::int64_t stride, bool add) {
    constexpr int kInputs = kGroup / Reader::kParts;
    const auto height = static_cast<int>(tile_rows(tiles, first_row));
    MatrixTiles unit({{height, 64}, {height, kInputs}, {kInputs / 4, 64}, {}, {}, {}, {}, {}});
    for (std::int64_t row = first_row; row < end_row; row += kMostRows) {
        const std::int64_t end = end_row - row < kMostRows ? end_row : row + kMostRows;
        float* to = out + (row - first_row) * stride;
        for (std::int64_t p = first_panel; p < end_panel; ++p, to += kPanel)
            multiply_panel<Reader>(unit, w.data + p * w.panel_bytes, tiles, height, row, end, to, stride,
                                   columns_of(w, p), add);
    }
}

}  // namespace ratoon::RATOON_ISA

#endif
