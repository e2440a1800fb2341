#include "plan.hpp"

#include <algorithm>
#include <span>
#include <string>

#include "require.hpp"

namespace ratoon {
namespace {

// Makes one plan.
//
// Long chunks are cut into tiles of consecutive queries, which walk their own context. The queries of short
// chunks (decodes, above all) are put in the order of their block tables; for each span, neighbours with the
// same blocks form one part. So blocks that many sequences share are read once. Then parts of the same
// queries over adjoining spans are joined, as long as there remains enough to do for every thread. At last
// each becomes a unit for every KV head.
class Planner {
public:
    Planner(const PlanShape& shape, const GroupInputs& group, const std::vector<std::int32_t>& positions,
            const std::vector<std::int32_t>& cu_seqlens)
        : shape_(shape),
          group_(group),
          positions_(positions),
          cu_seqlens_(cu_seqlens),
          tile_(shape.queries_per_unit) {}

    AttentionPlan make() {
        plan_.shape = shape_;
        std::vector<std::int32_t> short_chunks;
        for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(cu_seqlens_.size()); ++i) {
            const std::int32_t length = cu_seqlens_[i + 1] - cu_seqlens_[i];
            if (length == 0) continue;
            check_table(i);
            if (length >= tile_) add_long_chunk(i);
            else short_chunks.push_back(i);
        }
        add_short_chunks(short_chunks);
        join_parts();
        find_queries_to_merge();
        find_shared_blocks();
        put_in_order();
        return std::move(plan_);
    }

private:
    // A unit, or one for each KV head; and the thread that had better take it.
    static constexpr std::int32_t kEveryHead = -1;
    struct Part : Unit {
        std::int32_t thread;
    };

    static bool is_at(const Unit& unit, std::int32_t head) {
        return unit.kv_head == kEveryHead || unit.kv_head == head;
    }

    static std::int64_t cost(const Unit& unit) {
        return std::int64_t{unit.num_queries} * (unit.end_span - unit.first_span);
    }

    const std::int32_t* table(std::int32_t sequence) const {
        return group_.tables.data() + sequence * group_.width;
    }
    std::int32_t first_position(std::int32_t sequence) const { return positions_[cu_seqlens_[sequence]]; }
    std::int32_t last_position(std::int32_t sequence) const {
        return positions_[cu_seqlens_[sequence + 1] - 1];
    }
    std::int32_t first_visible(std::int32_t position) const {
        return shape_.window == 0
                   ? 0
                   : static_cast<std::int32_t>(std::max<std::int64_t>(0, position - shape_.window + 1));
    }

    void check_table(std::int32_t sequence) const {
        const std::int64_t end = last_position(sequence) / shape_.block_size + 1;
        if (end > group_.width) {
            refuse("block table of sequence " + std::to_string(sequence) + " ends before position " +
                   std::to_string(last_position(sequence)));
        }
        for (std::int64_t i = first_visible(first_position(sequence)) / shape_.block_size; i < end; ++i) {
            const std::int32_t id = table(sequence)[i];
            if (id < 1 || id >= shape_.num_blocks) {
                refuse("block table of sequence " + std::to_string(sequence) + " has block id " +
                       std::to_string(id) + " at " + std::to_string(i) + ", outside 1 to " +
                       std::to_string(shape_.num_blocks - 1));
            }
        }
    }

    std::int32_t num_queries() const { return static_cast<std::int32_t>(plan_.queries.size()); }

    void add_queries(std::int32_t sequence, std::int32_t first_row, std::int32_t end_row) {
        for (std::int32_t row = first_row; row < end_row; ++row) {
            plan_.queries.push_back({row, sequence, first_visible(positions_[row]), positions_[row] + 1, -1});
        }
    }

    // One part per span, for the queries from `first_query` on.
    void add_parts(std::int32_t first_query) {
        const std::int32_t count = num_queries() - first_query;
        const std::int32_t last_span = (plan_.queries.back().end - 1) / kSpan;
        for (std::int32_t span = plan_.queries[first_query].first_visible / kSpan; span <= last_span;
             ++span) {
            parts_.push_back({{first_query, count, span, span + 1, kEveryHead}, 0});
        }
    }

    void add_long_chunk(std::int32_t sequence) {
        const std::int32_t end = cu_seqlens_[sequence + 1];
        for (std::int32_t row = cu_seqlens_[sequence]; row < end; row += tile_) {
            const std::int32_t first_query = num_queries();
            add_queries(sequence, row, std::min(row + tile_, end));
            add_parts(first_query);
        }
    }

    // The blocks of a span that a sequence's queries look at, and the number of the first.
    struct Blocks {
        std::int64_t first;
        std::span<const std::int32_t> ids;

        bool operator==(const Blocks& other) const {
            return first == other.first && std::ranges::equal(ids, other.ids);
        }
    };
    Blocks blocks_of(std::int32_t sequence, std::int32_t span) const {
        const std::int32_t begin = std::max(span * kSpan, first_visible(first_position(sequence)));
        const std::int32_t end = std::min((span + 1) * kSpan, last_position(sequence) + 1);
        if (begin >= end) return {-1, {}};
        const std::int64_t first = begin / shape_.block_size, last = (end - 1) / shape_.block_size;
        return {first, {table(sequence) + first, static_cast<std::size_t>(last + 1 - first)}};
    }

    void add_short_chunks(std::vector<std::int32_t>& sequences) {
        const auto blocks = [&](std::int32_t sequence) {
            return std::span(table(sequence), static_cast<std::size_t>(group_.width));
        };
        std::ranges::stable_sort(sequences, [&](std::int32_t a, std::int32_t b) {
            return std::ranges::lexicographical_compare(blocks(a), blocks(b));
        });
        std::vector<std::int32_t> first_queries;  // of each sequence, and the end
        std::int32_t first_span = INT32_MAX, end_span = 0;
        for (const std::int32_t sequence : sequences) {
            first_queries.push_back(num_queries());
            add_queries(sequence, cu_seqlens_[sequence], cu_seqlens_[sequence + 1]);
            first_span = std::min(first_span, first_visible(first_position(sequence)) / kSpan);
            end_span = std::max(end_span, last_position(sequence) / kSpan + 1);
        }
        first_queries.push_back(num_queries());

        for (std::int32_t span = first_span; span < end_span; ++span) {
            for (std::size_t i = 0, end; i < sequences.size(); i = end) {
                const Blocks shared = blocks_of(sequences[i], span);
                end = i + 1;
                if (shared.ids.empty()) continue;
                while (end < sequences.size() && first_queries[end + 1] - first_queries[i] <= tile_ &&
                       shared == blocks_of(sequences[end], span)) {
                    ++end;
                }
                const std::int32_t count = first_queries[end] - first_queries[i];
                parts_.push_back({{first_queries[i], count, span, span + 1, kEveryHead}, 0});
            }
        }
    }

    // Join the spans of the same queries, and cut what is then too much for one thread into pieces of about equal
    // size: so few that merging is cheap, so many that every thread has as much to do as the others.
    void join_parts() {
        std::vector<Part> single = std::move(parts_);
        std::ranges::stable_sort(single, [](const Unit& a, const Unit& b) {
            return std::pair(a.first_query, a.num_queries) < std::pair(b.first_query, b.num_queries);
        });
        std::int64_t total = 0;
        for (const Part& part : single) total += cost(part) * shape_.num_kv_heads;
        // A piece of less than two spans costs more to merge than it gains.
        const std::int64_t most = std::max<std::int64_t>(2, total / (4 * shape_.num_threads));
        parts_.clear();
        for (std::size_t i = 0, end; i < single.size(); i = end) {
            Part joined = single[i];
            for (end = i + 1; end < single.size() && follows(joined, single[end]); ++end)
                joined.end_span = single[end].end_span;
            if (cost(joined) > most && has_many_queries(joined)) cut_queries(joined);
            else cut_spans(joined, (cost(joined) + most - 1) / most);
        }
    }

    static bool follows(const Unit& unit, const Unit& next) {
        return unit.first_query == next.first_query && unit.num_queries == next.num_queries &&
               unit.end_span == next.first_span;
    }

    // Whether every thread gets some queries of one sequence. Several sequences stay together: what they share is
    // read once for all.
    bool has_many_queries(const Unit& unit) const {
        const Query *first = &plan_.queries[unit.first_query], *last = first + unit.num_queries - 1;
        return first->sequence == last->sequence &&
               unit.num_queries * shape_.num_kv_heads / shape_.num_threads >= std::max(1, tile_ / 8);
    }

    // An equal share for every thread of all queries at the first head, then all at the second, and so on: nothing
    // has to be merged, and little is read twice.
    void cut_queries(Part part) {
        const std::int64_t first = part.first_query, count = part.num_queries, all = count * shape_.num_kv_heads;
        for (part.thread = 0; part.thread < shape_.num_threads; ++part.thread) {
            const std::int64_t end = (part.thread + 1) * all / shape_.num_threads;
            for (std::int64_t at = part.thread * all / shape_.num_threads, next; at < end; at = next) {
                part.kv_head = static_cast<std::int32_t>(at / count);
                next = std::min(end, (part.kv_head + 1) * count);
                part.first_query = static_cast<std::int32_t>(first + at % count);
                part.num_queries = static_cast<std::int32_t>(next - at);
                parts_.push_back(part);
            }
        }
    }

    // Pieces of about equal size, if possible as many for each thread.
    void cut_spans(Part part, std::int64_t wanted) {
        const std::int32_t first = part.first_span, count = part.end_span - first;
        auto pieces = static_cast<std::int32_t>(std::min<std::int64_t>(wanted, count));
        while (pieces > 1 && pieces < count && pieces * shape_.num_kv_heads % shape_.num_threads != 0) ++pieces;
        for (std::int32_t piece = 0; piece < pieces; ++piece) {
            part.first_span = first + piece * count / pieces;
            part.end_span = first + (piece + 1) * count / pieces;
            part.thread = pieces == 1 ? thread_of(part) : piece * shape_.num_threads / pieces;
            parts_.push_back(part);
        }
    }

    // The thread that is likely to have computed a unit's queries, as the other stages are cut by rows.
    std::int32_t thread_of(const Unit& unit) const {
        const std::int64_t row = plan_.queries[unit.first_query].row;
        return static_cast<std::int32_t>(row * shape_.num_threads / num_queries());
    }

    void find_queries_to_merge() {
        std::vector<std::int32_t> num_units(plan_.queries.size());
        for (const Part& unit : parts_) {
            if (!is_at(unit, 0)) continue;
            for (std::int32_t i = 0; i < unit.num_queries; ++i) ++num_units[unit.first_query + i];
        }
        for (std::int32_t i = 0; i < num_queries(); ++i) {
            if (num_units[i] == 1) continue;
            Query& query = plan_.queries[i];
            query.first_record = plan_.num_records;
            plan_.num_records += num_spans(query);
        }
    }

    // The units of the same queries follow each other, span by span.
    void find_shared_blocks() {
        std::pair<std::int32_t, std::int32_t> queries = {-1, -1};
        std::int64_t next_block = 0;
        for (const Part& unit : parts_) {
            const Query *first = &plan_.queries[unit.first_query], *last = first + unit.num_queries - 1;
            if (first->sequence == last->sequence) continue;
            if (queries != std::pair(unit.first_query, unit.num_queries)) {
                queries = {unit.first_query, unit.num_queries};
                next_block = 0;
                plan_.shared_blocks.push_back({shape_.group, {}, 0});
                std::vector<std::int32_t>& sequences = plan_.shared_blocks.back().sequences;
                for (const Query* query = first; query <= last; ++query) {
                    if (sequences.empty() || sequences.back() != query->sequence)
                        sequences.push_back(query->sequence);
                }
            }
            // All of them see the same blocks of these spans, so any one tells which.
            const std::int64_t begin = std::max(unit.first_span * kSpan, first->first_visible),
                               end = std::min(unit.end_span * kSpan, last->end),
                               first_block = std::max(begin / shape_.block_size, next_block);
            next_block = (end - 1) / shape_.block_size + 1;
            plan_.shared_blocks.back().num_blocks += next_block - first_block;
        }
    }

    // Units for every KV head: each thread's one after the other, head by head, so that keys and values stay in its
    // cache, and the most expensive ones first.
    void put_in_order() {
        std::ranges::stable_sort(parts_, [](const Part& a, const Part& b) {
            return std::pair(a.thread, cost(b)) < std::pair(b.thread, cost(a));
        });
        for (std::size_t i = 0, end; i < parts_.size(); i = end) {
            for (end = i; end < parts_.size() && parts_[end].thread == parts_[i].thread;) ++end;
            for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
                for (std::size_t part = i; part < end; ++part) {
                    if (is_at(parts_[part], head)) plan_.units.emplace_back(parts_[part]).kv_head = head;
                }
            }
        }
    }

    std::vector<Part> parts_;
    AttentionPlan plan_;
    const PlanShape& shape_;
    const GroupInputs& group_;
    const std::vector<std::int32_t>& positions_;
    const std::vector<std::int32_t>& cu_seqlens_;
    const std::int32_t tile_;
};

}  // namespace

AttentionPlan make_plan(const PlanShape& shape, const GroupInputs& group,
                        const std::vector<std::int32_t>& positions,
                        const std::vector<std::int32_t>& cu_seqlens) {
    return Planner(shape, group, positions, cu_seqlens).make();
}

}  // namespace ratoon
