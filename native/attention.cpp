// Paged attention of one unit: some queries over some spans of keys.
//
// A span is 128 positions, counted from 0. Within a span a query takes one pass: all scores, their largest,
// weights, their sum, the mixture of the values, each in the order of the keys. Spans are merged in order.
// Keys that a query does not see have weight 0, which changes no sum, so a result does not depend on which
// queries walk a span together.
#include "kv_pages.hpp"
#include "tile.hpp"

namespace ratoon::RATOON_ISA {
namespace {

constexpr int kExpandRows = 12;  // from this many rows on, K and V are expanded to float32 once for all

// The best score (an exponent of 2) and the sum of weights, of what a query has seen.
struct Softmax {
    float best;
    float total;
};

// Add what a later span gave. A span of which nothing was visible changes nothing.
INLINE void merge_span(Softmax& softmax, float* mixture, Softmax span, const float* span_mixture,
                       std::int64_t dim) {
    if (span.best == -__builtin_inff()) return;
    const float best = softmax.best > span.best ? softmax.best : span.best;
    const Vec decay = exp2(set1(softmax.best - best)), gain = exp2(set1(span.best - best));
    softmax = {best, first(fma(set1(softmax.total), decay, set1(span.total) * gain))};
    for (std::int64_t i = 0; i < dim; i += kLanes) {
        store(mixture + i, fma(load(mixture + i), decay, load(span_mixture + i) * gain));
    }
}

INLINE void finish(Softmax softmax, const float* mixture, std::int64_t dim, float* out) {
    const float inverse = 1.0f / softmax.total;
    for (std::int64_t i = 0; i < dim; ++i) out[i] = mixture[i] * inverse;
}

// Keys of a span, or blocks of sixteen of them: [begin, end), empty where begin >= end.
struct Range {
    int begin, end;
};

INLINE int smaller(int a, int b) { return a < b ? a : b; }
INLINE int larger(int a, int b) { return a > b ? a : b; }

INLINE Range blocks_of(Range keys) { return {keys.begin / kLanes, (keys.end + kLanes - 1) / kLanes}; }

// Memory of one unit, carved from the worker's scratch.
struct Scratch {
    float* queries;   // [rows][dim]
    float* weights;   // [rows][kSpan]: scores, then weights
    float* mixture;   // [rows][whole dim], of the span
    float* merged;    // [rows][whole dim], of the spans so far
    float* keys;      // expanded
    float* values;    // expanded
    Softmax* span;    // [rows]
    Softmax* so_far;  // [rows]
    Range* visible;   // [rows]: keys of the span
    std::size_t bytes = 0;

    Scratch(const AttentionCall& call, std::uint8_t* memory) {
        const std::int64_t rows = unit_rows(call.head_dim, call.num_heads / call.num_kv_heads);
        const std::int64_t dim = whole_lanes(call.head_dim);
        const auto take = [&]<class T>(T*& part, std::int64_t count) {
            part = reinterpret_cast<T*>(memory + bytes);
            bytes += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
        };
        take(queries, rows * dim);
        take(weights, rows * kSpan);
        take(mixture, rows * dim);
        take(merged, rows * dim);
        take(keys, kSpan * dim);
        take(values, kSpan * dim);
        take(span, rows);
        take(so_far, rows);
        take(visible, rows);
    }
};

// What the rows [row, row + count) see together.
INLINE Range visible_to(const Scratch& scratch, int row, int count) {
    Range seen = scratch.visible[row];
    for (int r = row + 1; r < row + count; ++r) {
        seen.begin = smaller(seen.begin, scratch.visible[r].begin);
        seen.end = larger(seen.end, scratch.visible[r].end);
    }
    return seen;
}

// The scores of all rows with the blocks that they see. Four blocks of keys stay near while all rows pass.
template <class T>
INLINE void score(const SpanView<T>& view, Range blocks, int rows, int dim, const Scratch& scratch) {
    for (int first = blocks.begin; first < blocks.end; first += 4) {
        for_row_tiles(rows, [&]<class R>(R, int row) {
            const Range seen = blocks_of(visible_to(scratch, row, R::value));
            for_column_tiles<columns_for(R::value)>(
                larger(first, seen.begin), smaller(first + 4, seen.end), [&]<class C>(C, int column) {
                    const T* keys[C::value];
                    for (int c = 0; c < C::value; ++c) keys[c] = view.keys[column + c];
                    FloatTile<R::value, C::value> tile;
                    tile.clear();
                    tile.multiply(scratch.queries + row * dim, dim, keys, view.key_stride, dim);
                    for (int r = 0; r < R::value; ++r) {
                        for (int c = 0; c < C::value; ++c) {
                            store(scratch.weights + (row + r) * kSpan + (column + c) * kLanes,
                                  tile.sums[r][c]);
                        }
                    }
                });
        });
    }
}

// Turn one row's scores with `blocks` into weights: 0 for keys that it does not see.
INLINE Softmax weigh(float* row, Range blocks, Range visible, float cap) {
    const auto partly = [&](int block) {
        return visible.begin > block * kLanes || visible.end < (block + 1) * kLanes;
    };
    const auto keep_visible = [&](Vec x, int block, Vec other) {
        return keep_lanes(x, visible.begin - block * kLanes, visible.end - block * kLanes, other);
    };
    Vec best = set1(-__builtin_inff());
    for (int block = blocks.begin; block < blocks.end; ++block) {
        Vec scores = load(row + block * kLanes);
        if (cap != 0.0f) {
            scores = set1(cap) * tanh(scores);
            store(row + block * kLanes, scores);
        }
        best = max(best, partly(block) ? keep_visible(scores, block, best) : scores);
    }
    const float peak = largest(best);
    Vec total = zero();
    for (int block = blocks.begin; block < blocks.end; ++block) {
        Vec weights = exp2(load(row + block * kLanes) - set1(peak));
        if (partly(block)) weights = keep_visible(weights, block, zero());
        store(row + block * kLanes, weights);
        total = total + weights;
    }
    return {peak, sum(total)};
}

// The values mixed by the weights, for all rows.
template <class T>
INLINE void mix(const SpanView<T>& view, int rows, int dim, const Scratch& scratch) {
    const std::int64_t stride = whole_lanes(dim);
    const int columns = static_cast<int>(stride / kLanes);
    for (int first = 0; first < columns; first += 4) {
        for_row_tiles(rows, [&]<class R>(R, int row) {
            const Range seen = visible_to(scratch, row, R::value), blocks = blocks_of(seen);
            for_column_tiles<columns_for(R::value)>(
                first, smaller(first + 4, columns), [&]<class C>(C, int column) {
                    FloatTile<R::value, C::value> tile;
                    tile.clear();
                    for (int block = blocks.begin; block < blocks.end; ++block) {
                        const T* values[C::value];
                        for (int c = 0; c < C::value; ++c)
                            values[c] = view.values[block] + (column + c) * kLanes;
                        // Memory behind the last key may hold anything.
                        tile.multiply(scratch.weights + row * kSpan + block * kLanes, kSpan, values,
                                      view.value_stride, smaller(seen.end - block * kLanes, kLanes));
                    }
                    for (int r = 0; r < R::value; ++r) {
                        for (int c = 0; c < C::value; ++c) {
                            store(scratch.mixture + (row + r) * stride + (column + c) * kLanes,
                                  tile.sums[r][c]);
                        }
                    }
                });
        });
    }
}

// One unit on its way through its spans. Its rows are queries times the heads that share the KV head.
template <class T>
class UnitWalk {
public:
    INLINE UnitWalk(const AttentionCall& call, const Unit& unit, int kv_head, std::uint8_t* memory)
        : call_(call),
          unit_(unit),
          kv_head_(kv_head),
          scratch_(call, memory),
          queries_(call.query + unit.first_query),
          head_{call, call.tables + queries_[0].sequence * call.table_width, kv_head},
          group_(call.num_heads / call.num_kv_heads),
          rows_(unit.num_queries * group_),
          stride_(whole_lanes(call.head_dim)) {}

    INLINE void run() {
        begin();
        prefetch(unit_.first_span);
        for (int span = unit_.first_span; span < unit_.end_span; ++span) {
            if (span + 1 < unit_.end_span) prefetch(span + 1);
            walk(span);
            keep(span);
        }
        end();
    }

private:
    const Query& query_of(int row) const { return queries_[row / group_]; }
    std::int64_t head_of(int row) const { return kv_head_ * group_ + row % group_; }
    float* mixture(int row) const { return scratch_.mixture + row * stride_; }
    float* merged(int row) const { return scratch_.merged + row * stride_; }

    INLINE void begin() {
        const std::int64_t floats = group_ * call_.head_dim;
        for (int i = 0; i < unit_.num_queries; ++i) {
            const Query& query = queries_[i];
            first_visible_ = smaller(first_visible_, query.first_visible);
            end_ = larger(end_, query.end);
            const float* from =
                call_.queries + (std::int64_t{query.row} * call_.num_kv_heads + kv_head_) * floats;
            __builtin_memcpy(scratch_.queries + i * floats, from,
                             sizeof(float) * static_cast<std::size_t>(floats));
        }
        for (int row = 0; row < rows_; ++row) {
            scratch_.so_far[row] = {-__builtin_inff(), 0.0f};
            __builtin_memset(merged(row), 0, sizeof(float) * static_cast<std::size_t>(stride_));
        }
    }

    // What the unit sees of a span.
    Range keys_of(int span) const {
        return {larger(0, first_visible_ - span * kSpan), smaller(kSpan, end_ - span * kSpan)};
    }

    INLINE void prefetch(std::int64_t span) {
        const Range keys = keys_of(static_cast<int>(span));
        prefetch_span(head_, span * kSpan + keys.begin, span * kSpan + keys.end);
    }

    INLINE void walk(std::int64_t span) {
        const Range keys = keys_of(static_cast<int>(span));
        for (int row = 0; row < rows_; ++row) {
            const Query& query = query_of(row);
            scratch_.visible[row] = {larger(keys.begin, static_cast<int>(query.first_visible - span * kSpan)),
                                     smaller(keys.end, static_cast<int>(query.end - span * kSpan))};
        }
        const std::int64_t from = span * kSpan + keys.begin, to = span * kSpan + keys.end;
        if (aligned(call_) && rows_ < kExpandRows) mix_span(view_span(head_, from, to), keys);
        else mix_span(expand_span(head_, from, to, scratch_.keys, scratch_.values), keys);
    }

    template <class V>
    INLINE void mix_span(const SpanView<V>& view, Range keys) {
        score(view, blocks_of(keys), rows_, call_.head_dim, scratch_);
        for_row_tiles(rows_, [&]<class R>(R, int first_row) {
            const Range blocks = blocks_of(visible_to(scratch_, first_row, R::value));
            for (int row = first_row; row < first_row + R::value; ++row) {
                float* weights = scratch_.weights + row * kSpan;
                scratch_.span[row] = weigh(weights, blocks, scratch_.visible[row], call_.softcap);
            }
        });
        mix(view, rows_, call_.head_dim, scratch_);
    }

    // Merge the span at once, or record it where other units see spans of the same query.
    INLINE void keep(int span) {
        for (int row = 0; row < rows_; ++row) {
            const Query& query = query_of(row);
            if (query.first_record < 0) {
                merge_span(scratch_.so_far[row], merged(row), scratch_.span[row], mixture(row), stride_);
                continue;
            }
            const int index = span - first_span(query);
            if (index < 0 || index >= num_spans(query)) continue;  // others of the unit see it
            const std::int64_t record = (query.first_record + index) * call_.num_heads + head_of(row);
            __builtin_memcpy(call_.record_values + record * stride_, mixture(row),
                             sizeof(float) * static_cast<std::size_t>(stride_));
            __builtin_memcpy(call_.record_weights + record * 2, &scratch_.span[row], sizeof(Softmax));
        }
    }

    INLINE void end() {
        for (int row = 0; row < rows_; ++row) {
            const Query& query = query_of(row);
            if (query.first_record >= 0) continue;
            finish(scratch_.so_far[row], merged(row), call_.head_dim,
                   call_.out + (std::int64_t{query.row} * call_.num_heads + head_of(row)) * call_.head_dim);
        }
    }

    const AttentionCall& call_;
    const Unit& unit_;
    const std::int64_t kv_head_;
    const Scratch scratch_;
    const Query* const queries_;
    const KVHead<T> head_;
    const int group_, rows_;
    const std::int64_t stride_;
    int first_visible_ = __INT_MAX__, end_ = 0;
};

}  // namespace

std::size_t attend_scratch_bytes(const AttentionCall& call) { return Scratch(call, nullptr).bytes; }

void attend(const AttentionCall& call, const Unit& unit, int kv_head, std::uint8_t* scratch) {
    if (call.half) UnitWalk<Half>(call, unit, kv_head, scratch).run();
    else UnitWalk<float>(call, unit, kv_head, scratch).run();
}

void merge(const AttentionCall& call, const Query& query, float* mixture) {
    const std::int64_t stride = whole_lanes(call.head_dim), heads = call.num_heads;
    for (std::int64_t head = 0; head < heads; ++head) {
        Softmax softmax = {-__builtin_inff(), 0.0f};
        __builtin_memset(mixture, 0, sizeof(float) * stride);
        for (int span = 0; span < num_spans(query); ++span) {
            const std::int64_t record = (query.first_record + span) * heads + head;
            const Softmax part = {call.record_weights[2 * record], call.record_weights[2 * record + 1]};
            merge_span(softmax, mixture, part, call.record_values + record * stride, stride);
        }
        finish(softmax, mixture, call.head_dim, call.out + (query.row * heads + head) * call.head_dim);
    }
}

}  // namespace ratoon::RATOON_ISA
