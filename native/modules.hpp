// The modules a model is made of, apart from attention (attention_module.hpp). Each call is one parallel
// region.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine.hpp"
#include "formats.hpp"
#include "packing.hpp"
#include "stages.hpp"

namespace ratoon {

// Rows times the rows of one or more matrices, side by side.
class Linear {
public:
    Linear(std::shared_ptr<Engine> engine, std::vector<Matrix> matrices);
    std::int64_t depth() const { return matrices_.front()->panels.depth; }
    std::int64_t columns() const { return columns_; }
    void run(const float* x, std::int64_t num_rows, float* out) const;

private:
    std::shared_ptr<Engine> engine_;
    std::vector<Matrix> matrices_;
    std::int64_t columns_ = 0;
};

// Expands rows of the token table, which come in their stored form.
class Embedding {
public:
    Embedding(std::shared_ptr<Engine> engine, Format format, std::int64_t columns, float scale);
    std::int64_t columns() const { return columns_; }
    Format format() const { return format_; }
    void run(const std::uint8_t* stored, std::int64_t count, float* out) const;

private:
    std::shared_ptr<Engine> engine_;
    Format format_;
    std::int64_t columns_;
    float scale_;
};

struct FeedForwardSettings {
    Floats norm, post_norm;  // post_norm is empty where there is none
    Matrix gate, up, down;
    std::int64_t layer;  // whose adapters' weights it takes
    float eps;
    Activation activation;
};

// x += down(activation(gate(norm(x))) * up(norm(x)))
class FeedForward {
public:
    FeedForward(std::shared_ptr<Engine> engine, FeedForwardSettings settings);
    std::int64_t hidden() const { return static_cast<std::int64_t>(s_.norm.size()); }
    // `adapters` are those of the rows, null where there are none.
    void run(float* x, std::int64_t num_rows, const AdapterRows* adapters) const;

private:
    void activate_group(std::int64_t group, std::int64_t first_row, std::int64_t end_row, const Rows& in,
                        const Adaptation& adaptation, const Rows& active, float* scratch) const;

    std::shared_ptr<Engine> engine_;
    FeedForwardSettings s_;
};

// Final norm, output projection (LM head), optional soft cap (0 is off); best[i] is the first column of row i's highest
// number, or of its first NaN.
class LMHead {
public:
    LMHead(std::shared_ptr<Engine> engine, Floats norm, Matrix out, float eps, float softcap);
    std::int64_t hidden() const { return static_cast<std::int64_t>(norm_.size()); }
    std::int64_t columns() const { return out_->panels.columns; }
    void run(const float* x, std::int64_t num_rows, float* out, std::int32_t* best) const;

private:
    std::shared_ptr<Engine> engine_;
    Floats norm_;
    Matrix out_;
    float eps_, softcap_;
};

}  // namespace ratoon
