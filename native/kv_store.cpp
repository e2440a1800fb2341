// Writing keys and values into their pages, and queries to where attention reads them.
#include "kv_pages.hpp"
#include "int16_vectors.hpp"

namespace ratoon::RATOON_ISA {
namespace {

// A slot's block, and its offset there.
template <class T>
struct SlotAddress {
    KVPiece<T> piece;
    std::int64_t offset;

    SlotAddress(const AttentionCall& call, int kv_head, std::int64_t slot)
        : piece(piece_of<T>(call, slot / call.block_size, kv_head)), offset(slot % call.block_size) {}
};

INLINE void put_key(const AttentionCall& call, const SlotAddress<Int16>& to, const float* key) {
    const float length = length_of(key, call.head_dim);
    const auto put = [&](std::int64_t i, const Int16* integers, std::int64_t count) {
        for (std::int64_t lane = 0; lane < count; ++lane)
            to.piece.keys[row_layout<Int16>(i + lane, call.head_dim, call.block_size)[to.offset]] = integers[lane];
    };
    to.piece.key_scales[to.offset] = round_to_int16(key, call.head_dim, length, put);
}
INLINE void put_key(const AttentionCall& call, const SlotAddress<float>& to, const float* key) {
    for (std::int64_t i = 0; i < call.head_dim; ++i) to.piece.keys[i * call.block_size + to.offset] = key[i];
}

INLINE void put_value(const AttentionCall& call, const SlotAddress<Int16>& to, const float* value) {
    const float largest = largest_of(value, call.head_dim);
    const RowLayout row = row_layout<Int16>(to.offset, call.block_size, call.head_dim);
    const auto put = [&](std::int64_t i, const Int16* integers, std::int64_t count) {
        for (std::int64_t lane = 0; lane < count; ++lane) to.piece.values[row[i + lane]] = integers[lane];
    };
    to.piece.value_scales[to.offset] = round_to_int16(value, call.head_dim, largest, put);
}
INLINE void put_value(const AttentionCall& call, const SlotAddress<float>& to, const float* value) {
    __builtin_memcpy(to.piece.values + to.offset * call.head_dim, value, sizeof(float) * call.head_dim);
}

}  // namespace

void store_query(const AttentionCall& call, std::int64_t row, int head, const float* query) {
    const std::int64_t dim = call.head_dim, bytes = query_bytes(call.integers, call.head_dim);
    std::uint8_t* to = call.queries + (row * call.num_heads + head) * bytes;
    if (!call.integers) {
        __builtin_memcpy(to, query, static_cast<std::size_t>(bytes));
        return;
    }
    auto* integers = reinterpret_cast<Int16*>(to);
    integers[dim - 1 + dim % 2] = 0;  // of an odd number, the last one's partner
    const auto put = [&](std::int64_t i, const Int16* from, std::int64_t count) {
        __builtin_memcpy(integers + i, from, static_cast<std::size_t>(count) * sizeof(Int16));
    };
    const float scale = round_to_int16(query, dim, length_of(query, dim), put);
    __builtin_memcpy(to + bytes - sizeof scale, &scale, sizeof scale);
}

void store_key(const AttentionCall& call, int kv_head, std::int64_t slot, const float* key) {
    if (call.integers) put_key(call, SlotAddress<Int16>(call, kv_head, slot), key);
    else put_key(call, SlotAddress<float>(call, kv_head, slot), key);
}

void store_value(const AttentionCall& call, int kv_head, std::int64_t slot, const float* value) {
    if (call.integers) put_value(call, SlotAddress<Int16>(call, kv_head, slot), value);
    else put_value(call, SlotAddress<float>(call, kv_head, slot), value);
}

}  // namespace ratoon::RATOON_ISA
