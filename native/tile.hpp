// The two inner loops of products: a few rows times a few vectors of sixteen columns.
//
// Products with float weights, and scores (queries times keys) and mixtures (weights times values) of
// attention are all this. In a FloatTile every output is one chain of multiply-adds over `depth` in order, so
// tiles of different shapes give the same bits. A Int16Tile multiplies 16-bit integers, two of the depth at a
// time, and its sums are exact.
#pragma once

#include "simd.hpp"

namespace ratoon::RATOON_ISA {

// How many vectors of columns a tile of this many rows works on: as many chains as there are registers for.
constexpr int columns_for(int rows, int chains = kFloatChains) {
    return rows * 4 <= chains ? 4 : rows * 2 <= chains ? 2 : 1;
}

template <int kRows, int kColumns>
struct FloatTile {
    Vec sums[kRows][kColumns];

    INLINE void clear() {
        for (auto& row : sums) {
            for (Vec& vec : row) vec = zero();
        }
    }

    // sums[r][c] += sum over k of a[r * stride_a + k] * b[c][k * stride_b]
    template <class T>
    INLINE void multiply(const float* a, std::int64_t stride_a, const T* const (&b)[kColumns],
                         std::int64_t stride_b, std::int64_t depth) {
#pragma GCC unroll 4
        for (std::int64_t k = 0; k < depth; ++k) {
            Vec column[kColumns];
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c) column[c] = load(b[c] + k * stride_b);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const Vec factor = set1(a[r * stride_a + k]);
#pragma GCC unroll 4
                for (int c = 0; c < kColumns; ++c) sums[r][c] = fma(factor, column[c], sums[r][c]);
            }
        }
    }
};

template <int kRows, int kColumns>
struct Int16Tile {
    PairSums sums[kRows][kColumns];

    // f.operator()<row, column>(sum): constants, because an array indexed by a variable once stays in memory.
    template <class F>
    INLINE void each(F f) {
        unroll<kRows * kColumns>([&]<int kIndex>() {
            constexpr int r = kIndex / kColumns, c = kIndex % kColumns;
            f.template operator()<r, c>(sums[r][c]);
        });
    }

    INLINE void clear() {
        each([]<int r, int c>(PairSums& sum) { sum.clear(); });
    }

    // sums[r][c] += sum over pairs k of a[r * stride_a + 2k, + 1] times the pairs at b[c] + k * stride_b.
    // What lies at `ahead` in the same manner is prefetched meanwhile.
    INLINE void multiply(const std::int16_t* a, std::int64_t stride_a, const std::int16_t* const (&b)[kColumns],
                         const std::int16_t* const (&ahead)[kColumns], std::int64_t stride_b, std::int64_t pairs) {
        for (std::int64_t k = 0; k < pairs; ++k) {
            Bytes column[kColumns];
            unroll<kColumns>([&]<int c>() {
                __builtin_prefetch(ahead[c] + k * stride_b, 0, 2);
                column[c] = load_bytes(reinterpret_cast<const std::uint8_t*>(b[c] + k * stride_b));
            });
            unroll<kRows>([&]<int r>() {
                std::int32_t pair;
                __builtin_memcpy(&pair, a + r * stride_a + 2 * k, 4);
                unroll<kColumns>([&]<int c>() { sums[r][c].add(column[c], pair); });
            });
        }
    }
};

// A number of rows or columns that is known when compiling.
template <int kCount>
struct Count {
    static constexpr int value = kCount;
};

// f(Count<n>{}, first row) for tiles of kMost rows, and once for the rest.
template <int kMost = kFloatRows, class F>
INLINE void for_row_tiles(int rows, F f) {
    int row = 0;
    for (; row + kMost <= rows; row += kMost) f(Count<kMost>{}, row);
    unroll<kMost - 1>([&]<int kIndex>() {
        if (rows - row == kIndex + 1) f(Count<kIndex + 1>{}, row);
    });
}

// f(Count<n>{}, first column) for tiles of kColumns vectors, and for each of the rest.
template <int kColumns, class F>
INLINE void for_column_tiles(int begin, int end, F f) {
    int column = begin;
    for (; column + kColumns <= end; column += kColumns) f(Count<kColumns>{}, column);
    if constexpr (kColumns > 1) {
        for (; column < end; ++column) f(Count<1>{}, column);
    }
}

}  // namespace ratoon::RATOON_ISA
