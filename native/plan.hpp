// The plan of one step's attention: which queries walk which spans of which blocks together.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace ratoon {

// One cache group's part of a step.
struct GroupInputs {
    std::vector<std::int32_t> tables;  // [num_sequences][width]
    std::int64_t width;
    std::vector<std::int64_t> slot_mapping;  // [num_rows]
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

// Sequences that read blocks together, each block once for all of them.
struct SharedBlocks {
    int group;
    std::vector<std::int32_t> sequences;
    std::int64_t num_blocks;
};

// Which queries attend together, over which spans.
struct AttentionPlan {
    PlanShape shape;
    std::vector<Query> queries;    // one for every row
    std::vector<Unit> units;       // in the order in which threads best take them
    std::int64_t num_records = 0;  // partial results, one per span of a query whose spans are spread over units
    std::vector<SharedBlocks> shared_blocks;
};

// Throws std::invalid_argument where a visible entry of a block table is missing or outside the pool.
AttentionPlan make_plan(const PlanShape& shape, const GroupInputs& group,
                        const std::vector<std::int32_t>& positions,
                        const std::vector<std::int32_t>& cu_seqlens);

}  // namespace ratoon
