// The arithmetic of attention over keys and values stored as 16-bit integers: exact sums of products.
#pragma once

#include "span_rows.hpp"
#include "tile.hpp"
#include "words.hpp"

namespace ratoon::RATOON_ISA {

// The queries of a unit, and one span of keys and values. Memory comes from take(pointer, count).
class WordSpan {
public:
    using Stored = Word;
    static constexpr int kRows = kWordRows;  // of a tile

    template <class Take>
    INLINE WordSpan(const AttentionCall& call, std::int64_t key_stride, std::int64_t value_stride,
                    std::int64_t rows, Take take)
        : pairs_((call.head_dim + 1) / 2),
          key_stride_(2 * key_stride),
          value_stride_(2 * value_stride),
          query_stride_(query_bytes(true, call.head_dim) / 2),
          columns_(static_cast<int>(whole_lanes(call.head_dim) / kLanes)) {
        take(queries_, rows * query_stride_);
        take(parts_, kRows * kSpan);
    }

    Word* queries() const { return queries_; }  // as store_query makes them

    // Sixteen keys, and those that are asked for while these are read.
    INLINE void set_block(int index, const KVPiece<Word>& block, const KVPiece<Word>& ahead) {
        block_[index] = block;
        ahead_[index] = ahead;
        __builtin_prefetch(ahead.key_scales, 0, 2);
        __builtin_prefetch(ahead.value_scales, 0, 2);
    }
    // Of the blocks ahead, ask for these.
    INLINE void ask_for(Range blocks) { asked_ = blocks; }

    // Scores of rows [row, row + kCount) with blocks of sixteen keys.
    template <int kCount>
    INLINE void score(int row, Range blocks, SpanRows<kCount>& rows) const {
        const Word* queries = queries_ + row * query_stride_;
        for (int r = 0; r < kCount; ++r)
            __builtin_memcpy(&rows.scales[r], queries + (r + 1) * query_stride_ - 2, sizeof(float));
        for_column_tiles<columns_for(kCount, kWordChains)>(blocks.begin, blocks.end, [&]<class C>(C, int first) {
            const Word *keys[C::value], *ahead[C::value];
            for (int c = 0; c < C::value; ++c) {
                keys[c] = block_[first + c].keys;
                ahead[c] = near_or_ahead(first + c).keys;
            }
            WordTile<kCount, C::value> tile;
            tile.clear();
            tile.multiply(queries, query_stride_, keys, ahead, key_stride_, pairs_);
            tile.each([&]<int r, int c>(const PairSums& sum) {
                store(rows.values[r] + (first + c) * kLanes,
                      sum.value() * load(block_[first + c].key_scales));
            });
        });
    }

    // The weight of each key of a block as the mixture takes it.
    INLINE Vec scale_weight(Vec weight, int block) const { return weight * load(block_[block].value_scales); }

    // Round the weights of each row such that their sum is at most 32767: it was at most the sum of the weights
    // before scale_weight, times the largest scale.
    template <bool kFull, int kCount>
    INLINE void round_weights(Range blocks, const SpanRows<kCount>& rows) {
        float inverses[kLanes];
        if constexpr (kFull) store(units_, set1(largest_scale<true>(blocks, {})));
        else for (int r = 0; r < kCount; ++r) units_[r] = largest_scale<false>(blocks, rows.visible[r]);
        const Vec most = load(rows.total) * load(units_);
        store(units_, most * set1(1.0f / kWhole));
        store(inverses, set1(kWhole) / max(set1(kLeast), most));
        for (int r = 0; r < kCount; ++r) {
            const Vec inverse = set1(inverses[r]);
#pragma GCC unroll 8
            for (int block = blocks.begin; block < blocks.end; ++block)
                store_rounded(parts_ + r * kSpan + block * kLanes, load(rows.values[r] + block * kLanes) * inverse);
        }
    }

    // The values mixed by the weights, in [kCount][whole dim].
    template <int kCount>
    INLINE void mix(const SpanRows<kCount>&, Range blocks, float* mixture) {
        for_column_tiles<columns_for(kCount, kWordChains)>(0, columns_, [&]<class C>(C, int first) {
            WordTile<kCount, C::value> tile;
            tile.clear();
            for (int block = blocks.begin; block < blocks.end; ++block) {
                const Word *values[C::value], *ahead[C::value];
                for (int c = 0; c < C::value; ++c) {
                    const std::int64_t column = (first + c) * 2 * kLanes;
                    values[c] = block_[block].values + column;
                    ahead[c] = near_or_ahead(block).values + column;
                }
                tile.multiply(parts_ + block * kLanes, kSpan, values, ahead, value_stride_, kLanes / 2);
            }
            tile.each([&]<int r, int c>(const PairSums& sum) {
                store(mixture + (r * columns_ + first + c) * kLanes, sum.value() * set1(units_[r]));
            });
        });
    }

private:
    const KVPiece<Word>& near_or_ahead(int block) const {
        return (asked_.begin <= block && block < asked_.end ? ahead_ : block_)[block];
    }

    // Of the values that a row sees. Not a number if one is not.
    template <bool kFull>
    INLINE float largest_scale(Range blocks, Range visible) const {
        Vec most = zero(), total = zero();
#pragma GCC unroll 8
        for (int block = blocks.begin; block < blocks.end; ++block) {
            Vec scale = load(block_[block].value_scales);
            if (!kFull) scale = keep_lanes(scale, visible.begin - block * kLanes, visible.end - block * kLanes, zero());
            most = max(most, scale);
            total = total + scale;
        }
        return largest(most) + 0.0f * sum(total);  // a maximum can lose what is no number, a sum cannot
    }

    Range asked_{};
    std::int64_t pairs_;
    std::int64_t key_stride_, value_stride_;  // from one pair of rows to the next
    std::int64_t query_stride_;
    int columns_;
    KVPiece<Word> block_[kSpan / kLanes], ahead_[kSpan / kLanes];  // of the span, and asked for meanwhile
    Word* queries_;  // [rows][query_stride_]
    Word* parts_;    // [kRows][kSpan]: rounded weights
    float units_[kLanes] = {};  // and what one of them is worth
};

}  // namespace ratoon::RATOON_ISA
