// Paged attention of one unit: some queries over some spans of keys.
//
// A span is 128 positions, counted from 0. Within a span a query takes one pass: all scores, their largest, weights, their
// sum, the mixture of the values, each in the order of the keys. Spans are merged in order. Keys that a query does
// not see have weight 0, which changes no sum, so a result does not depend on which queries walk a span together.
#include "tile.hpp"

namespace ratoon::RATOON_ISA {
namespace {

constexpr int kBlocks = kSpan / kLanes;  // sixteen keys each
constexpr int kStageRows = 12;           // from this many rows on, K and V are expanded to float32 once for all

std::int64_t whole_lanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// The best score (an exponent of 2), the sum of weights and the mixture of values, of what a query has seen so far.
struct Softmax {
    float best;
    float total;
};

// Add what a later span gave. A span of which nothing was visible changes nothing.
INLINE void merge_span(Softmax& softmax, float* mixture, Softmax span, const float* span_mixture, std::int64_t dim) {
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
    float* mixture;   // [rows][whole dim]
    float* merged;    // [rows][whole dim]
    float* keys;      // [kBlocks][dim][kLanes]
    float* values;    // [kSpan][whole dim]
    Softmax* span;    // [rows]
    Softmax* so_far;  // [rows]
    Range* visible;   // [rows]: keys of the span
    std::int64_t bytes;

    Scratch(const AttentionCall& call, std::uint8_t* memory) {
        const std::int64_t rows = unit_rows(call.head_dim, call.num_heads / call.num_kv_heads);
        const std::int64_t dim = whole_lanes(call.head_dim);
        bytes = 0;
        const auto take = [&](std::int64_t floats) {
            auto* at = reinterpret_cast<float*>(memory + bytes);
            bytes += (floats * 4 + 63) / 64 * 64;
            return at;
        };
        queries = take(rows * dim);
        weights = take(rows * kSpan);
        mixture = take(rows * dim);
        merged = take(rows * dim);
        keys = take(kSpan * dim);
        values = take(kSpan * dim);
        span = reinterpret_cast<Softmax*>(take(rows * 2));
        so_far = reinterpret_cast<Softmax*>(take(rows * 2));
        visible = reinterpret_cast<Range*>(take(rows * 2));
    }
};

// The keys [begin, end) of a span, in blocks of sixteen: K [dim][stride], V [16][stride].
template <class T>
struct SpanView {
    const T* keys[kBlocks];
    const T* values[kBlocks];
    std::int64_t key_stride, value_stride;
};

// Where K and V of one KV head lie.
template <class T>
struct Pages {
    const AttentionCall& call;
    const std::int32_t* table;
    int kv_head;

    INLINE const T* keys(std::int64_t position) const {
        const std::int64_t head = static_cast<std::int64_t>(call.head_dim) * call.block_size;
        return page(position) + kv_head * head + position % call.block_size;
    }
    INLINE const T* values(std::int64_t position) const {
        const std::int64_t head = static_cast<std::int64_t>(call.head_dim) * call.block_size;
        return page(position) + (call.num_kv_heads + kv_head) * head + position % call.block_size * call.head_dim;
    }
    INLINE const T* page(std::int64_t position) const {
        return reinterpret_cast<const T*>(call.pages + table[position / call.block_size] * call.page_bytes);
    }
};

INLINE float expand(float x) { return x; }
INLINE float expand(Half x) {
    const Half lanes[16] = {x};
    return first(load(lanes));
}

// Ask for the keys [begin, end) to be brought near: pages lie far apart, which the processor does not foresee.
template <class T>
INLINE void prefetch_span(const Pages<T>& pages, std::int64_t begin, std::int64_t end) {
    const auto fetch = [](const T* from, std::int64_t count) {
        for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(64 / sizeof(T))) __builtin_prefetch(from + i, 0, 2);
    };
    const std::int64_t dim = pages.call.head_dim, size = pages.call.block_size;
    for (std::int64_t at = begin / size * size; at < end; at += size) {
        fetch(pages.keys(at), dim * size);
        fetch(pages.values(at), dim * size);
    }
}

// Blocks of sixteen lie in one page each: point at them.
template <class T>
SpanView<T> view_span(const Pages<T>& pages, std::int64_t begin, std::int64_t end) {
    SpanView<T> view;
    view.key_stride = pages.call.block_size;
    view.value_stride = pages.call.head_dim;
    for (std::int64_t at = begin / kLanes * kLanes; at < end; at += kLanes) {
        view.keys[at % kSpan / kLanes] = pages.keys(at);
        view.values[at % kSpan / kLanes] = pages.values(at);
    }
    return view;
}

// The same, expanded into scratch: for many rows, and for blocks or heads that sixteen does not divide.
template <class T>
SpanView<float> stage_span(const Pages<T>& pages, std::int64_t begin, std::int64_t end, bool aligned, const Scratch& scratch) {
    const AttentionCall& call = pages.call;
    const std::int64_t dim = call.head_dim, stride = whole_lanes(dim);
    SpanView<float> view;
    view.key_stride = kLanes;
    view.value_stride = stride;
    for (std::int64_t at = begin / kLanes * kLanes; at < end; at += kLanes) {
        const std::int64_t block = at % kSpan / kLanes;
        float* keys = scratch.keys + block * dim * kLanes;
        float* values = scratch.values + block * kLanes * stride;
        view.keys[block] = keys;
        view.values[block] = values;
        if (aligned) {
            const T* from = pages.keys(at);
            for (std::int64_t d = 0; d < dim; ++d) store(keys + d * kLanes, load(from + d * call.block_size));
            from = pages.values(at);
            for (std::int64_t i = 0; i < kLanes * dim; i += kLanes) store(values + i, load(from + i));
        } else {
            for (std::int64_t lane = 0; lane < kLanes; ++lane) {
                const bool visible = begin <= at + lane && at + lane < end;
                for (std::int64_t d = 0; d < stride; ++d) {
                    const bool real = visible && d < dim;
                    if (d < dim) keys[d * kLanes + lane] = real ? expand(pages.keys(at + lane)[d * call.block_size]) : 0.0f;
                    values[lane * stride + d] = real ? expand(pages.values(at + lane)[d]) : 0.0f;
                }
            }
        }
    }
    return view;
}

// What the rows [row, row + count) see together.
INLINE Range visible_to(const Scratch& scratch, int row, int count) {
    Range seen = scratch.visible[row];
    for (int r = row + 1; r < row + count; ++r) {
        seen.begin = smaller(seen.begin, scratch.visible[r].begin);
        seen.end = larger(seen.end, scratch.visible[r].end);
    }
    return seen;
}

// The scores of all rows with the blocks that they see. Four blocks of keys stay in the nearest cache while all rows pass.
template <class T>
INLINE void score(const SpanView<T>& view, Range blocks, int rows, int dim, const Scratch& scratch) {
    for (int first = blocks.begin; first < blocks.end; first += 4) {
        for_row_tiles(rows, [&]<class R>(R, int row) {
            const Range seen = blocks_of(visible_to(scratch, row, R::value));
            for_column_tiles<columns_for(R::value)>(larger(first, seen.begin), smaller(first + 4, seen.end), [&]<class C>(C, int column) {
                const T* keys[C::value];
                for (int c = 0; c < C::value; ++c) keys[c] = view.keys[column + c];
                FloatTile<R::value, C::value> tile;
                tile.clear();
                tile.multiply(scratch.queries + row * dim, dim, keys, view.key_stride, dim);
                for (int r = 0; r < R::value; ++r) {
                    for (int c = 0; c < C::value; ++c) {
                        store(scratch.weights + (row + r) * kSpan + (column + c) * kLanes, tile.sums[r][c]);
                    }
                }
            });
        });
    }
}

// Turn one row's scores with `blocks` into weights: 0 for keys that it does not see.
INLINE Softmax weigh(float* row, Range blocks, Range visible, float cap) {
    const auto partly = [&](int block) { return visible.begin > block * kLanes || visible.end < (block + 1) * kLanes; };
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
            for_column_tiles<columns_for(R::value)>(first, smaller(first + 4, columns), [&]<class C>(C, int column) {
                FloatTile<R::value, C::value> tile;
                tile.clear();
                for (int block = blocks.begin; block < blocks.end; ++block) {
                    const T* values[C::value];
                    for (int c = 0; c < C::value; ++c) values[c] = view.values[block] + (column + c) * kLanes;
                    // Memory behind the last key may hold anything.
                    tile.multiply(scratch.weights + row * kSpan + block * kLanes, kSpan, values, view.value_stride,
                                  smaller(seen.end - block * kLanes, kLanes));
                }
                for (int r = 0; r < R::value; ++r) {
                    for (int c = 0; c < C::value; ++c) {
                        store(scratch.mixture + (row + r) * stride + (column + c) * kLanes, tile.sums[r][c]);
                    }
                }
            });
        });
    }
}

// One row of a unit: a query and one of the heads that share the KV head.
struct Row {
    const Query& query;
    std::int64_t head;
};

template <class T>
void attend_pages(const AttentionCall& call, const Unit& unit, int kv_head, std::uint8_t* memory) {
    const Scratch scratch(call, memory);
    const Query* queries = call.query + unit.first_query;
    const int group = call.num_heads / call.num_kv_heads, rows = unit.num_queries * group, dim = call.head_dim;
    const std::int64_t stride = whole_lanes(dim), heads = call.num_heads;
    const auto row_of = [&](int row) { return Row{queries[row / group], kv_head * group + row % group}; };

    std::int64_t first_visible = queries[0].first_visible, end = 0;
    for (int i = 0; i < unit.num_queries; ++i) {
        const Query& query = queries[i];
        first_visible = query.first_visible < first_visible ? query.first_visible : first_visible;
        end = query.end > end ? query.end : end;
        __builtin_memcpy(scratch.queries + i * group * dim, call.queries + (query.row * heads + kv_head * group) * dim,
                         sizeof(float) * group * dim);
    }
    for (int row = 0; row < rows; ++row) {
        scratch.so_far[row] = {-__builtin_inff(), 0.0f};
        __builtin_memset(scratch.merged + row * stride, 0, sizeof(float) * stride);
    }

    const Pages<T> pages{call, call.tables + queries[0].sequence * call.table_width, kv_head};
    const bool aligned = call.block_size % kLanes == 0 && dim % kLanes == 0;
    const auto begin_of = [&](std::int64_t span) { return first_visible > span * kSpan ? first_visible : span * kSpan; };
    const auto end_of = [&](std::int64_t span) { return end < (span + 1) * kSpan ? end : (span + 1) * kSpan; };
    prefetch_span(pages, begin_of(unit.first_span), end_of(unit.first_span));
    for (int span = unit.first_span; span < unit.end_span; ++span) {
        if (span + 1 < unit.end_span) prefetch_span(pages, begin_of(span + 1), end_of(span + 1));
        const std::int64_t start = std::int64_t{span} * kSpan, from = begin_of(span), to = end_of(span);
        const Range keys = {static_cast<int>(from - start), static_cast<int>(to - start)};
        for (int row = 0; row < rows; ++row) {
            const Query& query = row_of(row).query;
            scratch.visible[row] = {larger(keys.begin, static_cast<int>(query.first_visible - start)),
                                    smaller(keys.end, static_cast<int>(query.end - start))};
        }

        const auto walk = [&](const auto& view) {
            score(view, blocks_of(keys), rows, dim, scratch);
            for_row_tiles(rows, [&]<class R>(R, int first_row) {
                const Range blocks = blocks_of(visible_to(scratch, first_row, R::value));
                for (int row = first_row; row < first_row + R::value; ++row) {
                    scratch.span[row] = weigh(scratch.weights + row * kSpan, blocks, scratch.visible[row], call.softcap);
                }
            });
            mix(view, rows, dim, scratch);
        };
        if (aligned && rows < kStageRows) walk(view_span(pages, from, to));
        else walk(stage_span(pages, from, to, aligned, scratch));

        for (int row = 0; row < rows; ++row) {
            const auto [query, head] = row_of(row);
            const float* mixture = scratch.mixture + row * stride;
            if (query.first_record < 0) {
                merge_span(scratch.so_far[row], scratch.merged + row * stride, scratch.span[row], mixture, stride);
            } else if (const int index = span - first_span(query); index >= 0 && index < num_spans(query)) {
                const std::int64_t record = (query.first_record + index) * heads + head;
                __builtin_memcpy(call.record_values + record * stride, mixture, sizeof(float) * stride);
                __builtin_memcpy(call.record_weights + record * 2, &scratch.span[row], sizeof(Softmax));
            }
        }
    }
    for (int row = 0; row < rows; ++row) {
        const auto [query, head] = row_of(row);
        if (query.first_record < 0) {
            finish(scratch.so_far[row], scratch.merged + row * stride, dim, call.out + (query.row * heads + head) * dim);
        }
    }
}

template <class T>
INLINE void put(const float* from, std::int64_t n, T* to, std::int64_t stride) {
    if constexpr (sizeof(T) == 4) {
        for (std::int64_t i = 0; i < n; ++i) to[i * stride] = from[i];
    } else {
        for (std::int64_t i = 0; i < n; i += kLanes) {
            const std::int64_t count = n - i < kLanes ? n - i : kLanes;
            // Larger numbers than float16 holds become its largest, for an infinity would spoil whoever shares the page.
            const Vec x = count == kLanes ? load(from + i) : load_first(from + i, count);
            Half lanes[kLanes];
            store(lanes, min(set1(65504.0f), max(set1(-65504.0f), x)));
            for (std::int64_t lane = 0; lane < count; ++lane) to[(i + lane) * stride] = lanes[lane];
        }
    }
}

// The place of one head's row in its page: K and V of all heads, each head_dim * block_size long.
template <class T>
INLINE T* head_at(const AttentionCall& call, int head, std::int64_t block) {
    return reinterpret_cast<T*>(call.pages + block * call.page_bytes) + std::int64_t{head} * call.head_dim * call.block_size;
}

}  // namespace

void store_key(const AttentionCall& call, int kv_head, std::int64_t slot, const float* key) {
    const std::int64_t block = slot / call.block_size, offset = slot % call.block_size;
    if (call.half) put(key, call.head_dim, head_at<Half>(call, kv_head, block) + offset, call.block_size);
    else put(key, call.head_dim, head_at<float>(call, kv_head, block) + offset, call.block_size);
}

void store_value(const AttentionCall& call, int kv_head, std::int64_t slot, const float* value) {
    const std::int64_t block = slot / call.block_size, at = slot % call.block_size * call.head_dim;
    const int head = call.num_kv_heads + kv_head;
    if (call.half) put(value, call.head_dim, head_at<Half>(call, head, block) + at, 1);
    else put(value, call.head_dim, head_at<float>(call, head, block) + at, 1);
}

std::int64_t attend_scratch_bytes(const AttentionCall& call) { return Scratch(call, nullptr).bytes; }

void attend(const AttentionCall& call, const Unit& unit, int kv_head, std::uint8_t* scratch) {
    if (call.half) attend_pages<Half>(call, unit, kv_head, scratch);
    else attend_pages<float>(call, unit, kv_head, scratch);
}

void merge(const AttentionCall& call, const Query& query, int head, float* mixture) {
    const std::int64_t stride = whole_lanes(call.head_dim), heads = call.num_heads;
    Softmax softmax = {-__builtin_inff(), 0.0f};
    __builtin_memset(mixture, 0, sizeof(float) * stride);
    for (int span = 0; span < num_spans(query); ++span) {
        const std::int64_t record = (query.first_record + span) * heads + head;
        const Softmax part = {call.record_weights[2 * record], call.record_weights[2 * record + 1]};
        merge_span(softmax, mixture, part, call.record_values + record * stride, stride);
    }
    finish(softmax, mixture, call.head_dim, call.out + (query.row * heads + head) * call.head_dim);
}

}  // namespace ratoon::RATOON_ISA
