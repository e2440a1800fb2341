// The one float kernel: a few rows times a few vectors of sixteen columns.
//
// Products with float weights, scores (queries times keys) and mixtures (weights times values) are all this.
// Every output is one chain of multiply-adds over `depth` in order, so tiles of different shapes give the
// same bits.
#pragma once

#include "simd.hpp"

namespace ratoon::RATOON_ISA {

// How many vectors of columns a tile of this many rows works on: as many chains as there are registers for.
constexpr int columns_for(int rows) {
    return rows * 4 <= kFloatChains ? 4 : rows * 2 <= kFloatChains ? 2 : 1;
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

// A number of rows or columns that is known when compiling.
template <int kCount>
struct Count {
    static constexpr int value = kCount;
};

// f(Count<n>{}, first row) for tiles of kFloatRows rows, and once for the rest.
template <class F>
INLINE void for_row_tiles(int rows, F f) {
    int row = 0;
    for (; row + kFloatRows <= rows; row += kFloatRows) f(Count<kFloatRows>{}, row);
    unroll<kFloatRows - 1>([&]<int kIndex>() {
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
