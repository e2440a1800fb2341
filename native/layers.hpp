// The layers of a model, in the order in which a row passes through them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention_module.hpp"
#include "modules.hpp"

namespace ratoon {

struct Layers {
    // Take x [num_rows][hidden] through all layers, in place, and write K and V of all rows; out is the last
    // output of `rows`. Of the last layer, which serves nothing but that, all else is computed for them only.
    void run(float* x, std::int64_t num_rows, Step& step, const AdapterRows* adapters,
             std::span<const std::int64_t> rows, float* out) const;

    // At least one, and as many of these as of those.
    std::vector<const Attention*> attention;
    std::vector<const FeedForward*> feed_forward;
};

}  // namespace ratoon
