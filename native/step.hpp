// A step's inputs, checked, and the plans made of them.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "plan.hpp"

namespace ratoon {

class Step {
public:
    // Throws std::invalid_argument where the parts contradict each other.
    Step(std::vector<std::int32_t> positions, std::vector<std::int32_t> cu_seqlens,
         std::vector<GroupInputs> groups);

    std::int64_t num_rows() const { return static_cast<std::int64_t>(positions_.size()); }
    const std::vector<std::int32_t>& positions() const { return positions_; }
    std::int64_t last_position() const { return last_position_; }
    const GroupInputs& group(int index) const;

    // The same positions for these rows only, each a sequence of its own that writes nothing.
    Step readers(std::span<const std::int64_t> rows) const;

    // The plan for layers of this shape; made at the first one's call, when also the group's block ids and
    // slots are checked.
    const AttentionPlan& plan(const PlanShape& shape);

    // Of the plans made so far: one per cache group, once the step has run.
    std::vector<SharedBlocks> shared_blocks() const;

private:
    std::vector<std::int32_t> positions_;
    std::vector<std::int32_t> cu_seqlens_;
    std::int32_t last_position_ = -1;
    std::vector<GroupInputs> groups_;
    std::list<AttentionPlan> plans_;  // callers hold references
};

}  // namespace ratoon
