// Keys and values of one KV head in the pages of a pool, and how a span of them is brought to the kernels.
#pragma once

#include "simd.hpp"

namespace ratoon::RATOON_ISA {

INLINE constexpr std::int64_t whole_lanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// One KV head of one sequence.
template <class T>
struct KVHead {
    const AttentionCall& call;
    const std::int32_t* table;
    int kv_head;

    INLINE const T* keys(std::int64_t position) const {
        return head(position, kv_head) + position % call.block_size;
    }
    INLINE const T* values(std::int64_t position) const {
        return head(position, call.num_kv_heads + kv_head) + position % call.block_size * call.head_dim;
    }
    INLINE const T* head(std::int64_t position, std::int64_t index) const {
        const std::uint8_t* page = call.pages + table[position / call.block_size] * call.page_bytes;
        return reinterpret_cast<const T*>(page) + index * call.head_dim * call.block_size;
    }
};

// Some keys of a span in blocks of sixteen: K [dim][key_stride], V [16][value_stride]; only the blocks that
// hold the keys asked for are set.
template <class T>
struct SpanView {
    const T* keys[kSpan / kLanes];
    const T* values[kSpan / kLanes];
    std::int64_t key_stride, value_stride;
};

// Whether blocks of sixteen keys lie in one page each, and rows of V are whole vectors.
INLINE bool aligned(const AttentionCall& call) {
    return call.block_size % kLanes == 0 && call.head_dim % kLanes == 0;
}

// Ask for the keys [begin, end) to be brought near: pages lie far apart, which no processor foresees.
template <class T>
INLINE void prefetch_span(const KVHead<T>& head, std::int64_t begin, std::int64_t end) {
    const std::int64_t size = head.call.block_size, elements = head.call.head_dim * size;
    constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(T));
    for (std::int64_t at = begin / size * size; at < end; at += size) {
        const T *keys = head.keys(at), *values = head.values(at);
        for (std::int64_t i = 0; i < elements; i += kLine) __builtin_prefetch(keys + i, 0, 2);
        for (std::int64_t i = 0; i < elements; i += kLine) __builtin_prefetch(values + i, 0, 2);
    }
}

// The keys [begin, end) where they lie; for aligned pages.
template <class T>
INLINE SpanView<T> view_span(const KVHead<T>& head, std::int64_t begin, std::int64_t end) {
    SpanView<T> view;
    view.key_stride = head.call.block_size;
    view.value_stride = head.call.head_dim;
    for (std::int64_t at = begin / kLanes * kLanes; at < end; at += kLanes) {
        view.keys[at % kSpan / kLanes] = head.keys(at);
        view.values[at % kSpan / kLanes] = head.values(at);
    }
    return view;
}

INLINE float expand(float x) { return x; }
INLINE float expand(Half x) {
    const Half lanes[kLanes] = {x};
    return first(load(lanes));
}

// Sixteen keys from `at` on, expanded to keys [dim][16] and values [16][whole dim].
template <class T>
INLINE void expand_block(const KVHead<T>& head, std::int64_t at, float* keys, float* values) {
    const T *from_keys = head.keys(at), *from_values = head.values(at);
    const std::int64_t dim = head.call.head_dim, size = head.call.block_size;
    for (std::int64_t d = 0; d < dim; ++d) store(keys + d * kLanes, load(from_keys + d * size));
    for (std::int64_t i = 0; i < kLanes * dim; i += kLanes) store(values + i, load(from_values + i));
}

// The same key by key, for pages that are not aligned; zeros outside [begin, end).
template <class T>
INLINE void gather_block(const KVHead<T>& head, std::int64_t at, std::int64_t begin, std::int64_t end,
                         float* keys, float* values) {
    const std::int64_t dim = head.call.head_dim, stride = whole_lanes(dim);
    __builtin_memset(keys, 0, sizeof(float) * static_cast<std::size_t>(dim * kLanes));
    __builtin_memset(values, 0, sizeof(float) * static_cast<std::size_t>(kLanes * stride));
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        if (at + lane < begin || at + lane >= end) continue;
        const T *from_keys = head.keys(at + lane), *from_values = head.values(at + lane);
        for (std::int64_t d = 0; d < dim; ++d) {
            keys[d * kLanes + lane] = expand(from_keys[d * head.call.block_size]);
            values[lane * stride + d] = expand(from_values[d]);
        }
    }
}

// The keys [begin, end) as floats in `keys` [blocks][dim][16] and `values` [kSpan][whole dim].
template <class T>
INLINE SpanView<float> expand_span(const KVHead<T>& head, std::int64_t begin, std::int64_t end, float* keys,
                                   float* values) {
    SpanView<float> view;
    view.key_stride = kLanes;
    view.value_stride = whole_lanes(head.call.head_dim);
    for (std::int64_t at = begin / kLanes * kLanes; at < end; at += kLanes) {
        const std::int64_t block = at % kSpan / kLanes;
        float* to_keys = keys + block * kLanes * head.call.head_dim;
        float* to_values = values + block * kLanes * view.value_stride;
        if (aligned(head.call)) expand_block(head, at, to_keys, to_values);
        else gather_block(head, at, begin, end, to_keys, to_values);
        view.keys[block] = to_keys;
        view.values[block] = to_values;
    }
    return view;
}

}  // namespace ratoon::RATOON_ISA
