// The arithmetic of attention over keys and values stored as 16-bit integers: exact sums of products.
#pragma once

#include "int16_vectors.hpp"
#include "span_rows.hpp"
#include "tile.hpp"

namespace ratoon::RATOON_ISA {

// The queries of a unit, and one span of keys and values. Memory comes from take(pointer, count).
class Int16Span {
public:
    using Stored = Int16;
    static constexpr int kRows = kInt16Rows;  // of a tile

    template <class Take>
    INLINE Int16Span(const AttentionCall& call, std::int64_t key_stride, std::int64_t value_stride,
                    std::int64_t rows, Take take)
        : pairs_((call.head_dim + 1) / 2),
          key_stride_(2 * key_stride),
          value_stride_(2 * value_stride),
          query_stride_(query_bytes(true, call.head_dim) / 2),
          columns_(static_cast<int>(whole_lanes(call.head_dim) / kLanes)) {
        take(queries_, rows * query_stride_);
        take(parts_, kLanes * kSpan);
    }

    Int16* queries() const { return queries_; }  // as store_query makes them

    // A strip, and the one that is prefetched while it is read.
    INLINE void set_strip(int index, const KVPiece<Int16>& strip, const KVPiece<Int16>& ahead) {
        strips_[index] = strip;
        ahead_[index] = ahead;
        __builtin_prefetch(ahead.key_scales, 0, 2);
        __builtin_prefetch(ahead.value_scales, 0, 2);
    }
    // Of the strips ahead, prefetch these.
    INLINE void prefetch_strips(Range strips) { prefetched_ = strips; }

    INLINE void set_rows(int) {}
    INLINE void set_span(Range) {}
    template <class F>
    INLINE void for_row_tiles(int rows, F f) const {
        ratoon::RATOON_ISA::for_row_tiles<kInt16Rows>(rows, f);
    }

    // Scores of rows [row, row + kCount) with strips of keys.
    template <int kCount>
    INLINE void score(int row, Range strips, SpanRows<kCount>& rows) const {
        const Int16* queries = queries_ + row * query_stride_;
        copy_scales(row, rows);
        for_column_tiles<columns_for(kCount, kInt16Chains)>(strips.begin, strips.end, [&]<class C>(C, int first) {
            const Int16 *keys[C::value], *ahead[C::value];
            for (int c = 0; c < C::value; ++c) {
                keys[c] = strips_[first + c].keys;
                ahead[c] = near_or_ahead(first + c).keys;
            }
            Int16Tile<kCount, C::value> tile;
            tile.clear();
            tile.multiply(queries, query_stride_, keys, ahead, key_stride_, pairs_);
            tile.each([&]<int r, int c>(const PairSums& sum) {
                store(rows.values[r] + (first + c) * kLanes,
                      sum.value() * load(strips_[first + c].key_scales));
            });
        });
    }

    // The weight of each key of a strip as the mixture takes it.
    INLINE Vec scale_weight(Vec weight, int strip) const { return weight * load(strips_[strip].value_scales); }

    // Round the weights of each row such that their sum is at most 32767: it was at most the sum of the weights
    // before scale_weight, times the largest scale.
    template <bool kFull, int kCount>
    INLINE void round_weights(Range strips, const SpanRows<kCount>& rows) {
        float inverses[kLanes];
        if constexpr (kFull) store(units_, set1(largest_scale<true>(strips, {})));
        else for (int r = 0; r < kCount; ++r) units_[r] = largest_scale<false>(strips, rows.visible[r]);
        const Vec most = load(rows.total) * load(units_);
        store(units_, most * set1(1.0f / kInt16Max));
        store(inverses, set1(kInt16Max) / max(set1(kSmallest), most));
        for (int r = 0; r < kCount; ++r) {
            const Vec inverse = set1(inverses[r]);
#pragma GCC unroll 8
            for (int strip = strips.begin; strip < strips.end; ++strip)
                store_rounded(parts_ + r * kSpan + strip * kLanes, load(rows.values[r] + strip * kLanes) * inverse);
        }
    }

    // The values mixed by the weights, in [kCount][whole dim].
    template <int kCount>
    INLINE void mix(const SpanRows<kCount>&, Range strips, float* mixture) {
        for_column_tiles<columns_for(kCount, kInt16Chains)>(0, columns_, [&]<class C>(C, int first) {
            Int16Tile<kCount, C::value> tile;
            tile.clear();
            for (int strip = strips.begin; strip < strips.end; ++strip) {
                const Int16 *values[C::value], *ahead[C::value];
                for (int c = 0; c < C::value; ++c) {
                    const std::int64_t column = (first + c) * 2 * kLanes;
                    values[c] = strips_[strip].values + column;
                    ahead[c] = near_or_ahead(strip).values + column;
                }
                tile.multiply(parts_ + strip * kLanes, kSpan, values, ahead, value_stride_, kLanes / 2);
            }
            tile.each([&]<int r, int c>(const PairSums& sum) {
                store(mixture + (r * columns_ + first + c) * kLanes, sum.value() * set1(units_[r]));
            });
        });
    }

protected:
    template <int kCount>
    INLINE void copy_scales(int row, SpanRows<kCount>& rows) const {
        for (int r = 0; r < kCount; ++r)
            __builtin_memcpy(&rows.scales[r], queries_ + (row + r + 1) * query_stride_ - 2, sizeof(float));
    }

    const KVPiece<Int16>& near_or_ahead(int strip) const {
        return (prefetched_.begin <= strip && strip < prefetched_.end ? ahead_ : strips_)[strip];
    }

    // Of the values that a row sees. NaN if one is NaN.
    template <bool kFull>
    INLINE float largest_scale(Range strips, Range visible) const {
        Vec most = zero(), total = zero();
#pragma GCC unroll 8
        for (int strip = strips.begin; strip < strips.end; ++strip) {
            Vec scale = load(strips_[strip].value_scales);
            if (!kFull) scale = keep_lanes(scale, visible.begin - strip * kLanes, visible.end - strip * kLanes, zero());
            most = max(most, scale);
            total = total + scale;
        }
        return largest(most) + 0.0f * sum(total);  // a maximum can lose a NaN, a sum cannot
    }

    Range prefetched_{};
    std::int64_t pairs_;
    std::int64_t key_stride_, value_stride_;  // from one pair of rows to the next
    std::int64_t query_stride_;
    int columns_;
    KVPiece<Int16> strips_[kSpan / kLanes], ahead_[kSpan / kLanes];  // of the span, and prefetched meanwhile
    Int16* queries_;  // [rows][query_stride_]
    Int16* parts_;    // [kLanes][kSpan]: rounded weights
    float units_[kLanes] = {};  // and what one of them is worth
};

}  // namespace ratoon::RATOON_ISA
