#include <algorithm>
#include <cstring>

#include "modules.hpp"
#include "require.hpp"

namespace ratoon {

FeedForward::FeedForward(std::shared_ptr<Engine> engine, FeedForwardSettings settings)
    : engine_(std::move(engine)), s_(std::move(settings)) {
    const Panels &gate = s_.gate->panels, &up = s_.up->panels, &down = s_.down->panels;
    require(gate.depth == hidden() && up.depth == hidden() && down.columns == hidden() &&
                gate.columns == up.columns && gate.columns == down.depth,
            "the weights of a feed-forward module have other shapes");
    require(gate.columns % kGroup == 0, "the inner width must be a multiple of 32");
    require(s_.post_norm.empty() || s_.post_norm.size() == s_.norm.size(),
            "the post norm has another length");
}

// Gate and up of one group of 32 columns for a slice of rows, so that the group can be quantised at once.
void FeedForward::activate_group(std::int64_t group, std::int64_t first_row, std::int64_t end_row,
                                 const Rows& in, const Adaptation& adaptation, const Rows& active,
                                 float* scratch) const {
    constexpr std::int64_t kPanels = kGroup / kPanel;
    const Kernels& kernels = engine_->kernels;
    const std::int64_t first = group * kPanels, end = first + kPanels;
    float *gate = scratch, *up = gate + kRowSlice * kGroup, *result = up + kRowSlice * kGroup;
    kernels.product(s_.gate->panels, first, end, in, first_row, end_row, gate, kGroup, false);
    kernels.product(s_.up->panels, first, end, in, first_row, end_row, up, kGroup, false);
    adaptation.add(0, first_row, end_row, first, end, gate, kGroup);
    adaptation.add(1, first_row, end_row, first, end, up, kGroup);
    kernels.activate(s_.activation, gate, up, (end_row - first_row) * kGroup, result);
    if (active.tiles.data) kernels.quantise(result, first_row, end_row, group, group + 1, active.tiles);
    if (active.values) {
        for (std::int64_t row = first_row; row < end_row; ++row, result += kGroup) {
            std::memcpy(active.values + row * active.depth + group * kGroup, result, kGroup * sizeof(float));
        }
    }
}

void FeedForward::run(float* x, std::int64_t num_rows, const AdapterRows* adapters) const {
    Engine& engine = *engine_;
    const Running running(engine);
    const std::int64_t floats = std::max(hidden(), 3 * kRowSlice * kGroup);
    engine.threads.reserve_scratch(static_cast<std::size_t>(floats) * sizeof(float));
    const Rows in = input_rows(engine.workspace.first, engine.kernels, num_rows, {s_.gate, s_.up}, adapters);
    const Rows active = input_rows(engine.workspace.last, engine.kernels, num_rows, {s_.down}, adapters);
    const Residual residual(engine, s_.down->panels, s_.post_norm, s_.eps, num_rows);
    const std::int64_t inner = active.depth, groups = inner / kGroup, slices = divide_up(num_rows, kRowSlice);
    const std::int64_t chunks = num_parts(engine, slices, groups, groups);
    const Adaptation entering(engine, engine.workspace.first.low, adapters, s_.layer, num_rows, hidden(),
                              {{Target::kGate, inner, inner}, {Target::kUp, inner, inner}});
    const Adaptation leaving(engine, engine.workspace.last.low, adapters, s_.layer, num_rows, inner,
                             {{Target::kDown, hidden(), hidden()}});
    engine.threads.run([&](ParallelRegion& region) {
        normalise_rows(engine, region, x, num_rows, s_.norm, s_.eps, in);
        entering.reduce(region, in);
        region.parallel_for(slices * chunks, [&](std::int64_t item, std::uint8_t* scratch) {
            const std::int64_t row = item / chunks * kRowSlice, chunk = item % chunks;
            for (std::int64_t g = chunk * groups / chunks; g < (chunk + 1) * groups / chunks; ++g)
                activate_group(g, row, std::min(num_rows, row + kRowSlice), in, entering, active,
                               reinterpret_cast<float*>(scratch));
        });
        leaving.reduce(region, active);
        residual.run(region, active, leaving, x);
    });
}

}  // namespace ratoon
