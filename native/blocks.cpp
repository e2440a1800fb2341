#include "blocks.hpp"

#include "require.hpp"
#include "stages.hpp"

namespace ratoon {

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
    engine_->pool.run([&](Worker& worker) {
        worker.share_rows(num_rows,
                     [&](std::int64_t row) { put_row(engine_->kernels, x + row * rows.depth, row, rows); });
        std::int64_t column = 0;
        for (const Matrix& matrix : matrices_) {
            multiply_rows(*engine_, worker, matrix->panels, rows, num_rows, out + column, columns_, false);
            column += matrix->panels.columns;
        }
    });
}

Embedding::Embedding(std::shared_ptr<Engine> engine, Format format, const std::uint8_t* stored,
                     std::int64_t rows, std::int64_t columns, float scale)
    : engine_(std::move(engine)),
      format_(format),
      stored_(stored),
      rows_(rows),
      columns_(columns),
      scale_(scale) {}

void Embedding::run(const std::int32_t* ids, std::int64_t count, float* out) const {
    const Running running(*engine_);
    for (std::int64_t i = 0; i < count; ++i) {
        if (ids[i] < 0 || ids[i] >= rows_)
            refuse("token id " + std::to_string(ids[i]) + " is not in the vocabulary");
    }
    const std::int64_t stride = row_bytes(format_, columns_);
    engine_->pool.run([&](Worker& worker) {
        worker.share_rows(count, [&](std::int64_t i) {
            float* row = out + i * columns_;
            expand_row(format_, stored_ + ids[i] * stride, columns_, row);
            for (std::int64_t c = 0; c < columns_; ++c) row[c] *= scale_;
        });
    });
}

Head::Head(std::shared_ptr<Engine> engine, Floats norm, Matrix out, float eps, float softcap)
    : engine_(std::move(engine)), norm_(std::move(norm)), out_(std::move(out)), eps_(eps), softcap_(softcap) {
    require(out_->panels.depth == hidden(), "the head's weights have another shape");
}

void Head::run(const float* x, std::int64_t num_rows, float* out) const {
    Engine& engine = *engine_;
    const Running running(engine);
    engine.pool.reserve_scratch(static_cast<std::size_t>(hidden()) * 4);
    const Rows in = input_rows(engine.workspace.first, engine.kernels, num_rows, {out_});
    engine.pool.run([&](Worker& worker) {
        normalise_rows(engine, worker, x, num_rows, norm_, eps_, in);
        multiply_rows(engine, worker, out_->panels, in, num_rows, out, columns(), false);
        if (softcap_ != 0.0f) {
            worker.share_rows(num_rows, [&](std::int64_t row) {
                engine.kernels.softcap(out + row * columns(), columns(), softcap_);
            });
        }
    });
}

}  // namespace ratoon
