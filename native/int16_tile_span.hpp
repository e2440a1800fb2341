// The arithmetic of int16_span.hpp on a matrix unit, sixteen rows at a time: the same sums.
#pragma once

#include "int16_span.hpp"
#include "int16_tiles.hpp"

#ifdef RATOON_MATRIX_TILES

#include <optional>

namespace ratoon::RATOON_ISA {

class Int16TileSpan : public Int16Span {
public:
    static constexpr int kRows = Int16Tiles::kRows;

    template <class Take>
    INLINE Int16TileSpan(const AttentionCall& call, std::int64_t key_stride, std::int64_t value_stride,
                         std::int64_t rows, Take take)
        : Int16Span(call, key_stride, value_stride, rows, take),
          query_bytes_(4 * pairs_),
          query_kind_(rows * query_bytes_),
          has_whole_tiles_(pairs_ % Int16Tiles::kPairs == 0) {
        take(split_queries_, has_whole_tiles_ ? Int16Tiles::kKinds * query_kind_ : 0);
        take(split_weights_, Int16Tiles::kKinds * kWeightKind);
        take(values_, columns_ * kSpan * kLanes);
    }

    // Before the first span: the queries are there. With few rows the vectors are as fast.
    INLINE void set_rows(int rows) {
        if (rows < kRows || !has_whole_tiles_) return;
        tiles_.emplace();
        for (int row = 0; row < rows; ++row)
            Int16Tiles::split(queries_ + row * query_stride_, pairs_, split_queries_ + row * query_bytes_, query_kind_);
    }

    // A span's strips are set: its values, in the order of tiles.
    INLINE void set_span(Range strips) {
        if (!tiles_) return;
        for (int strip = strips.begin; strip < strips.end; ++strip) {
            for (int pair = 0; pair < kLanes / 2; ++pair) {
                const Int16* from = strips_[strip].values + pair * value_stride_;
                for (int column = 0; column < columns_; ++column)
                    __builtin_memcpy(values_ + (column * kSpan + strip * kLanes + 2 * pair) * kLanes,
                                     from + column * 2 * kLanes, 2 * kLanes * sizeof(Int16));
            }
        }
    }

    template <class F>
    INLINE void for_row_tiles(int rows, F f) const {
        int row = 0;
        if (tiles_)
            for (; row + kRows <= rows; row += kRows) f(Count<kRows>{}, row);
        Int16Span::for_row_tiles(rows - row, [&](auto count, int more) { f(count, row + more); });
    }

    template <int kCount>
    INLINE void score(int row, Range strips, SpanRows<kCount>& rows) {
        if constexpr (kCount < kRows) {
            Int16Span::score(row, strips, rows);
        } else {
            copy_scales(row, rows);
            for (int strip = strips.begin; strip < strips.end; ++strip) {
                const Int16* ahead = near_or_ahead(strip).keys;
                for (std::int64_t pair = 0; pair < pairs_; ++pair) __builtin_prefetch(ahead + pair * key_stride_, 0, 2);
                Int16Tiles::Sums& sums = sums_[strip % 2];
                tiles_->multiply(split_queries_ + row * query_bytes_, query_bytes_, query_kind_, strips_[strip].keys,
                                 key_stride_ * static_cast<std::int64_t>(sizeof(Int16)), pairs_ / Int16Tiles::kPairs,
                                 sums);
                const Vec scales = load(strips_[strip].key_scales);
                for (int r = 0; r < kRows; ++r)
                    store(rows.values[r] + strip * kLanes, Int16Tiles::value(sums, r) * scales);
            }
        }
    }

    template <int kCount>
    INLINE void mix(const SpanRows<kCount>& rows, Range strips, float* mixture) {
        if constexpr (kCount < kRows) {
            Int16Span::mix(rows, strips, mixture);
        } else {
            const Range tiles = {strips.begin / 2, (strips.end + 1) / 2};  // two strips deep
            for (int r = 0; r < kRows; ++r) {
                Int16* weights = parts_ + r * kSpan;
                const auto clear = [&](int strip) { __builtin_memset(weights + strip * kLanes, 0, kLanes * sizeof(Int16)); };
                if (strips.begin % 2) clear(strips.begin - 1);
                if (strips.end % 2) clear(strips.end);
                Int16Tiles::split(weights, kSpan / 2, split_weights_ + r * kWeightBytes, kWeightKind);
            }
            prefetch_values(strips);
            for (int column = 0; column < columns_; ++column) {
                Int16Tiles::Sums& sums = sums_[column % 2];
                tiles_->multiply(split_weights_ + tiles.begin * 64, kWeightBytes, kWeightKind,
                                 values_ + (column * kSpan + tiles.begin * 2 * kLanes) * kLanes, 64,
                                 tiles.end - tiles.begin, sums);
                for (int r = 0; r < kRows; ++r)
                    store(mixture + (r * columns_ + column) * kLanes, Int16Tiles::value(sums, r) * set1(units_[r]));
            }
        }
    }

private:
    static constexpr std::int64_t kWeightBytes = 2 * kSpan, kWeightKind = kRows * kWeightBytes;

    INLINE void prefetch_values(Range strips) const {
        for (int strip = strips.begin; strip < strips.end; ++strip) {
            const Int16* ahead = near_or_ahead(strip).values;
            for (int pair = 0; pair < kLanes / 2; ++pair) {
                for (int column = 0; column < columns_; ++column)
                    __builtin_prefetch(ahead + pair * value_stride_ + column * 2 * kLanes, 0, 2);
            }
        }
    }

    std::int64_t query_bytes_, query_kind_;  // of a row, and of all rows, for one kind of product
    bool has_whole_tiles_;
    std::optional<Int16Tiles> tiles_;  // while a unit of enough rows is on its way
    std::uint8_t* split_queries_;      // [kind][rows][query_bytes_]
    std::uint8_t* split_weights_;      // [kind][kRows][kWeightBytes]
    Int16* values_;                    // [columns][kSpan / 2][32]: the span's pairs of values
    alignas(64) Int16Tiles::Sums sums_[2];
};

}  // namespace ratoon::RATOON_ISA

#endif
