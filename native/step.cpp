#include "step.hpp"

#include <algorithm>

#include "require.hpp"

namespace ratoon {

Step::Step(std::vector<std::int32_t> positions, std::vector<std::int32_t> cu_seqlens,
           std::vector<GroupInputs> groups)
    : positions_(std::move(positions)), cu_seqlens_(std::move(cu_seqlens)), groups_(std::move(groups)) {
    if (cu_seqlens_.empty() || cu_seqlens_.front() != 0 || cu_seqlens_.back() != num_rows()) {
        refuse("cu_seqlens must go from 0 to the number of rows");
    }
    if (!std::ranges::is_sorted(cu_seqlens_)) refuse("cu_seqlens must not decrease");
    for (std::size_t i = 0; i + 1 < cu_seqlens_.size(); ++i) {
        for (std::int64_t first = cu_seqlens_[i], row = first; row < cu_seqlens_[i + 1]; ++row) {
            if (positions_[row] < 0 || positions_[row] != positions_[first] + row - first) {
                refuse("positions of a sequence must be consecutive and not negative");
            }
            last_position_ = std::max(last_position_, positions_[row]);
        }
    }
    for (const GroupInputs& group : groups_) {
        if (static_cast<std::int64_t>(group.tables.size()) !=
            group.width * static_cast<std::int64_t>(cu_seqlens_.size() - 1)) {
            refuse("block tables must have one row per sequence");
        }
        if (static_cast<std::int64_t>(group.slot_mapping.size()) != num_rows())
            refuse("a slot mapping must have one entry per row");
    }
}

const GroupInputs& Step::group(int index) const {
    if (index < 0 || index >= static_cast<int>(groups_.size()))
        refuse("the step has no cache group " + std::to_string(index));
    return groups_[static_cast<std::size_t>(index)];
}

Step Step::readers(std::span<const std::int64_t> rows) const {
    std::vector<std::int32_t> positions, cu_seqlens = {0};
    std::vector<GroupInputs> groups;
    for (const GroupInputs& group : groups_) {
        groups.push_back({{}, group.width, std::vector<std::int64_t>(rows.size(), -1)});
    }
    for (const std::int64_t row : rows) {
        positions.push_back(positions_[row]);
        cu_seqlens.push_back(static_cast<std::int32_t>(positions.size()));
        const std::int64_t sequence = std::ranges::upper_bound(cu_seqlens_, row) - cu_seqlens_.begin() - 1;
        for (std::size_t i = 0; i < groups_.size(); ++i) {
            const auto table = groups_[i].tables.begin() + sequence * groups_[i].width;
            groups[i].tables.insert(groups[i].tables.end(), table, table + groups_[i].width);
        }
    }
    return Step(std::move(positions), std::move(cu_seqlens), std::move(groups));
}

const AttentionPlan& Step::plan(const PlanShape& shape) {
    for (const AttentionPlan& plan : plans_) {
        if (plan.shape == shape) return plan;
    }
    const GroupInputs& inputs = group(shape.group);
    for (const std::int64_t slot : inputs.slot_mapping) {
        if (slot != -1 && (slot < shape.block_size || slot >= shape.block_size * shape.num_blocks)) {
            refuse("slot " + std::to_string(slot) + " lies outside the pages");
        }
    }
    return plans_.emplace_back(make_plan(shape, inputs, positions_, cu_seqlens_));
}

std::vector<SharedBlocks> Step::shared_blocks() const {
    std::vector<SharedBlocks> all;
    for (const AttentionPlan& plan : plans_) {
        all.insert(all.end(), plan.shared_blocks.begin(), plan.shared_blocks.end());
    }
    return all;
}

}  // namespace ratoon
