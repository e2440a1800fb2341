// The softmax of a few rows over one span of keys.
#pragma once

#include "kv_pages.hpp"

namespace ratoon::RATOON_ISA {

constexpr float kNothing = -1e30f;  // the best score of a row that has seen no key

// kCount rows in one span, on their way from scores to weights. Lanes behind them have seen nothing.
template <int kCount>
struct SpanRows {
    alignas(64) float values[kCount][kSpan];  // scores, or weights
    Range visible[kCount];                    // keys of the span
    alignas(64) float best[kLanes];           // score, as an exponent of 2
    alignas(64) float total[kLanes];          // sum of weights
    alignas(64) float scaled_total[kLanes];   // the same of weights as the mixture takes them

    INLINE SpanRows() {
        store(best, set1(kNothing));
        store(total, zero());
        store(scaled_total, zero());
    }
};

}  // namespace ratoon::RATOON_ISA
