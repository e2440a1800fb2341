// Paged attention of one unit: some queries over some spans of keys.
//
// A span is 128 positions, counted from 0. Within a span a query takes one pass: all scores, their largest,
// weights, their sum, the mixture of the values, each in the order of the keys. Spans are merged in order.
// Keys that a query does not see have weight 0, which changes no sum, so a result does not depend on which
// queries walk a span together. How scores and mixtures are computed depends on how K and V are stored
// (int16_span.hpp, float_span.hpp).
#include "float_span.hpp"
#include "int16_tile_span.hpp"
#include "read_ahead.hpp"

namespace ratoon::RATOON_ISA {
namespace {

// Add what a later span gave to up to sixteen rows: their best scores, sums of weights, and mixtures
// [count][dim]. A span of which a row saw nothing changes nothing.
INLINE void merge_span(float* best, float* total, float* merged, Vec span_best, Vec span_total,
                       const float* mixture, int count, std::int64_t dim) {
    const Vec old_best = load(best), new_best = max(old_best, span_best);
    float decay[kLanes], gain[kLanes];
    store(decay, exp2(old_best - new_best));
    store(gain, exp2(span_best - new_best));
    store(best, new_best);
    store(total, fma(load(total), load(decay), span_total * load(gain)));
    for (int r = 0; r < count; ++r, merged += dim, mixture += dim) {
        for (std::int64_t i = 0; i < dim; i += kLanes)
            store(merged + i, fma(load(merged + i), set1(decay[r]), load(mixture + i) * set1(gain[r])));
    }
}

INLINE void finish(float total, const float* mixture, std::int64_t dim, float* out) {
    const float inverse = 1.0f / total;
    for (std::int64_t i = 0; i < dim; ++i) out[i] = mixture[i] * inverse;
}

// To round a best score up to this moves all weights of its row by a factor of two at most, and their sum by
// the same. From scores that are larger it is taken before anything is rounded.
constexpr float kRoundable = 0x1p24f;

// Turn the scores of kCount rows with `strips` into weights: 0 for keys that a row does not see. kFull: all
// see the whole span. Step by step for all rows, since sums and maxima over lanes take long and wait for
// nothing but themselves.
template <bool kFull, int kCount, class Span>
INLINE void weigh(Span& span, Range strips, float cap, SpanRows<kCount>& rows) {
    if constexpr (kFull) strips = {0, kSpan / kLanes};
    const auto keep_visible = [&](int r, int strip, Vec x, Vec other) {
        const Range lanes = {rows.visible[r].begin - strip * kLanes, rows.visible[r].end - strip * kLanes};
        if (kFull || (lanes.begin <= 0 && lanes.end >= kLanes)) return x;
        return keep_lanes(x, lanes.begin, lanes.end, other);
    };
    for (int r = 0; r < kCount; ++r) {
        Vec best = set1(-__builtin_inff());
#pragma GCC unroll 8
        for (int strip = strips.begin; strip < strips.end; ++strip) {
            Vec x = load(rows.values[r] + strip * kLanes);
            if (cap != 0.0f)
                store(rows.values[r] + strip * kLanes, x = set1(cap) * tanh(x * set1(rows.scales[r])));
            best = max(best, keep_visible(r, strip, x, best));
        }
        if (cap != 0.0f) rows.scales[r] = 1.0f;
        const Vec highest = set1(largest(best)), scale = set1(rows.scales[r]);
        const float peak = first(highest * scale);
        if (!(peak < kNothing)) rows.best[r] = peak;
        rows.offsets[r] = -rows.best[r];
        if (-kRoundable < peak && peak < kRoundable) continue;
        for (int strip = strips.begin; strip < strips.end; ++strip) {
            float* at = rows.values[r] + strip * kLanes;
            store(at, (load(at) - highest) * scale);
        }
        rows.scales[r] = 1.0f;
        rows.offsets[r] = 0.0f;
    }
    for (int r = 0; r < kCount; ++r) {
        const Vec scale = set1(rows.scales[r]), offset = set1(rows.offsets[r]);
        Vec total = zero();
#pragma GCC unroll 8
        for (int strip = strips.begin; strip < strips.end; ++strip) {
            float* at = rows.values[r] + strip * kLanes;
            const Vec weight = exp2(fma(load(at), scale, offset));
            store(at, keep_visible(r, strip, span.scale_weight(weight, strip), zero()));
            total = total + keep_visible(r, strip, weight, zero());
        }
        rows.total[r] = sum(total);
    }
    span.template round_weights<kFull>(strips, rows);
}

// The best scores of a record's heads, and then their sums of weights: whole vectors of both.
INLINE float* record_weights(const AttentionCall& call, std::int64_t record) {
    return call.record_weights + record * 2 * whole_lanes(call.num_heads);
}

// Hands out a thread's scratch; with no memory, only counts.
struct ScratchAllocator {
    std::uint8_t* memory;
    std::size_t bytes = 0;

    template <class T>
    void operator()(T*& part, std::int64_t count) {
        part = reinterpret_cast<T*>(memory + bytes);
        bytes += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    }
};

#ifdef RATOON_MATRIX_TILES
using IntegerSpan = Int16TileSpan;
#else
using IntegerSpan = Int16Span;
#endif

// One unit on its way through its spans. Its rows are queries times the heads that share the KV head.
template <class Span>
class UnitWalk {
    using T = typename Span::Stored;

public:
    INLINE UnitWalk(const AttentionCall& call, std::uint8_t* memory)
        : call_(call),
          group_(call.num_heads / call.num_kv_heads),
          stride_(whole_lanes(call.head_dim)),
          in_place_(in_place<T>(call)),
          allocate_{memory},
          span_(call, in_place_ ? call.block_size : kLanes, in_place_ ? call.head_dim : stride_,
                unit_rows(call.head_dim, group_),
                [&](auto*& part, std::int64_t count) { allocate_(part, count); }) {
        const std::int64_t rows = unit_rows(call.head_dim, group_);
        allocate_(merged_, rows * stride_);
        allocate_(best_, rows + kLanes);  // whole vectors are read and written
        allocate_(total_, rows + kLanes);
        allocate_(sees_, rows);
        allocate_(mixture_, Span::kRows * stride_);
        allocate_(gathered_, in_place_ ? 0 : kSpan / kLanes * gathered_elements<T>(call.head_dim));
    }

    std::size_t scratch_bytes() const { return allocate_.bytes; }

    INLINE void run(std::int64_t item) {
        const Unit& unit = call_.units[item];
        queries_ = call_.query + unit.first_query;
        kv_head_ = unit.kv_head;
        const KVHead<T> head = {call_, call_.tables + queries_[0].sequence * call_.table_width, kv_head_};
        ReadAhead<T> ahead(call_, item);
        begin(unit);
        for (int span = unit.first_span; span < unit.end_span; ++span) {
            const Range keys = in_span(visible_, span), strips = strips_of(keys);
            for (int i = strips.begin; i < strips.end; ++i) {
                const KVPiece<T> strip = strip_at(head, span, i, keys);
                span_.set_strip(i, strip, in_place_ ? ahead.after(strip) : strip);
            }
            span_.set_span(strips);
            span_.for_row_tiles(rows_, [&]<class R>(R, int row) {
                constexpr int kStrips = kSpan / kLanes;
                span_.prefetch_strips({row * kStrips / rows_, (row + R::value) * kStrips / rows_});
                walk<R::value>(span, row);
            });
        }
        end();
    }

private:
    const Query& query_of(int row) const { return queries_[row / group_]; }
    std::int64_t head_of(int row) const { return kv_head_ * group_ + row % group_; }

    INLINE void begin(const Unit& unit) {
        rows_ = unit.num_queries * group_;
        visible_ = visible_to(call_, unit);
        recorded_ = merged_here_ = false;
        const std::int64_t bytes = group_ * query_bytes(call_.integers, call_.head_dim);
        auto* to = reinterpret_cast<std::uint8_t*>(span_.queries());
        for (int i = 0; i < unit.num_queries; ++i) {
            (queries_[i].first_record >= 0 ? recorded_ : merged_here_) = true;
            for (int row = i * group_; row < (i + 1) * group_; ++row)
                sees_[row] = {queries_[i].first_visible, queries_[i].end};
            const std::int64_t from = std::int64_t{queries_[i].row} * call_.num_kv_heads + kv_head_;
            __builtin_memcpy(to + i * bytes, call_.queries + from * bytes, static_cast<std::size_t>(bytes));
        }
        span_.set_rows(rows_);
        if (!merged_here_) return;
        for (int row = 0; row < rows_; row += kLanes) {
            store(best_ + row, set1(kNothing));
            store(total_ + row, zero());
        }
        __builtin_memset(merged_, 0, sizeof(float) * static_cast<std::size_t>(rows_ * stride_));
    }

    // What is visible of a span, counted from its first key.
    INLINE static Range in_span(Range visible, int span) {
        return {larger(0, visible.begin - span * kSpan), smaller(kSpan, visible.end - span * kSpan)};
    }
    INLINE static Range strips_of(Range keys) {
        return {keys.begin / kLanes, (keys.end + kLanes - 1) / kLanes};
    }

    INLINE KVPiece<T> strip_at(const KVHead<T>& head, int span, int strip, Range keys) const {
        const std::int64_t at = span * std::int64_t{kSpan} + strip * kLanes;
        if (in_place_) return strip_in_place(head, at);
        const Range lanes = {larger(0, keys.begin - strip * kLanes),
                             smaller(kLanes, keys.end - strip * kLanes)};
        return gather_strip(head, at, lanes, gathered_ + strip * gathered_elements<T>(call_.head_dim));
    }

    // Take the rows [row, row + kCount) through a span.
    template <int kCount>
    INLINE void walk(int span, int row) {
        SpanRows<kCount> rows;
        Range keys = {kSpan, 0};
        bool full = true;
        for (int r = 0; r < kCount; ++r) {
            rows.visible[r] = in_span(sees_[row + r], span);
            keys = {smaller(keys.begin, rows.visible[r].begin), larger(keys.end, rows.visible[r].end)};
            full &= rows.visible[r].begin == 0 && rows.visible[r].end == kSpan;
        }
        if (keys.begin >= keys.end) return;
        const Range strips = strips_of(keys);
        span_.template score<kCount>(row, strips, rows);
        if (full) weigh<true>(span_, strips, call_.softcap, rows);
        else weigh<false>(span_, strips, call_.softcap, rows);
        span_.template mix<kCount>(rows, strips, mixture_);
        if (recorded_) record(span, row, rows);
        if (merged_here_)
            merge_span(best_ + row, total_ + row, merged_ + row * stride_, load(rows.best), load(rows.total),
                       mixture_, kCount, stride_);
    }

    // What rows gave whose other spans are seen by other units.
    template <int kCount>
    INLINE void record(int span, int row, const SpanRows<kCount>& rows) {
        for (int r = 0; r < kCount; ++r) {
            const Query& query = query_of(row + r);
            const int index = span - first_span(query);
            if (query.first_record < 0 || index < 0 || index >= num_spans(query)) continue;
            const std::int64_t record = (query.first_record + index) * call_.num_heads + head_of(row + r);
            __builtin_memcpy(call_.record_values + record * stride_, mixture_ + r * stride_,
                             sizeof(float) * static_cast<std::size_t>(stride_));
            float* weights = record_weights(call_, query.first_record + index) + head_of(row + r);
            weights[0] = rows.best[r];
            weights[whole_lanes(call_.num_heads)] = rows.total[r];
        }
    }

    INLINE void end() {
        for (int row = 0; row < rows_; ++row) {
            const Query& query = query_of(row);
            if (query.first_record >= 0) continue;
            finish(total_[row], merged_ + row * stride_, call_.head_dim,
                   call_.out + (std::int64_t{query.row} * call_.num_heads + head_of(row)) * call_.head_dim);
        }
    }

    const AttentionCall& call_;
    const int group_;
    const std::int64_t stride_;
    const bool in_place_;
    ScratchAllocator allocate_;
    Span span_;
    float* merged_;         // [rows][whole dim], of the spans so far
    float *best_, *total_;  // [rows]
    Range* sees_;           // [rows]: positions
    float* mixture_;        // [rows of a tile][whole dim], of the span
    T* gathered_;           // strips whose keys do not lie side by side
    const Query* queries_ = nullptr;
    std::int64_t kv_head_ = 0;
    int rows_ = 0;
    Range visible_{};        // positions that some query sees
    bool recorded_ = false, merged_here_ = false;  // some query has records; has none
};

}  // namespace

std::size_t attend_scratch_bytes(const AttentionCall& call) {
    const std::size_t walk = call.integers ? UnitWalk<IntegerSpan>(call, nullptr).scratch_bytes()
                                           : UnitWalk<FloatSpan>(call, nullptr).scratch_bytes();
    const std::size_t merge = sizeof(float) * kLanes * static_cast<std::size_t>(whole_lanes(call.head_dim));
    return walk > merge ? walk : merge;
}

[[gnu::flatten]] void attend(const AttentionCall& call, std::int64_t item, std::uint8_t* scratch) {
    if (call.integers) UnitWalk<IntegerSpan>(call, scratch).run(item);
    else UnitWalk<FloatSpan>(call, scratch).run(item);
}

void merge(const AttentionCall& call, const Query& query, float* mixture) {
    const std::int64_t stride = whole_lanes(call.head_dim), heads = whole_lanes(call.num_heads);
    for (std::int64_t first = 0; first < heads; first += kLanes) {
        const int count = smaller(kLanes, call.num_heads - static_cast<int>(first));
        float best[kLanes], total[kLanes] = {};
        store(best, set1(kNothing));
        __builtin_memset(mixture, 0, sizeof(float) * static_cast<std::size_t>(count * stride));
        for (int span = 0; span < num_spans(query); ++span) {
            const std::int64_t record = query.first_record + span;
            const float* weights = record_weights(call, record) + first;
            merge_span(best, total, mixture, load(weights), load(weights + heads),
                       call.record_values + (record * call.num_heads + first) * stride, count, stride);
        }
        float* out = call.out + (query.row * call.num_heads + first) * call.head_dim;
        for (int i = 0; i < count; ++i)
            finish(total[i], mixture + i * stride, call.head_dim, out + i * call.head_dim);
    }
}

}  // namespace ratoon::RATOON_ISA
