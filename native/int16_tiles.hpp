// Products of 16-bit integers on a matrix unit, which multiplies bytes.
//
// An integer is 256 * high + low, its high byte signed and its low byte unsigned. In a product of two, low * low
// counts once, high * low and low * high 256 times, high * high 65536 times. The sum of each kind may wrap around,
// as may the sum that they add up to: modulo 2^32 nothing is lost. K and V lie in pairs, four bytes a column, as
// the rows of a tile do, so they are multiplied as they lie, and the other factor has zeros beside the bytes that
// a kind of product takes.
#pragma once

#include "int16_vectors.hpp"

#ifdef RATOON_MATRIX_TILES

namespace ratoon::RATOON_ISA {

class Int16Tiles {
public:
    static constexpr int kRows = 16;
    static constexpr int kPairs = 16;   // of a tile
    static constexpr int kKinds = 4;    // low * low, high * low, low * high, high * high
    using Sums = std::int32_t[3][kRows][kLanes];  // that count once, 256 times and 65536 times

    // Bytes of a row of `pairs` pairs as each kind of product takes them, `kind_bytes` apart.
    INLINE static void split(const Int16* from, std::int64_t pairs, std::uint8_t* to, std::int64_t kind_bytes) {
        for (std::int64_t i = 0; i < 2 * pairs; i += 2 * kLanes) {
            const Bytes x = load_bytes(reinterpret_cast<const std::uint8_t*>(from + i));
            std::uint8_t* at = to + 2 * i;
            store_bytes(at, low_bytes(x));
            store_bytes(at + kind_bytes, shift<-8>(x));
            store_bytes(at + 2 * kind_bytes, shift<8>(x));
            store_bytes(at + 3 * kind_bytes, high_bytes(x));
        }
    }

    // Sixteen rows, split, times sixteen columns; `count` tiles deep. Rows of b are `stride` bytes apart.
    INLINE void multiply(const std::uint8_t* rows, std::int64_t row_bytes, std::int64_t kind_bytes, const Int16* b,
                         std::int64_t stride, std::int64_t count, Sums& sums) {
        unit_.zero<kOnce>();
        unit_.zero<k256>();
        unit_.zero<k65536>();
        for (std::int64_t k = 0; k < count; ++k, rows += 64) {
            unit_.load<kColumns>(reinterpret_cast<const std::uint8_t*>(b) + k * kPairs * stride, stride);
            add<kOnce, false, false>(rows, row_bytes);
            add<k256, true, false>(rows + kind_bytes, row_bytes);
            add<k256, false, true>(rows + 2 * kind_bytes, row_bytes);
            add<k65536, true, true>(rows + 3 * kind_bytes, row_bytes);
        }
        unit_.store<kOnce>(sums[0], 64);
        unit_.store<k256>(sums[1], 64);
        unit_.store<k65536>(sums[2], 64);
    }

    INLINE static Vec value(const Sums& sums, int row) {
        return to_float(sums[0][row], sums[1][row], sums[2][row]);
    }

private:
    static constexpr int kOnce = 0, k256 = 1, k65536 = 2, kFactors = 3, kColumns = 4;

    template <int kSums, bool kSignedRows, bool kSignedColumns>
    INLINE void add(const std::uint8_t* rows, std::int64_t row_bytes) {
        unit_.load<kFactors>(rows, row_bytes);
        unit_.multiply<kSums, kFactors, kColumns, kSignedRows, kSignedColumns>();
    }

    MatrixTiles unit_{{{16, 64}, {16, 64}, {16, 64}, {16, 64}, {16, 64}, {}, {}, {}}};
};

}  // namespace ratoon::RATOON_ISA

#endif
