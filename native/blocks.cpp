#include "blocks.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace ratoon {
namespace {

// Rows that one item of work takes through a panel: a whole number of tiles, few enough to stay in the cache.
constexpr std::int64_t kRowBlock = 64;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Marks the engine as running; a second thread is turned away rather than let in to overwrite the first one's results.
class Running {
public:
    explicit Running(Engine& engine) : engine_(engine) {
        if (engine_.busy.test_and_set(std::memory_order_acquire)) throw std::runtime_error("two threads use one Ops object at the same time");
    }
    ~Running() { engine_.busy.clear(std::memory_order_release); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

private:
    Engine& engine_;
};

bool is_quantised(const Matrix& matrix) { return quantised(layout_of(matrix->panels.format)); }

// Memory for the input rows of a product with these matrices, in the forms that they take.
Rows input_rows(Workspace::Input& space, const Kernels& kernels, std::int64_t num_rows, const std::vector<Matrix>& matrices) {
    const std::int64_t depth = matrices.front()->panels.depth;
    Rows rows = {nullptr, {nullptr, num_rows, depth / kGroup, kernels.tile_height}, depth};
    if (!std::ranges::all_of(matrices, is_quantised)) {
        space.values.reserve(static_cast<std::size_t>(num_rows * depth) * 4);
        rows.values = space.values.as<float>();
    }
    if (std::ranges::any_of(matrices, is_quantised)) {
        space.tiles.reserve(static_cast<std::size_t>(num_rows * rows.tiles.groups * QuantTiles::kRowBytes));
        rows.tiles.data = space.tiles.data();
    }
    return rows;
}

void put_row(const Kernels& kernels, const float* x, std::int64_t row, const Rows& rows) {
    if (rows.values && x != rows.values + row * rows.depth) std::memcpy(rows.values + row * rows.depth, x, static_cast<std::size_t>(rows.depth) * 4);
    if (rows.tiles.data) kernels.quantise(x, row, 0, rows.tiles.groups, rows.tiles);
}

// Stage: rows = norm(x).
void normalise_rows(Engine& engine, Worker& worker, const float* x, std::int64_t num_rows, const Floats& norm, float eps, const Rows& rows) {
    worker.share(num_rows, [&](std::int64_t row) {
        auto* normal = reinterpret_cast<float*>(worker.scratch());
        engine.kernels.normalise(x + row * rows.depth, norm.data(), eps, rows.depth, normal);
        put_row(engine.kernels, normal, row, rows);
    });
}

// Stage: out = or += rows times a matrix of one unit.
void multiply_rows(Engine& engine, Worker& worker, const Panels& panels, const Rows& rows, std::int64_t num_rows, float* out,
                   std::int64_t stride, bool add) {
    const std::int64_t blocks = divide_up(num_rows, kRowBlock), count = num_panels(panels);
    const std::int64_t chunks = std::min(count, blocks == 1 ? std::int64_t{4} * engine.pool.size() : divide_up(count, 4));
    worker.share(blocks * chunks, [&](std::int64_t item) {
        const std::int64_t first_row = item / chunks * kRowBlock, chunk = item % chunks;
        const std::int64_t first = chunk * count / chunks, end = (chunk + 1) * count / chunks;
        engine.kernels.product(panels, first, end, rows, first_row, std::min(num_rows, first_row + kRowBlock),
                               out + first_row * stride + first * kPanel, stride, add);
    });
}

// Stage: x += norm(product)
void add_normalised(Engine& engine, Worker& worker, const float* product, std::int64_t num_rows, const Floats& norm, float eps, float* x) {
    const auto width = static_cast<std::int64_t>(norm.size());
    worker.share(num_rows, [&](std::int64_t row) {
        auto* normal = reinterpret_cast<float*>(worker.scratch());
        engine.kernels.normalise(product + row * width, norm.data(), eps, width, normal);
        for (std::int64_t i = 0; i < width; ++i) x[row * width + i] += normal[i];
    });
}

// Where a block's last product goes: into x, or, where a norm comes after it, into memory of its own.
float* product_memory(Engine& engine, const Floats& post_norm, std::int64_t num_rows) {
    engine.workspace.product.reserve(static_cast<std::size_t>(num_rows) * post_norm.size() * 4);
    return engine.workspace.product.as<float>();
}

void multiply_into(Engine& engine, Worker& worker, const Matrix& matrix, const Rows& rows, std::int64_t num_rows, const Floats& post_norm,
                   float eps, float* product, float* x) {
    const std::int64_t width = matrix->panels.columns;
    if (post_norm.empty()) {
        multiply_rows(engine, worker, matrix->panels, rows, num_rows, x, width, true);
    } else {
        multiply_rows(engine, worker, matrix->panels, rows, num_rows, product, width, false);
        add_normalised(engine, worker, product, num_rows, post_norm, eps, x);
    }
}

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

const Kernels& kernels_named(const std::string& isa) {
#ifdef RATOON_X86
    if (isa == "avx512") return avx512::kernels;
    if (isa == "avx2") return avx2::kernels;
#endif
    return portable::kernels;
}

const std::string& check_available(const std::string& isa) {
    require(std::ranges::count(available_variants(), isa) == 1, "this processor cannot run the kernel variant that was asked for");
    return isa;
}

}  // namespace

std::vector<std::string> available_variants() {
    std::vector<std::string> variants;
#ifdef RATOON_X86
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    if (avx2 && avx512) variants.emplace_back("avx512");
    if (avx2) variants.emplace_back("avx2");
#endif
    variants.emplace_back("portable");
    return variants;
}

Engine::Engine(int num_threads, const std::string& isa) : pool(std::max(1, num_threads)), kernels(kernels_named(check_available(isa))) {}

// ---- linear

Linear::Linear(std::shared_ptr<Engine> engine, std::vector<Matrix> matrices) : engine_(std::move(engine)), matrices_(std::move(matrices)) {
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
        worker.share(num_rows, [&](std::int64_t row) { put_row(engine_->kernels, x + row * rows.depth, row, rows); });
        std::int64_t column = 0;
        for (const Matrix& matrix : matrices_) {
            multiply_rows(*engine_, worker, matrix->panels, rows, num_rows, out + column, columns_, false);
            column += matrix->panels.columns;
        }
    });
}

// ---- embedding

Embedding::Embedding(std::shared_ptr<Engine> engine, Format format, const std::uint8_t* stored, std::int64_t rows, std::int64_t columns, float scale)
    : engine_(std::move(engine)), format_(format), stored_(stored), rows_(rows), columns_(columns), scale_(scale) {}

void Embedding::run(const std::int32_t* ids, std::int64_t count, float* out) const {
    const Running running(*engine_);
    for (std::int64_t i = 0; i < count; ++i) {
        if (ids[i] < 0 || ids[i] >= rows_) throw std::invalid_argument("token id " + std::to_string(ids[i]) + " is not in the vocabulary");
    }
    const std::int64_t stride = row_bytes(format_, columns_);
    engine_->pool.run([&](Worker& worker) {
        worker.share(count, [&](std::int64_t i) {
            float* row = out + i * columns_;
            expand_row(format_, stored_ + ids[i] * stride, columns_, row);
            for (std::int64_t c = 0; c < columns_; ++c) row[c] *= scale_;
        });
    });
}

// ---- attention

Attention::Attention(std::shared_ptr<Engine> engine, AttentionSettings settings, PagePool pool)
    : engine_(std::move(engine)), s_(std::move(settings)), pool_(pool) {
    const std::int64_t dim = s_.head_dim, kv_heads = s_.num_kv_heads;
    require(dim > 0 && s_.num_heads > 0 && kv_heads > 0 && s_.num_heads % kv_heads == 0, "the KV heads must divide the heads");
    require(pool_.num_kv_heads == kv_heads && pool_.head_dim == dim, "the pages were made for other heads");
    require(0 <= s_.slot && s_.slot < pool_.num_slots, "the pages have no such slot");
    require(0 <= s_.window, "a window must not be negative");
    for (const Matrix& matrix : s_.qkv) {
        require(matrix->panels.unit == dim && matrix->panels.depth == hidden(), "the qkv weights have other shapes");
        const std::int64_t per_head = panels_per_unit(matrix->panels);
        for (std::int64_t i = 0; i < matrix->panels.columns / dim; ++i) heads_.push_back({&matrix->panels, i * per_head});
    }
    const auto num_heads = static_cast<std::int64_t>(heads_.size());
    require(num_heads == s_.num_heads + 2 * kv_heads, "the qkv weights have other shapes");
    require(s_.out->panels.depth == s_.num_heads * dim && s_.out->panels.columns == hidden(), "the output weights have another shape");
    require(s_.bias.empty() || static_cast<std::int64_t>(s_.bias.size()) == num_heads * dim, "the qkv bias has another length");
    require(s_.q_norm.empty() || static_cast<std::int64_t>(s_.q_norm.size()) == dim, "the q norm has another length");
    require(s_.k_norm.empty() || static_cast<std::int64_t>(s_.k_norm.size()) == dim, "the k norm has another length");
    require(s_.post_norm.empty() || s_.post_norm.size() == s_.norm.size(), "the post norm has another length");
    require(2 * s_.rope->half <= dim, "the rotary embedding is wider than a head");
}

// One head for a block of rows: product, bias, norm, rotation; a query is kept, a key or value goes to its page.
void Attention::project_head(int head, std::int64_t first_row, std::int64_t end_row, const Rows& in, const Step& step, const AttentionCall& call,
                             float* queries, float* scratch) const {
    const Kernels& kernels = engine_->kernels;
    const std::int64_t dim = s_.head_dim;
    const bool is_query = head < s_.num_heads, is_value = head >= s_.num_heads + s_.num_kv_heads;
    const auto& slots = step.group(s_.group).write_slots;
    const auto& [panels, first_panel] = heads_[static_cast<std::size_t>(head)];
    kernels.product(*panels, first_panel, first_panel + panels_per_unit(*panels), in, first_row, end_row, scratch, dim, false);

    const Floats& norm = is_query ? s_.q_norm : s_.k_norm;
    // Scores come out as exponents of 2, divided by the soft cap where there is one.
    const float scale = s_.softcap == 0.0f ? s_.scale * 1.44269504f : s_.scale / s_.softcap;
    for (std::int64_t row = first_row; row < end_row; ++row) {
        float* values = scratch + (row - first_row) * dim;
        if (!s_.bias.empty()) {
            for (std::int64_t i = 0; i < dim; ++i) values[i] += s_.bias[static_cast<std::size_t>(head * dim + i)];
        }
        if (is_value) {
            if (slots[row] >= 0) kernels.store_value(call, head - s_.num_heads - s_.num_kv_heads, slots[row], values);
            continue;
        }
        if (!norm.empty()) kernels.normalise(values, norm.data(), s_.eps, dim, values);
        const std::int64_t angle = step.positions()[row] * s_.rope->half;
        kernels.rotate(values, s_.rope->cos.data() + angle, s_.rope->sin.data() + angle, s_.rope->half, s_.rope->interleaved);
        if (is_query) {
            float* query = queries + (row * s_.num_heads + head) * dim;
            for (std::int64_t i = 0; i < dim; ++i) query[i] = values[i] * scale;
        } else if (slots[row] >= 0) {
            kernels.store_key(call, head - s_.num_heads, slots[row], values);
        }
    }
}

void Attention::run(float* x, std::int64_t num_rows, Step& step) const {
    Engine& engine = *engine_;
    const Running running(engine);
    require(num_rows == step.num_rows(), "x must have one row per position of the step");
    require((step.last_position() + 1) * s_.rope->half <= static_cast<std::int64_t>(s_.rope->cos.size()),
            "a position lies beyond the rotary embedding's tables");
    const int kv_heads = s_.num_kv_heads, heads_per_kv_head = s_.num_heads / kv_heads;
    const int queries_per_unit = unit_rows(s_.head_dim, heads_per_kv_head) / heads_per_kv_head;
    const AttentionPlan& plan =
        step.plan({s_.group, s_.window, kv_heads, queries_per_unit, pool_.block_size, pool_.num_blocks, engine.pool.size()});

    Workspace& space = engine.workspace;
    const std::int64_t dim = s_.head_dim, width = s_.num_heads * dim, all_heads = static_cast<std::int64_t>(heads_.size());
    const std::int64_t padded = divide_up(dim, kLanes) * kLanes;
    space.queries.reserve(static_cast<std::size_t>(num_rows * width) * 4);
    space.context.reserve(static_cast<std::size_t>(num_rows * width) * 4);
    space.record_values.reserve(static_cast<std::size_t>(plan.num_records * s_.num_heads * padded) * 4);
    space.record_weights.reserve(static_cast<std::size_t>(plan.num_records * s_.num_heads * 2) * 4);
    float* context = space.context.as<float>();
    const Step::Group& group = step.group(s_.group);
    const AttentionCall call = {
        .num_heads = s_.num_heads,
        .num_kv_heads = kv_heads,
        .head_dim = s_.head_dim,
        .block_size = static_cast<int>(pool_.block_size),
        .half = pool_.half,
        .softcap = s_.softcap * 1.44269504f,
        .pages = pool_.data + s_.slot * (pool_.page_bytes / pool_.num_slots),
        .page_bytes = pool_.page_bytes,
        .queries = space.queries.as<float>(),
        .query = plan.queries.data(),
        .tables = group.tables.data(),
        .table_width = group.width,
        .out = context,
        .record_values = space.record_values.as<float>(),
        .record_weights = space.record_weights.as<float>(),
    };
    const std::int64_t floats = std::max({hidden(), kRowBlock * padded, width});
    engine.pool.reserve_scratch(static_cast<std::size_t>(std::max(floats * 4, engine.kernels.attend_scratch_bytes(call))));
    float* product = product_memory(engine, s_.post_norm, num_rows);
    const Rows in = input_rows(space.first, engine.kernels, num_rows, s_.qkv);
    const Rows mixed = input_rows(space.last, engine.kernels, num_rows, {s_.out});

    engine.pool.run([&](Worker& worker) {
        normalise_rows(engine, worker, x, num_rows, s_.norm, s_.eps, in);
        worker.share(divide_up(num_rows, kRowBlock) * all_heads, [&](std::int64_t item) {
            const std::int64_t first_row = item / all_heads * kRowBlock;
            project_head(static_cast<int>(item % all_heads), first_row, std::min(num_rows, first_row + kRowBlock), in, step, call,
                         space.queries.as<float>(), reinterpret_cast<float*>(worker.scratch()));
        });
        worker.share(static_cast<std::int64_t>(plan.units.size()) * kv_heads, [&](std::int64_t item) {
            engine.kernels.attend(call, plan.units[static_cast<std::size_t>(item / kv_heads)], static_cast<int>(item % kv_heads), worker.scratch());
        });
        if (!plan.to_merge.empty()) {
            worker.share(static_cast<std::int64_t>(plan.to_merge.size()) * s_.num_heads, [&](std::int64_t item) {
                const std::int32_t query = plan.to_merge[static_cast<std::size_t>(item / s_.num_heads)];
                engine.kernels.merge(call, plan.queries[query], static_cast<int>(item % s_.num_heads), reinterpret_cast<float*>(worker.scratch()));
            });
        }
        worker.share(num_rows, [&](std::int64_t row) { put_row(engine.kernels, context + row * width, row, mixed); });
        multiply_into(engine, worker, s_.out, mixed, num_rows, s_.post_norm, s_.eps, product, x);
    });
}

// ---- feed-forward network

FeedForward::FeedForward(std::shared_ptr<Engine> engine, FeedForwardSettings settings) : engine_(std::move(engine)), s_(std::move(settings)) {
    const Panels &gate = s_.gate->panels, &up = s_.up->panels, &down = s_.down->panels;
    require(gate.depth == hidden() && up.depth == hidden() && down.columns == hidden(), "the weights of a feed-forward block have other shapes");
    require(gate.columns == up.columns && gate.columns == down.depth, "the weights of a feed-forward block have other shapes");
    require(gate.columns % kGroup == 0, "the inner width must be a multiple of 32");
    require(s_.post_norm.empty() || s_.post_norm.size() == s_.norm.size(), "the post norm has another length");
}

void FeedForward::run(float* x, std::int64_t num_rows) const {
    Engine& engine = *engine_;
    const Running running(engine);
    const std::int64_t inner = s_.down->panels.depth, groups = inner / kGroup;
    engine.pool.reserve_scratch(static_cast<std::size_t>(std::max(hidden(), 3 * kRowBlock * kGroup)) * 4);
    float* product = product_memory(engine, s_.post_norm, num_rows);
    const Rows in = input_rows(engine.workspace.first, engine.kernels, num_rows, {s_.gate, s_.up});
    const Rows active = input_rows(engine.workspace.last, engine.kernels, num_rows, {s_.down});

    engine.pool.run([&](Worker& worker) {
        normalise_rows(engine, worker, x, num_rows, s_.norm, s_.eps, in);
        // Gate and up of one group of 32 columns at a time, so that it can be quantised at once.
        worker.share(divide_up(num_rows, kRowBlock) * groups, [&](std::int64_t item) {
            constexpr std::int64_t kPanels = kGroup / kPanel;
            const std::int64_t group = item % groups, first_row = item / groups * kRowBlock, end_row = std::min(num_rows, first_row + kRowBlock);
            auto* gate = reinterpret_cast<float*>(worker.scratch());
            float *up = gate + kRowBlock * kGroup, *result = up + kRowBlock * kGroup;
            engine.kernels.product(s_.gate->panels, group * kPanels, (group + 1) * kPanels, in, first_row, end_row, gate, kGroup, false);
            engine.kernels.product(s_.up->panels, group * kPanels, (group + 1) * kPanels, in, first_row, end_row, up, kGroup, false);
            engine.kernels.activate(s_.activation, gate, up, (end_row - first_row) * kGroup, result);
            for (std::int64_t row = first_row; row < end_row; ++row, result += kGroup) {
                if (active.values) std::memcpy(active.values + row * inner + group * kGroup, result, kGroup * sizeof(float));
                else engine.kernels.quantise(result, row, group, group + 1, active.tiles);
            }
        });
        multiply_into(engine, worker, s_.down, active, num_rows, s_.post_norm, s_.eps, product, x);
    });
}

// ---- head

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
            worker.share(num_rows, [&](std::int64_t row) { engine.kernels.softcap(out + row * columns(), columns(), softcap_); });
        }
    });
}

}  // namespace ratoon
