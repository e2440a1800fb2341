// Writing keys and values into their pages.
#include "kv_pages.hpp"

namespace ratoon::RATOON_ISA {
namespace {

INLINE void put(const float* from, std::int64_t n, float* to, std::int64_t stride) {
    for (std::int64_t i = 0; i < n; ++i) to[i * stride] = from[i];
}

INLINE void put(const float* from, std::int64_t n, Half* to, std::int64_t stride) {
    for (std::int64_t i = 0; i < n; i += kLanes) {
        const std::int64_t count = n - i < kLanes ? n - i : kLanes;
        const Vec x = count == kLanes ? load(from + i) : load_first(from + i, count);
        // What is too large for float16 becomes its largest: an infinity would make every sum that it is in
        // infinite, or no number at all.
        Half lanes[kLanes];
        store(lanes, min(set1(65504.0f), max(set1(-65504.0f), x)));
        for (std::int64_t lane = 0; lane < count; ++lane) to[(i + lane) * stride] = lanes[lane];
    }
}

// `head` counts the heads of K, then those of V.
template <class T>
INLINE T* head_at(const AttentionCall& call, std::int64_t head, std::int64_t slot) {
    return reinterpret_cast<T*>(call.pages + slot / call.block_size * call.page_bytes) +
           head * call.head_dim * call.block_size;
}

template <class T>
INLINE void put_key(const AttentionCall& call, int kv_head, std::int64_t slot, const float* key) {
    put(key, call.head_dim, head_at<T>(call, kv_head, slot) + slot % call.block_size, call.block_size);
}

template <class T>
INLINE void put_value(const AttentionCall& call, int kv_head, std::int64_t slot, const float* value) {
    T* head = head_at<T>(call, call.num_kv_heads + kv_head, slot);
    put(value, call.head_dim, head + slot % call.block_size * call.head_dim, 1);
}

}  // namespace

void store_key(const AttentionCall& call, int kv_head, std::int64_t slot, const float* key) {
    call.half ? put_key<Half>(call, kv_head, slot, key) : put_key<float>(call, kv_head, slot, key);
}

void store_value(const AttentionCall& call, int kv_head, std::int64_t slot, const float* value) {
    call.half ? put_value<Half>(call, kv_head, slot, value) : put_value<float>(call, kv_head, slot, value);
}

}  // namespace ratoon::RATOON_ISA
