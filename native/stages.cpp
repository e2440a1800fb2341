#include "stages.hpp"

#include <algorithm>
#include <cstring>

namespace ratoon {
namespace {

bool is_quantised(const Matrix& matrix) { return quantised(layout_of(matrix->panels.format)); }

}  // namespace

Rows input_rows(Workspace::Input& memory, const Kernels& kernels, std::int64_t num_rows,
                const std::vector<Matrix>& matrices, bool for_adapters) {
    const std::int64_t depth = matrices.front()->panels.depth;
    Rows rows = {nullptr, {nullptr, num_rows, depth / kGroup, kernels.tile_height}, depth};
    if (for_adapters || !std::ranges::all_of(matrices, is_quantised)) {
        memory.values.reserve(static_cast<std::size_t>(num_rows * depth) * 4);
        rows.values = memory.values.as<float>();
    }
    if (std::ranges::any_of(matrices, is_quantised)) {
        memory.tiles.reserve(static_cast<std::size_t>(num_rows * rows.tiles.groups * QuantTiles::kRowBytes));
        rows.tiles.data = memory.tiles.data();
    }
    return rows;
}

void put_row(const Kernels& kernels, const float* x, std::int64_t row, const Rows& rows) {
    if (rows.values) std::memcpy(rows.values + row * rows.depth, x, static_cast<std::size_t>(rows.depth) * 4);
    if (rows.tiles.data) kernels.quantise(x, row, row + 1, 0, rows.tiles.groups, rows.tiles);
}

void normalise_rows(Engine& engine, ParallelRegion& region, const float* x, std::int64_t num_rows, const Floats& norm,
                    float eps, const Rows& rows) {
    region.parallel_for_rows(num_rows, [&](std::int64_t row, std::uint8_t* scratch) {
        auto* normal = reinterpret_cast<float*>(scratch);
        engine.kernels.normalise(x + row * rows.depth, norm.data(), eps, rows.depth, normal);
        put_row(engine.kernels, normal, row, rows);
    });
}

void multiply_rows(Engine& engine, ParallelRegion& region, const Panels& panels, const Rows& rows,
                   std::int64_t num_rows, float* out, std::int64_t stride, bool add,
                   const Adaptation* adaptation) {
    const std::int64_t slices = divide_up(num_rows, kRowSlice), count = num_panels(panels);
    const std::int64_t chunks = num_parts(engine, slices, count, divide_up(count, 4));
    region.parallel_for(slices * chunks, [&](std::int64_t item) {
        const std::int64_t first_row = item / chunks * kRowSlice, chunk = item % chunks;
        const std::int64_t first = chunk * count / chunks, end = (chunk + 1) * count / chunks;
        const std::int64_t end_row = std::min(num_rows, first_row + kRowSlice);
        float* to = out + first_row * stride + first * kPanel;
        engine.kernels.product(panels, first, end, rows, first_row, end_row, to, stride, add);
        if (adaptation) adaptation->add(0, first_row, end_row, first, end, to, stride);
    });
}

Residual::Residual(Engine& engine, const Panels& panels, const Floats& post_norm, float eps,
                   std::int64_t num_rows)
    : engine_(engine), panels_(panels), post_norm_(post_norm), eps_(eps), num_rows_(num_rows) {
    engine.workspace.product.reserve(static_cast<std::size_t>(num_rows) * post_norm.size() * 4);
    product_ = engine.workspace.product.as<float>();
}

void Residual::run(ParallelRegion& region, const Rows& rows, const Adaptation& adaptation, float* x) const {
    const std::int64_t width = panels_.columns;
    if (post_norm_.empty()) {
        return multiply_rows(engine_, region, panels_, rows, num_rows_, x, width, true, &adaptation);
    }
    multiply_rows(engine_, region, panels_, rows, num_rows_, product_, width, false, &adaptation);
    region.parallel_for_rows(num_rows_, [&](std::int64_t row, std::uint8_t* scratch) {
        auto* normal = reinterpret_cast<float*>(scratch);
        engine_.kernels.normalise(product_ + row * width, post_norm_.data(), eps_, width, normal);
        for (std::int64_t i = 0; i < width; ++i) x[row * width + i] += normal[i];
    });
}

}  // namespace ratoon
