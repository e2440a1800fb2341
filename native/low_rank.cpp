#include "low_rank.hpp"

#include <algorithm>

#include "require.hpp"

namespace ratoon {
namespace {

// Rows that one thread reduces at a time: enough to read `a` seldom, few enough to give every thread some.
constexpr std::int64_t kPartRows = 16;

}  // namespace

void Adapter::add(std::int64_t layer, int target, Format format_a, const std::uint8_t* a, Format format_b,
                  const std::uint8_t* b, std::int64_t rank, std::int64_t depth, std::int64_t columns,
                  std::int64_t unit) {
    require(0 <= layer && layer < static_cast<std::int64_t>(layers_.size()), "the adapter has no such layer");
    require(0 <= target && target < kTargets, "an adapter changes no such weight");
    require(!quantised(layout_of(format_a)) && !quantised(layout_of(format_b)), "adapters are of floats");
    ThreadPool alone(1);
    layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(target)] =
        LowRank{pack(alone, arena_, format_a, a, rank, depth, rank),
                pack(alone, arena_, format_b, b, columns, rank, unit)};
}

const LowRank* Adapter::find(std::int64_t layer, Target target) const {
    if (layer >= static_cast<std::int64_t>(layers_.size())) return nullptr;
    const auto& pair = layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(target)];
    return pair ? &*pair : nullptr;
}

AdapterRows::AdapterRows(std::int64_t num_rows, std::vector<AdapterSpan> spans)
    : num_rows(num_rows), spans(std::move(spans)) {
    std::int64_t reached = 0;
    for (const AdapterSpan& span : this->spans) {
        require(reached <= span.first && span.first < span.end && span.adapter,
                "an adapter's rows are out of order");
        reached = span.end;
    }
    require(reached <= num_rows, "an adapter's rows go on behind the last row");
}

AdapterRows AdapterRows::of(std::span<const std::int64_t> rows) const {
    std::vector<AdapterSpan> theirs;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows.size()); ++i) {
        for (const auto& [first, end, adapter] : spans) {
            if (rows[i] < first || end <= rows[i]) continue;
            if (!theirs.empty() && theirs.back().end == i && theirs.back().adapter == adapter) ++theirs.back().end;
            else theirs.push_back({i, i + 1, adapter});
        }
    }
    return AdapterRows(static_cast<std::int64_t>(rows.size()), std::move(theirs));
}

Adaptation::Adaptation(Engine& engine, Buffer& memory, const AdapterRows* adapters, std::int64_t layer,
                       std::int64_t num_rows, std::int64_t depth, std::initializer_list<Weight> weights)
    : engine_(engine) {
    if (!adapters) return;
    require(adapters->num_rows == num_rows, "x must have as many rows as its adapters");
    std::int64_t used = 0;
    int weight_index = 0;
    for (const Weight& weight : weights) {
        for (const AdapterSpan& span : adapters->spans) {
            const LowRank* pair = span.adapter->find(layer, weight.target);
            if (!pair) continue;
            const Panels &a = pair->a->panels, &b = pair->b->panels;
            require(a.depth == depth && b.columns == weight.columns && b.unit == weight.unit,
                    "an adapter was made for weights of another shape");
            for (std::int64_t row = span.first; row < span.end; row += kPartRows) {
                const std::int64_t end = std::min(span.end, row + kPartRows);
                parts_.push_back({weight_index, row, end, pair, span.adapter->scale(), used});
                used += (end - row) * a.columns;
            }
        }
        ++weight_index;
    }
    memory.reserve(static_cast<std::size_t>(used) * sizeof(float));
    low_ = memory.as<float>();
}

void Adaptation::reduce(ParallelRegion& region, const Rows& in) const {
    if (parts_.empty()) return;
    region.parallel_for(static_cast<std::int64_t>(parts_.size()), [&](std::int64_t i) {
        const Part& part = parts_[static_cast<std::size_t>(i)];
        const Panels& a = part.pair->a->panels;
        float* low = low_ + part.offset;
        engine_.kernels.product(a, 0, num_panels(a), in, part.first, part.end, low, a.columns, false);
        for (std::int64_t k = 0; k < (part.end - part.first) * a.columns; ++k) low[k] *= part.scale;
    });
}

void Adaptation::add(int weight, std::int64_t first_row, std::int64_t end_row, std::int64_t first_panel,
                     std::int64_t end_panel, float* out, std::int64_t stride) const {
    for (const Part& part : parts_) {
        const std::int64_t first = std::max(first_row, part.first), end = std::min(end_row, part.end);
        if (part.weight != weight || first >= end) continue;
        const Panels& b = part.pair->b->panels;
        const Rows low = {low_ + part.offset, {}, b.depth};
        engine_.kernels.product(b, first_panel, end_panel, low, first - part.first, end - part.first,
                                out + (first - first_row) * stride, stride, true);
    }
}

}  // namespace ratoon
