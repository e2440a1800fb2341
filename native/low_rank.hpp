// Low-rank adapters (LoRA, arXiv:2106.09685): beside a weight W, a row also passes scale * b(a(x)).
//
// The rows of a step may go through different adapters or none. A row's part is computed from its float
// input: one chain of multiply-adds for each number of a(x), then one for each of b, added once to W's sum.
// So the row rule holds, and rows without an adapter are not touched.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine.hpp"
#include "packing.hpp"
#include "thread_pool.hpp"

namespace ratoon {

// The weights of a layer that an adapter may change, counted as Python counts them.
enum class Target { kQuery, kKey, kValue, kOut, kGate, kUp, kDown };
constexpr int kTargets = 7;

struct LowRank {
    Matrix a, b;
};

// All pairs of one adapter, in memory of its own that goes with it.
class Adapter {
public:
    Adapter(std::int64_t num_layers, float scale) : scale_(scale), layers_(num_layers) {}

    float scale() const { return scale_; }
    // Pack a [rank][depth] and b [columns][rank], of floats; b's panels start afresh every `unit` columns.
    // Needs no engine, so it may run beside a step.
    void add(std::int64_t layer, int target, Format format_a, const std::uint8_t* a, Format format_b,
             const std::uint8_t* b, std::int64_t rank, std::int64_t depth, std::int64_t columns,
             std::int64_t unit);
    // Null where the adapter leaves the weight as it is.
    const LowRank* find(std::int64_t layer, Target target) const;

private:
    float scale_;
    Arena arena_;
    std::vector<std::array<std::optional<LowRank>, kTargets>> layers_;
};

// Rows [first, end) of a step go through one adapter.
struct AdapterSpan {
    std::int64_t first, end;
    std::shared_ptr<Adapter> adapter;
};

struct AdapterRows {
    // Throws std::invalid_argument unless the spans come in order, without overlap, and end within the rows.
    AdapterRows(std::int64_t num_rows, std::vector<AdapterSpan> spans);
    // The adapters of these rows only.
    AdapterRows of(std::span<const std::int64_t> rows) const;

    std::int64_t num_rows;
    std::vector<AdapterSpan> spans;
};

// What the adapters of a step add to products that have one input in common.
class Adaptation {
public:
    struct Weight {
        Target target;
        std::int64_t columns, unit;
    };

    // Before the region; `memory` holds a(x) until the products are done. Without adapters there is nothing
    // to do, then or later. Throws std::invalid_argument where an adapter was made for other shapes.
    Adaptation(Engine& engine, Buffer& memory, const AdapterRows* adapters, std::int64_t layer,
               std::int64_t num_rows, std::int64_t depth, std::initializer_list<Weight> weights);

    // A stage: compute a(x) from the float input rows.
    void reduce(ParallelRegion& region, const Rows& in) const;
    // Add b(a(x)) of weight number `weight` for these rows and panels; `out` points at the first of both.
    void add(int weight, std::int64_t first_row, std::int64_t end_row, std::int64_t first_panel,
             std::int64_t end_panel, float* out, std::int64_t stride) const;

private:
    // A few rows of one span and one weight; their a(x) begin at low_ + offset.
    struct Part {
        int weight;
        std::int64_t first, end;
        const LowRank* pair;
        float scale;
        std::int64_t offset;
    };
    Engine& engine_;
    std::vector<Part> parts_;
    float* low_ = nullptr;
};

}  // namespace ratoon
