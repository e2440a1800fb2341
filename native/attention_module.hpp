// The attention module of a layer, over the pages of the KV pool.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine.hpp"
#include "kernels.hpp"
#include "packing.hpp"
#include "stages.hpp"
#include "step.hpp"

namespace ratoon {

// The pool of KV pages, which Python owns.
struct PagePool {
    std::uint8_t* data;
    std::int64_t num_blocks;
    std::int64_t page_bytes;
    std::int64_t block_size;
    std::int64_t num_slots;
    int num_kv_heads;
    int head_dim;
    bool integers;
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
    std::int64_t layer;  // whose adapters' weights it takes
};

class Attention {
public:
    Attention(std::shared_ptr<Engine> engine, AttentionSettings settings, PagePool pool);
    std::int64_t hidden() const { return static_cast<std::int64_t>(s_.norm.size()); }
    // Throws std::invalid_argument, and has changed nothing, where the step does not fit the pages.
    // `adapters` are those of the rows, null where there are none.
    void run(float* x, std::int64_t num_rows, Step& step, const AdapterRows* adapters) const;
    // Write K and V of the rows, and do no more.
    void store(const float* x, std::int64_t num_rows, Step& step, const AdapterRows* adapters) const;

private:
    // What `x` gives is added to `to`, if there is one.
    void pass(const float* x, float* to, std::int64_t num_rows, Step& step, const AdapterRows* adapters) const;

    struct HeadPanels {
        const Panels* panels;
        std::int64_t first;
    };
    const AttentionPlan& plan_of(Step& step) const;
    AttentionCall call_of(const Step& step, const AttentionPlan& plan, std::int64_t num_rows) const;
    void project_head(std::int64_t head, std::int64_t first_row, std::int64_t end_row, const Rows& in,
                      const Adaptation& adaptation, const Step& step, const AttentionCall& call,
                      float* scratch) const;

    std::shared_ptr<Engine> engine_;
    AttentionSettings s_;
    PagePool pool_;
    std::vector<HeadPanels> heads_;  // q heads, k heads, v heads
};

}  // namespace ratoon
