// A step's inputs, checked, and the plan of its attention.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "kernels.hpp"

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
    bool half;
};

// What the plan of a layer's attention depends on, apart from the step; equal for the layers of a group.
struct PlanShape {
    int group;
    std::int64_t window;  // 0 for full attention
    int num_kv_heads;
    int queries_per_unit;
    std::int64_t block_size;
    std::int64_t num_blocks;
    int num_threads;

    bool operator==(const PlanShape&) const = default;
};

// Which queries attend together, over which spans.
struct AttentionPlan {
    PlanShape shape;
    std::vector<Query> queries;
    std::vector<Unit> units;             // the most expensive first
    std::vector<std::int32_t> to_merge;  // queries whose spans are spread over units
    std::int64_t num_records = 0;        // partial results, one per span of such a query
};

class Step {
public:
    struct Group {
        std::vector<std::int32_t> tables;  // [num_sequences][width]
        std::int64_t width;
        std::vector<std::int64_t> write_slots;
    };

    // Throws std::invalid_argument where the parts contradict each other.
    Step(std::vector<std::int32_t> positions, std::vector<std::int32_t> cu_seqlens, std::vector<Group> groups);

    std::int64_t num_rows() const { return static_cast<std::int64_t>(positions_.size()); }
    const std::vector<std::int32_t>& positions() const { return positions_; }
    std::int32_t last_position() const { return last_position_; }
    const Group& group(int index) const;

    // The plan for layers of this shape; made at the first one's call, when also the group's block ids and slots are checked.
    const AttentionPlan& plan(const PlanShape& shape);

private:
    std::vector<std::int32_t> positions_;
    std::vector<std::int32_t> cu_seqlens_;
    std::int32_t last_position_ = -1;
    std::vector<Group> groups_;
    std::list<AttentionPlan> plans_;  // callers hold references
};

}  // namespace ratoon
