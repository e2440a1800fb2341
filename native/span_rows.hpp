// The softmax of a few rows over one span of keys.
#pragma once

#include "kv_pages.hpp"

namespace ratoon::RATOON_ISA {

constexpr float kNothing = -1e30f;  // the best score of a row that has seen no key

// kCount rows in one span, on their way from scores to weights. Lanes behind them have seen nothing.
template <int kCount>
struct SpanRows {
    alignas(64) float values[kCount][kSpan];  // scores, or weights
    float scales[kCount], offsets[kCount];    // a weight is 2^(score * scale + offset)
    Range visible[kCount];                    // keys of the span
    alignas(64) float best[kLanes];           // score times its scale
    alignas(64) float total[kLanes];          // sum of weights

    INLINE SpanRows() {
        store(best, set1(kNothing));
        store(total, zero());
    }
};

}  // namespace ratoon::RATOON_ISA
