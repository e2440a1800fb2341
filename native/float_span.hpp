// The arithmetic of attention over keys and values stored as float32.
#pragma once

#include "span_rows.hpp"
#include "tile.hpp"

namespace ratoon::RATOON_ISA {

// The queries of a unit, and one span of keys and values. Memory comes from take(pointer, count).
class FloatSpan {
public:
    using Stored = float;
    static constexpr int kRows = kFloatRows;  // of a tile

    template <class Take>
    INLINE FloatSpan(const AttentionCall& call, std::int64_t key_stride, std::int64_t value_stride,
                     std::int64_t rows, Take take)
        : dim_(call.head_dim),
          key_stride_(key_stride),
          value_stride_(value_stride),
          columns_(static_cast<int>(whole_lanes(dim_) / kLanes)) {
        take(queries_, rows * dim_);
    }

    float* queries() const { return queries_; }

    // A strip, and the one that is prefetched now.
    INLINE void set_strip(int index, const KVPiece<float>& strip, const KVPiece<float>& ahead) {
        strips_[index] = strip;
        for (std::int64_t d = 0; d < dim_; ++d) __builtin_prefetch(ahead.keys + d * key_stride_, 0, 2);
        for (std::int64_t i = 0; i < kLanes * dim_; i += kLanes) __builtin_prefetch(ahead.values + i, 0, 2);
    }
    INLINE void prefetch_strips(Range) {}

    INLINE void set_rows(int) {}
    INLINE void set_span(Range) {}
    template <class F>
    INLINE void for_row_tiles(int rows, F f) const {
        ratoon::RATOON_ISA::for_row_tiles(rows, f);
    }

    // Scores of rows [row, row + kCount) with strips of keys.
    template <int kCount>
    INLINE void score(int row, Range strips, SpanRows<kCount>& rows) const {
        for_column_tiles<columns_for(kCount)>(strips.begin, strips.end, [&]<class C>(C, int first) {
            const float* keys[C::value];
            for (int c = 0; c < C::value; ++c) keys[c] = strips_[first + c].keys;
            FloatTile<kCount, C::value> tile;
            tile.clear();
            tile.multiply(queries_ + row * dim_, dim_, keys, key_stride_, dim_);
            for (int r = 0; r < kCount; ++r) {
                rows.scales[r] = 1.0f;
                for (int c = 0; c < C::value; ++c) store(rows.values[r] + (first + c) * kLanes, tile.sums[r][c]);
            }
        });
    }

    // What becomes of the weight of each key of a strip in the mixture.
    INLINE Vec scale_weight(Vec weight, int) const { return weight; }
    template <bool kFull, int kCount>
    INLINE void round_weights(Range, const SpanRows<kCount>&) const {}

    // The values mixed by the weights, in [kCount][whole dim]. A value that only some of the rows see is
    // added to theirs alone: it may be NaN.
    template <int kCount>
    INLINE void mix(const SpanRows<kCount>& rows, Range strips, float* mixture) const {
        Range shared = rows.visible[0];
        for (const Range& visible : rows.visible)
            shared = {larger(shared.begin, visible.begin), smaller(shared.end, visible.end)};
        for_column_tiles<columns_for(kCount)>(0, columns_, [&]<class C>(C, int first) {
            FloatTile<kCount, C::value> tile;
            tile.clear();
            for (int strip = strips.begin; strip < strips.end; ++strip) {
                const int begin = strip * kLanes, end = begin + kLanes;
                const int from = larger(begin, smaller(shared.begin, end)),
                          to = larger(from, smaller(shared.end, end));
                const float* values[C::value];
                const auto point_at = [&](int key) {
                    for (int c = 0; c < C::value; ++c)
                        values[c] = strips_[strip].values + (key - begin) * value_stride_ + (first + c) * kLanes;
                };
                const auto add_to_some = [&](int key) {
                    point_at(key);
                    unroll<kCount>([&]<int r>() {
                        if (key < rows.visible[r].begin || key >= rows.visible[r].end) return;
                        const Vec weight = set1(rows.values[r][key]);
                        for (int c = 0; c < C::value; ++c)
                            tile.sums[r][c] = fma(weight, load(values[c]), tile.sums[r][c]);
                    });
                };
                for (int key = begin; key < from; ++key) add_to_some(key);
                point_at(from);
                tile.multiply(rows.values[0] + from, kSpan, values, value_stride_, to - from);
                for (int key = to; key < end; ++key) add_to_some(key);
            }
            for (int r = 0; r < kCount; ++r) {
                for (int c = 0; c < C::value; ++c)
                    store(mixture + (r * columns_ + first + c) * kLanes, tile.sums[r][c]);
            }
        });
    }

private:
    std::int64_t dim_, key_stride_, value_stride_;
    int columns_;
    KVPiece<float> strips_[kSpan / kLanes];
    float* queries_;  // [rows][dim]
};

}  // namespace ratoon::RATOON_ISA
