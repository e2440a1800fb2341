// The blocks a model is made of: embedding, attention, feed-forward network, head. Each call is one parallel region.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "step.hpp"
#include "threads.hpp"

namespace ratoon {

using Matrix = std::shared_ptr<PackedMatrix>;
using Floats = std::vector<float>;

// Intermediate results of the block that is running; every block uses the same memory.
struct Workspace {
    struct Input {
        Buffer values, tiles;
    };
    Input first, last;  // of the block's first and last products
    Buffer queries, context;
    Buffer product;  // before a norm
    Buffer record_values, record_weights;
};

// What all blocks of one `Ops` object share.
struct Engine {
    Engine(int num_threads, const std::string& isa);

    Pool pool;
    const Kernels& kernels;
    Arena weights;
    Workspace workspace;
    std::atomic_flag busy;
};

// The variants this processor can run, best first.
std::vector<std::string> available_variants();

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

class Embedding {
public:
    Embedding(std::shared_ptr<Engine> engine, Format format, const std::uint8_t* stored, std::int64_t rows, std::int64_t columns, float scale);
    std::int64_t columns() const { return columns_; }
    // Throws std::invalid_argument where an id is not in the table.
    void run(const std::int32_t* ids, std::int64_t count, float* out) const;

private:
    std::shared_ptr<Engine> engine_;
    Format format_;
    const std::uint8_t* stored_;
    std::int64_t rows_, columns_;
    float scale_;
};

struct RopeTables {
    Floats cos, sin;  // [max_context][half]
    std::int64_t half;
    bool interleaved;
};

struct AttentionSettings {
    Floats norm, bias, q_norm, k_norm, post_norm;  // empty where there is none
    std::vector<Matrix> qkv;                       // panels start afresh at every head
    Matrix out;
    float eps;
    int num_heads, num_kv_heads, head_dim;
    float scale, softcap;
    std::int64_t window;  // 0 for full attention
    std::shared_ptr<RopeTables> rope;
    int group;
    std::int64_t slot;
};

class Attention {
public:
    Attention(std::shared_ptr<Engine> engine, AttentionSettings settings, PagePool pool);
    std::int64_t hidden() const { return static_cast<std::int64_t>(s_.norm.size()); }
    void run(float* x, std::int64_t num_rows, Step& step) const;

private:
    struct Head {
        const Panels* panels;
        std::int64_t first_panel;
    };
    void project_head(int head, std::int64_t first_row, std::int64_t end_row, const Rows& in, const Step& step, const AttentionCall& call,
                      float* queries, float* scratch) const;

    std::shared_ptr<Engine> engine_;
    AttentionSettings s_;
    PagePool pool_;
    std::vector<Head> heads_;  // q heads, k heads, v heads
};

struct FeedForwardSettings {
    Floats norm, post_norm;
    Matrix gate, up, down;
    float eps;
    Activation activation;
};

class FeedForward {
public:
    FeedForward(std::shared_ptr<Engine> engine, FeedForwardSettings settings);
    std::int64_t hidden() const { return static_cast<std::int64_t>(s_.norm.size()); }
    void run(float* x, std::int64_t num_rows) const;

private:
    std::shared_ptr<Engine> engine_;
    FeedForwardSettings s_;
};

class Head {
public:
    Head(std::shared_ptr<Engine> engine, Floats norm, Matrix out, float eps, float softcap);
    std::int64_t hidden() const { return static_cast<std::int64_t>(norm_.size()); }
    std::int64_t columns() const { return out_->panels.columns; }
    void run(const float* x, std::int64_t num_rows, float* out) const;

private:
    std::shared_ptr<Engine> engine_;
    Floats norm_;
    Matrix out_;
    float eps_, softcap_;
};

}  // namespace ratoon
