#include "modules.hpp"

#include <algorithm>
#include <cmath>

#include "require.hpp"
#include "stages.hpp"

namespace ratoon {
namespace {

// Logits that the LM head computes at once: few enough for the highest to be found while they are in the cache.
constexpr std::int64_t kCached = 1 << 14;

// A NaN is higher than any number.
bool is_lower(float a, float b) { return a < b || (std::isnan(b) && !std::isnan(a)); }

}  // namespace

Linear::Linear(std::shared_ptr<Engine> engine, std::vector<Matrix> matrices)
    : engine_(std::move(engine)), matrices_(std::move(matrices)) {
    require(!matrices_.empty(), "a product needs a matrix");
    for (const Matrix& matrix : matrices_) {
        require(matrix->panels.depth == depth(), "matrices side by side must have the same inputs");
        columns_ += matrix->panels.columns;
    }
}

void Linear::run(const float* x, std::int64_t num_rows, float* out) const {
    const Running running(*engine_);
    const Rows rows = input_rows(engine_->workspace.first, engine_->kernels, num_rows, matrices_);
    engine_->threads.run([&](ParallelRegion& region) {
        region.parallel_for_rows(num_rows,
                          [&](std::int64_t row) { put_row(engine_->kernels, x + row * rows.depth, row, rows); });
        std::int64_t column = 0;
        for (const Matrix& matrix : matrices_) {
            multiply_rows(*engine_, region, matrix->panels, rows, num_rows, out + column, columns_, false);
            column += matrix->panels.columns;
        }
    });
}

Embedding::Embedding(std::shared_ptr<Engine> engine, Format format, std::int64_t columns, float scale)
    : engine_(std::move(engine)), format_(format), columns_(columns), scale_(scale) {}

void Embedding::run(const std::uint8_t* stored, std::int64_t count, float* out) const {
    const Running running(*engine_);
    const std::int64_t stride = row_bytes(format_, columns_);
    engine_->threads.run([&](ParallelRegion& region) {
        region.parallel_for_rows(count, [&](std::int64_t i) {
            float* row = out + i * columns_;
            expand_row(format_, stored + i * stride, columns_, row);
            for (std::int64_t c = 0; c < columns_; ++c) row[c] *= scale_;
        });
    });
}

LMHead::LMHead(std::shared_ptr<Engine> engine, Floats norm, Matrix out, float eps, float softcap)
    : engine_(std::move(engine)), norm_(std::move(norm)), out_(std::move(out)), eps_(eps), softcap_(softcap) {
    require(out_->panels.depth == hidden(), "the LM head's weights have another shape");
}

void LMHead::run(const float* x, std::int64_t num_rows, float* out, std::int32_t* best) const {
    Engine& engine = *engine_;
    const Running running(engine);
    engine.threads.reserve_scratch(static_cast<std::size_t>(hidden()) * 4);
    const Rows in = input_rows(engine.workspace.first, engine.kernels, num_rows, {out_});
    const std::int64_t slices = divide_up(num_rows, kRowSlice), count = num_panels(out_->panels);
    const std::int64_t cached = std::min(num_rows, kRowSlice) * columns() / kCached;
    const std::int64_t pieces = std::min(count, std::max(cached, std::int64_t{4} * engine.threads.size()));
    const auto first_panel = [&](std::int64_t piece) { return piece * count / pieces; };
    Floats highest(static_cast<std::size_t>(num_rows * pieces));  // of each piece of each row
    engine.threads.run([&](ParallelRegion& region) {
        normalise_rows(engine, region, x, num_rows, norm_, eps_, in);
        region.parallel_for(slices * pieces, [&](std::int64_t item) {
            const std::int64_t first_row = item / pieces * kRowSlice, piece = item % pieces;
            const std::int64_t end_row = std::min(num_rows, first_row + kRowSlice);
            const std::int64_t first = first_panel(piece), end = first_panel(piece + 1);
            const std::int64_t width = std::min(columns(), end * kPanel) - first * kPanel;
            float* numbers = out + first_row * columns() + first * kPanel;
            engine.kernels.product(out_->panels, first, end, in, first_row, end_row, numbers, columns(),
                                   false);
            for (std::int64_t row = first_row; row < end_row; ++row, numbers += columns()) {
                if (softcap_ != 0.0f) engine.kernels.softcap(numbers, width, softcap_);
                highest[static_cast<std::size_t>(row * pieces + piece)] =
                    engine.kernels.highest(numbers, width);
            }
        });
    });
    for (std::int64_t row = 0; row < num_rows; ++row) {
        const float* of_pieces = highest.data() + row * pieces;
        const float* piece = std::max_element(of_pieces, of_pieces + pieces, is_lower);
        const float* numbers = out + row * columns();
        const auto is_it = [&](float number) { return number == *piece || std::isnan(number); };
        const float* first = numbers + first_panel(piece - of_pieces) * kPanel;
        best[row] = static_cast<std::int32_t>(std::find_if(first, numbers + columns(), is_it) - numbers);
    }
}

}  // namespace ratoon
