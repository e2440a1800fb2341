#include "attention_module.hpp"

#include <algorithm>

#include "require.hpp"

namespace ratoon {
namespace {

constexpr float kLog2E = 1.44269504f;

std::size_t float_bytes(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

}  // namespace

Attention::Attention(std::shared_ptr<Engine> engine, AttentionSettings settings, PagePool pool)
    : engine_(std::move(engine)), s_(std::move(settings)), pool_(pool) {
    const std::int64_t dim = s_.head_dim, kv_heads = s_.num_kv_heads;
    require(dim > 0 && s_.num_heads > 0 && kv_heads > 0 && s_.num_heads % kv_heads == 0,
            "the KV heads must divide the heads");
    require(pool_.num_kv_heads == kv_heads && pool_.head_dim == dim, "the pages were made for other heads");
    const std::int64_t slot_bytes = kv_heads * kv_head_bytes(pool_.integers, dim, pool_.block_size);
    require(pool_.block_size > 0 && pool_.page_bytes == pool_.num_slots * slot_bytes,
            "the pages have another size than their layout says");
    require(0 <= s_.slot && s_.slot < pool_.num_slots, "the pages have no such slot");
    require(0 <= s_.window, "a window must not be negative");
    for (const Matrix& matrix : s_.qkv) {
        const Panels& panels = matrix->panels;
        require(panels.unit == dim && panels.depth == hidden(), "the qkv weights have other shapes");
        for (std::int64_t i = 0; i < panels.columns / dim; ++i) {
            heads_.push_back({&panels, i * panels_per_unit(panels)});
        }
    }
    const auto num_heads = static_cast<std::int64_t>(heads_.size());
    const auto has_length = [](const Floats& values, std::int64_t length) {
        return values.empty() || static_cast<std::int64_t>(values.size()) == length;
    };
    require(num_heads == s_.num_heads + 2 * kv_heads, "the qkv weights have other shapes");
    require(s_.out->panels.depth == s_.num_heads * dim && s_.out->panels.columns == hidden(),
            "the output weights have another shape");
    require(has_length(s_.bias, num_heads * dim), "the qkv bias has another length");
    require(has_length(s_.q_norm, dim) && has_length(s_.k_norm, dim), "a head's norm has another length");
    require(has_length(s_.post_norm, hidden()), "the post norm has another length");
    require(2 * s_.rope->half <= dim, "the rotary embedding is wider than a head");
}

const AttentionPlan& Attention::plan_of(Step& step) const {
    const int heads_per_kv_head = s_.num_heads / s_.num_kv_heads;
    return step.plan({
        .group = s_.group,
        .window = s_.window,
        .num_kv_heads = s_.num_kv_heads,
        .queries_per_unit = unit_rows(s_.head_dim, heads_per_kv_head) / heads_per_kv_head,
        .block_size = pool_.block_size,
        .num_blocks = pool_.num_blocks,
        .num_threads = engine_->threads.size(),
    });
}

AttentionCall Attention::call_of(const Step& step, const AttentionPlan& plan, std::int64_t num_rows) const {
    Workspace& space = engine_->workspace;
    const std::int64_t width = std::int64_t{s_.num_heads} * s_.head_dim,
                       records = plan.num_records * s_.num_heads;
    space.queries.reserve(
        static_cast<std::size_t>(num_rows * s_.num_heads * query_bytes(pool_.integers, s_.head_dim)));
    space.context.reserve(float_bytes(num_rows * width));
    space.record_values.reserve(float_bytes(records * divide_up(s_.head_dim, kLanes) * kLanes));
    space.record_weights.reserve(float_bytes(plan.num_records * 2 * divide_up(s_.num_heads, kLanes) * kLanes));
    const GroupInputs& group = step.group(s_.group);
    return {
        .num_heads = s_.num_heads,
        .num_kv_heads = s_.num_kv_heads,
        .head_dim = s_.head_dim,
        .block_size = static_cast<int>(pool_.block_size),
        .integers = pool_.integers,
        .softcap = s_.softcap * kLog2E,
        .pages = pool_.data + s_.slot * (pool_.page_bytes / pool_.num_slots),
        .page_bytes = pool_.page_bytes,
        .queries = space.queries.data(),
        .units = plan.units.data(),
        .num_units = static_cast<std::int64_t>(plan.units.size()),
        .query = plan.queries.data(),
        .tables = group.tables.data(),
        .table_width = group.width,
        .out = space.context.as<float>(),
        .record_values = space.record_values.as<float>(),
        .record_weights = space.record_weights.as<float>(),
    };
}

// One head for a slice of rows: product, bias, norm, rotation; a query is kept, a key or value goes to its
// page.
void Attention::project_head(std::int64_t head, std::int64_t first_row, std::int64_t end_row, const Rows& in,
                             const Adaptation& adaptation, const Step& step, const AttentionCall& call,
                             float* scratch) const {
    const Kernels& kernels = engine_->kernels;
    const std::int64_t dim = s_.head_dim, key_head = head - s_.num_heads,
                       value_head = key_head - s_.num_kv_heads;
    const auto& slots = step.group(s_.group).slot_mapping;
    const auto& [panels, first] = heads_[static_cast<std::size_t>(head)];
    const std::int64_t end = first + panels_per_unit(*panels);
    kernels.product(*panels, first, end, in, first_row, end_row, scratch, dim, false);
    const int weight = (key_head >= 0) + (value_head >= 0);
    const std::int64_t own = weight == 0 ? head : weight == 1 ? key_head : value_head,
                       per_head = panels_per_unit(*panels);
    adaptation.add(weight, first_row, end_row, own * per_head, (own + 1) * per_head, scratch, dim);

    const Floats& norm = key_head < 0 ? s_.q_norm : s_.k_norm;
    // Scores come out as exponents of 2, or divided by the soft cap where there is one.
    const float scale = s_.softcap == 0.0f ? s_.scale * kLog2E : s_.scale / s_.softcap;
    for (std::int64_t row = first_row; row < end_row; ++row) {
        float* values = scratch + (row - first_row) * dim;
        if (!s_.bias.empty()) {
            const float* bias = s_.bias.data() + head * dim;
            for (std::int64_t i = 0; i < dim; ++i) values[i] += bias[i];
        }
        if (value_head >= 0) {
            if (slots[row] >= 0) kernels.store_value(call, static_cast<int>(value_head), slots[row], values);
            continue;
        }
        if (!norm.empty()) kernels.normalise(values, norm.data(), s_.eps, dim, values);
        const RopeTables& rope = *s_.rope;
        const std::int64_t angle = step.positions()[row] * rope.half;
        kernels.rotate(values, rope.cos.data() + angle, rope.sin.data() + angle, rope.half, rope.interleaved);
        if (key_head < 0) {
            for (std::int64_t i = 0; i < dim; ++i) values[i] *= scale;
            kernels.store_query(call, row, static_cast<int>(head), values);
        } else if (slots[row] >= 0) {
            kernels.store_key(call, static_cast<int>(key_head), slots[row], values);
        }
    }
}

void Attention::run(float* x, std::int64_t num_rows, Step& step, const AdapterRows* adapters) const {
    pass(x, x, num_rows, step, adapters);
}

void Attention::store(const float* x, std::int64_t num_rows, Step& step, const AdapterRows* adapters) const {
    pass(x, nullptr, num_rows, step, adapters);
}

void Attention::pass(const float* x, float* to, std::int64_t num_rows, Step& step,
                     const AdapterRows* adapters) const {
    Engine& engine = *engine_;
    const Running running(engine);
    require(num_rows == step.num_rows(), "x must have one row per position of the step");
    require((step.last_position() + 1) * s_.rope->half <= static_cast<std::int64_t>(s_.rope->cos.size()),
            "a position lies beyond the rotary embedding's tables");
    const auto all_heads = static_cast<std::int64_t>(heads_.size()), num_heads = std::int64_t{s_.num_heads};
    const auto kv_heads = std::int64_t{s_.num_kv_heads}, dim = std::int64_t{s_.head_dim};
    const AttentionPlan& plan = plan_of(step);  // which also tells which sequences share blocks
    const AttentionCall call = call_of(step, plan, num_rows);
    const Rows in = input_rows(engine.workspace.first, engine.kernels, num_rows, s_.qkv, adapters);
    const Rows mixed = input_rows(engine.workspace.last, engine.kernels, num_rows, {s_.out});
    const Rows context = {call.out, {}, mixed.depth};
    const Adaptation entering(engine, engine.workspace.first.low, adapters, s_.layer, num_rows, hidden(),
                              {{Target::kQuery, num_heads * dim, dim},
                               {Target::kKey, kv_heads * dim, dim},
                               {Target::kValue, kv_heads * dim, dim}});
    const Adaptation leaving(engine, engine.workspace.last.low, adapters, s_.layer, num_rows, mixed.depth,
                             {{Target::kOut, hidden(), hidden()}});
    const Residual residual(engine, s_.out->panels, s_.post_norm, s_.eps, num_rows);
    const std::int64_t floats = std::max(hidden(), kRowSlice * s_.head_dim);
    engine.threads.reserve_scratch(std::max(float_bytes(floats), engine.kernels.attend_scratch_bytes(call)));

    engine.threads.run([&](ParallelRegion& region) {
        normalise_rows(engine, region, x, num_rows, s_.norm, s_.eps, in);
        entering.reduce(region, in);
        const std::int64_t first_head = to ? 0 : num_heads, count = all_heads - first_head;
        region.parallel_for(divide_up(num_rows, kRowSlice) * count, [&](std::int64_t item, std::uint8_t* scratch) {
            const std::int64_t row = item / count * kRowSlice;
            project_head(first_head + item % count, row, std::min(num_rows, row + kRowSlice), in, entering, step,
                         call, reinterpret_cast<float*>(scratch));
        });
        if (!to) return;
        region.parallel_for(call.num_units, [&](std::int64_t item, std::uint8_t* scratch) {
            engine.kernels.attend(call, item, scratch);
        });
        region.parallel_for_rows(num_rows, [&](std::int64_t index, std::uint8_t* scratch) {
            const Query& query = plan.queries[static_cast<std::size_t>(index)];
            if (query.first_record >= 0) engine.kernels.merge(call, query, reinterpret_cast<float*>(scratch));
            put_row(engine.kernels, call.out + query.row * mixed.depth, query.row, mixed);
        });
        leaving.reduce(region, context);
        residual.run(region, mixed, leaving, to);
    });
}

}  // namespace ratoon
