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
    INLINE WordSpan(const AttentionCall& call, std::int64_t rows, Take take)
        : pairs_((call.head_dim + 1) / 2),
          columns_(static_cast<int>(whole_lanes(call.head_dim) / kLanes)),
          query_stride_(query_bytes(true, call.head_dim) / 2) {
        take(queries_, rows * query_stride_);
        take(parts_, kRows * kSpan);
    }

    Word* queries() const { return queries_; }  // as store_query made them
    KVPiece<Word>* blocks() { return block_; }
    // Elements between two pairs of rows.
    void set_strides(std::int64_t keys, std::int64_t values) {
        key_stride_ = 2 * keys;
        value_stride_ = 2 * values;
    }

    // Scores of rows [row, row + kCount) with blocks of sixteen keys.
    template <int kCount>
    INLINE void score(int row, Range blocks, SpanRows<kCount>& rows) const {
        const Word* queries = queries_ + row * query_stride_;
        float scales[kCount];
        for (int r = 0; r < kCount; ++r)
            __builtin_memcpy(&scales[r], queries + (r + 1) * query_stride_ - 2, sizeof(float));
        for_column_tiles<columns_for(kCount, kWordChains)>(blocks.begin, blocks.end, [&]<class C>(C, int first) {
            const Word* keys[C::value];
            for (int c = 0; c < C::value; ++c) keys[c] = block_[first + c].keys;
            WordTile<kCount, C::value> tile;
            tile.clear();
            tile.multiply(queries, query_stride_, keys, key_stride_, pairs_);
            tile.each([&]<int r, int c>(const PairSums& sum) {
                store(rows.values[r] + (first + c) * kLanes,
                      sum.value() * load(block_[first + c].key_scales) * set1(scales[r]));
            });
        });
    }

    // The weight of each key of a block as the mixture takes it.
    INLINE Vec scale_weight(Vec weight, int block) const { return weight * load(block_[block].value_scales); }

    // Round the weights of a row, their sum to 32767; returns what 1 stands for.
    template <int kCount>
    INLINE float put_weights(SpanRows<kCount>&, int r, Range blocks, const Vec* weights, Vec total) {
        const float whole = sum(total);
        const Vec inverse = set1(kWhole / (whole < kLeast ? kLeast : whole));
#pragma GCC unroll 8
        for (int block = blocks.begin; block < blocks.end; ++block)
            store_rounded(parts_ + r * kSpan + block * kLanes, weights[block] * inverse);
        return whole * (1.0f / kWhole);
    }

    // The values mixed by the weights, in [kCount][whole dim].
    template <int kCount>
    INLINE void mix(const SpanRows<kCount>& rows, Range blocks, float* mixture) {
        for_column_tiles<columns_for(kCount, kWordChains)>(0, columns_, [&]<class C>(C, int first) {
            WordTile<kCount, C::value> tile;
            tile.clear();
            for (int block = blocks.begin; block < blocks.end; ++block) {
                const Word* values[C::value];
                for (int c = 0; c < C::value; ++c) values[c] = block_[block].values + (first + c) * 2 * kLanes;
                tile.multiply(parts_ + block * kLanes, kSpan, values, value_stride_, kLanes / 2);
            }
            tile.each([&]<int r, int c>(const PairSums& sum) {
                store(mixture + (r * columns_ + first + c) * kLanes, sum.value() * set1(rows.unit[r]));
            });
        });
    }

private:
    std::int64_t pairs_;
    int columns_;
    std::int64_t query_stride_, key_stride_ = 0, value_stride_ = 0;
    KVPiece<Word> block_[kSpan / kLanes];
    Word* queries_;  // [rows][query_stride_]
    Word* parts_;    // [kRows][kSpan]: rounded weights
};

}  // namespace ratoon::RATOON_ISA
