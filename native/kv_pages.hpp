// Keys and values of one KV head in the pages of a pool, sixteen positions at a time.
//
// In a page every KV head has a piece of its own: K as a matrix [dim][block_size], V as a matrix
// [block_size][dim] and, where they are 16-bit integers, a float32 scale for each key and then for each value.
// Of integers two rows are interleaved, element by element (a last row without a partner stays as it is),
// because processors multiply pairs of them and add. So a strip, which is sixteen consecutive positions, gives
// vectors as it lies there: of sixteen keys, or of sixteen dimensions of a pair of values.
#pragma once

#include "simd.hpp"

namespace ratoon::RATOON_ISA {

using Int16 = std::int16_t;

INLINE constexpr std::int64_t whole_lanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Positions, or lanes of a strip (sixteen positions), or strips: [begin, end), empty where begin >= end.
struct Range {
    int begin, end;
};

INLINE int smaller(int a, int b) { return a < b ? a : b; }
INLINE int larger(int a, int b) { return a > b ? a : b; }

// How many rows of a matrix are interleaved.
template <class T>
constexpr std::int64_t kInterleaved = sizeof(T) == 2 ? 2 : 1;

// Where a row of a matrix lies: its first element, and the distance from one to the next.
struct RowLayout {
    std::int64_t begin, step;

    INLINE std::int64_t operator[](std::int64_t column) const { return begin + column * step; }
};

template <class T>
INLINE RowLayout row_layout(std::int64_t row, std::int64_t rows, std::int64_t columns) {
    const std::int64_t in_pair = row % kInterleaved<T>, first = row - in_pair;
    const std::int64_t step = first + kInterleaved<T> > rows ? 1 : kInterleaved<T>;
    return {first * columns + in_pair, step};
}

// One KV head's piece of a page, or what of it begins at some offset.
template <class T>
struct KVPiece {
    T *keys, *values;
    float *key_scales, *value_scales;  // of integers
};

template <class T>
INLINE KVPiece<T> piece_of(const AttentionCall& call, std::int64_t block_id, std::int64_t kv_head) {
    const std::int64_t count = std::int64_t{call.head_dim} * call.block_size;
    std::uint8_t* piece = call.pages + block_id * call.page_bytes +
                          kv_head * kv_head_bytes(call.integers, call.head_dim, call.block_size);
    auto* keys = reinterpret_cast<T*>(piece);
    auto* scales = reinterpret_cast<float*>(keys + 2 * count);
    return {keys, keys + count, scales, scales + call.block_size};
}

// One KV head of one sequence.
template <class T>
struct KVHead {
    const AttentionCall& call;
    const std::int32_t* table;
    std::int64_t kv_head;

    INLINE KVPiece<T> piece(std::int64_t position) const {
        return piece_of<T>(call, table[position / call.block_size], kv_head);
    }
};

// Whether a strip's keys lie side by side: in one page, and all rows interleaved.
template <class T>
INLINE bool in_place(const AttentionCall& call) {
    return call.block_size % kLanes == 0 && call.head_dim % (kInterleaved<T> == 1 ? kLanes : kInterleaved<T>) == 0;
}

// The strip at a position, where it lies. Rows of K are block_size elements long (times kInterleaved).
template <class T>
INLINE KVPiece<T> strip_in_place(const KVHead<T>& head, std::int64_t at) {
    const KVPiece<T> piece = head.piece(at);
    const std::int64_t offset = at % head.call.block_size;
    return {piece.keys + offset * kInterleaved<T>, piece.values + offset * head.call.head_dim,
            piece.key_scales + offset, piece.value_scales + offset};
}

// How many elements a gathered strip takes.
template <class T>
INLINE std::int64_t gathered_elements(std::int64_t dim) {
    const std::int64_t rows = (dim + kInterleaved<T> - 1) / kInterleaved<T> * kInterleaved<T>;
    const auto scales = static_cast<std::int64_t>(2 * kLanes * sizeof(float) / sizeof(T));
    return kLanes * (rows + whole_lanes(dim)) + scales;
}

// The strip at a position copied to `memory`, whose rows are 16 keys and whole vectors of values long.
// Only `lanes` are read, the others become zeros.
template <class T>
INLINE KVPiece<T> gather_strip(const KVHead<T>& head, std::int64_t at, Range lanes, T* memory) {
    const std::int64_t dim = head.call.head_dim, size = head.call.block_size, stride = whole_lanes(dim),
                       rows = (dim + kInterleaved<T> - 1) / kInterleaved<T> * kInterleaved<T>;
    __builtin_memset(memory, 0, static_cast<std::size_t>(gathered_elements<T>(dim)) * sizeof(T));
    T* values = memory + rows * kLanes;
    auto* scales = reinterpret_cast<float*>(values + kLanes * stride);
    for (std::int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
        const KVPiece<T> from = head.piece(at + lane);
        const std::int64_t offset = (at + lane) % size;
        const RowLayout to_value = row_layout<T>(lane, kLanes, stride), value = row_layout<T>(offset, size, dim);
        for (std::int64_t d = 0; d < dim; ++d) {
            memory[row_layout<T>(d, rows, kLanes)[lane]] = from.keys[row_layout<T>(d, dim, size)[offset]];
            values[to_value[d]] = from.values[value[d]];
        }
        if constexpr (kInterleaved<T> > 1) {
            scales[lane] = from.key_scales[offset];
            scales[kLanes + lane] = from.value_scales[offset];
        }
    }
    return {memory, values, scales, scales + kLanes};
}

}  // namespace ratoon::RATOON_ISA
