// The extension module: turns NumPy arrays into pointers after checking their shapes, releases the GIL, calls
// a module.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "attention_module.hpp"
#include "modules.hpp"
#include "layers.hpp"
#include "low_rank.hpp"
#include "processor.hpp"
#include "require.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace ratoon;

// Arguments of these types are marked `noconvert`: an array of another type or order is refused, not copied.
template <class T, int kDims>
using Array = nb::ndarray<T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
using Bytes = Array<const std::uint8_t, 1>;
using Vector = Array<const float, 1>;
using OptionalVector = std::optional<Vector>;
using Input = Array<const float, 2>;
using Output = Array<float, 2>;

template <class T>
auto to_vector(const T& array) {
    return std::vector<std::remove_const_t<typename T::Scalar>>(array.data(), array.data() + array.size());
}
Floats to_floats(const OptionalVector& array) { return array ? to_vector(*array) : Floats{}; }

std::int64_t extent(const auto& array, int axis) { return static_cast<std::int64_t>(array.shape(axis)); }

void check_width(const auto& x, std::int64_t width) {
    if (extent(x, 1) != width) refuse("x must have " + std::to_string(width) + " columns");
}

void check_output(const auto& x, const Output& out, std::int64_t width) {
    check_width(out, width);
    require(extent(x, 0) == extent(out, 0), "x and out must have the same number of rows");
}

// Weights as they are stored: a matrix's bytes must be what its shape says.
Format check_stored(const Bytes& bytes, const std::string& dtype, std::int64_t rows, std::int64_t columns) {
    const std::optional<Format> format = format_named(dtype);
    if (!format) refuse("there are no kernels for weights stored as " + dtype);
    if (rows < 1 || columns < 1 || columns % block_elements(*format) != 0) {
        refuse("weights stored as " + dtype + " cannot have this shape");
    }
    require(extent(bytes, 0) == rows * row_bytes(*format, columns),
            "weights have another size than their shape says");
    return *format;
}

void bind_weights(nb::module_& m) {
    nb::class_<Engine>(m, "Engine")
        .def(nb::init<int, const std::string&, bool>(), "num_threads"_a, "isa"_a, "keeps_to_cores"_a)
        .def_prop_ro("num_threads", [](const Engine& engine) { return engine.threads.size(); });

    nb::class_<PackedMatrix>(m, "Matrix");
    m.def(
        "pack",
        [](Engine& engine, const Bytes& data, const std::string& dtype, std::int64_t rows,
           std::int64_t columns, std::int64_t unit) {
            const Format format = check_stored(data, dtype, rows, columns);
            require(unit >= 1 && rows % unit == 0, "the heads do not divide the rows of a weight");
            const nb::gil_scoped_release release;
            const Running running(engine);
            return pack(engine.threads, engine.weights, format, data.data(), rows, columns, unit);
        },
        "engine"_a, "data"_a.noconvert(), "dtype"_a, "rows"_a, "columns"_a, "unit"_a);
}

void bind_linear(nb::module_& m) {
    nb::class_<Linear>(m, "Linear")
        .def(nb::init<std::shared_ptr<Engine>, std::vector<Matrix>>(), "engine"_a, "matrices"_a)
        .def_prop_ro("columns", &Linear::columns)
        .def(
            "run",
            [](const Linear& self, const Input& x, const Output& out) {
                check_width(x, self.depth());
                check_output(x, out, self.columns());
                const nb::gil_scoped_release release;
                self.run(x.data(), extent(x, 0), out.data());
            },
            "x"_a.noconvert(), "out"_a.noconvert());
}

void bind_embedding(nb::module_& m) {
    nb::class_<Embedding>(m, "Embedding")
        .def(
            "__init__",
            [](Embedding* self, std::shared_ptr<Engine> engine, const std::string& dtype,
               std::int64_t columns, float scale) {
                const std::optional<Format> format = format_named(dtype);
                if (!format) refuse("there are no kernels for weights stored as " + dtype);
                require(columns >= 1 && columns % block_elements(*format) == 0,
                        "a token table cannot have this width");
                new (self) Embedding(std::move(engine), *format, columns, scale);
            },
            "engine"_a, "dtype"_a, "columns"_a, "scale"_a)
        .def_prop_ro("columns", &Embedding::columns)
        .def(
            "run",
            [](const Embedding& self, const Bytes& stored, const Output& out) {
                require(extent(out, 1) == self.columns(), "the output has another width");
                require(extent(stored, 0) == extent(out, 0) * row_bytes(self.format(), self.columns()),
                        "the rows do not fill the output");
                const nb::gil_scoped_release release;
                self.run(stored.data(), extent(out, 0), out.data());
            },
            "stored"_a.noconvert(), "out"_a.noconvert());
}

void bind_step(nb::module_& m) {
    nb::class_<Step> step(m, "Step");
    step.def(
        "__init__",
        [](Step* self, const Array<const std::int32_t, 1>& positions,
           const Array<const std::int32_t, 1>& cu_seqlens,
           const std::vector<Array<const std::int32_t, 2>>& tables,
           const std::vector<Array<const std::int64_t, 1>>& slots) {
            require(tables.size() == slots.size(), "every cache group needs block tables and a slot mapping");
            std::vector<GroupInputs> groups;
            for (std::size_t i = 0; i < tables.size(); ++i) {
                require(extent(tables[i], 0) + 1 == extent(cu_seqlens, 0),
                        "block tables must have one row per sequence");
                groups.push_back({to_vector(tables[i]), extent(tables[i], 1), to_vector(slots[i])});
            }
            new (self) Step(to_vector(positions), to_vector(cu_seqlens), std::move(groups));
        },
        "positions"_a.noconvert(), "cu_seqlens"_a.noconvert(), "block_tables"_a.noconvert(),
        "slot_mapping"_a.noconvert());
    step.def("shared_blocks", [](const Step& self) {
        std::vector<std::tuple<int, std::vector<std::int32_t>, std::int64_t>> all;
        for (const auto& [group, sequences, num_blocks] : self.shared_blocks())
            all.emplace_back(group, sequences, num_blocks);
        return all;
    });
}

void bind_adapter(nb::module_& m) {
    nb::class_<Adapter>(m, "Adapter")
        .def(nb::init<std::int64_t, float>(), "num_layers"_a, "scale"_a)
        .def(
            "add",
            [](Adapter& self, std::int64_t layer, int target, const Bytes& a, const std::string& dtype_a,
               const Bytes& b, const std::string& dtype_b, std::int64_t rank, std::int64_t depth,
               std::int64_t columns, std::int64_t unit) {
                const Format format_a = check_stored(a, dtype_a, rank, depth),
                             format_b = check_stored(b, dtype_b, columns, rank);
                require(unit >= 1 && columns % unit == 0, "the heads do not divide the rows of a weight");
                const nb::gil_scoped_release release;
                self.add(layer, target, format_a, a.data(), format_b, b.data(), rank, depth, columns, unit);
            },
            "layer"_a, "target"_a, "a"_a.noconvert(), "dtype_a"_a, "b"_a.noconvert(), "dtype_b"_a, "rank"_a,
            "depth"_a, "columns"_a, "unit"_a);

    using Span = std::tuple<std::int64_t, std::int64_t, std::shared_ptr<Adapter>>;
    nb::class_<AdapterRows>(m, "AdapterRows")
        .def(
            "__init__",
            [](AdapterRows* self, std::int64_t num_rows, const std::vector<Span>& spans) {
                std::vector<AdapterSpan> parts;
                for (const auto& [first, end, adapter] : spans) parts.push_back({first, end, adapter});
                new (self) AdapterRows(num_rows, std::move(parts));
            },
            "num_rows"_a, "spans"_a);
}

// An attention module writes and reads the pages at every call, so it keeps the array.
struct PagedAttention {
    Array<std::uint8_t, 2> pages;
    Attention attention;
};

void bind_attention(nb::module_& m) {
    nb::class_<RopeTables>(m, "Rope").def(
        "__init__",
        [](RopeTables* self, const Input& cos, const Input& sin, bool interleaved) {
            require(extent(cos, 0) == extent(sin, 0) && extent(cos, 1) == extent(sin, 1),
                    "cos and sin must have the same shape");
            new (self) RopeTables{to_vector(cos), to_vector(sin), extent(cos, 1), interleaved};
        },
        "cos"_a.noconvert(), "sin"_a.noconvert(), "interleaved"_a);

    nb::class_<PagedAttention>(m, "Attention")
        .def(
            "__init__",
            [](PagedAttention* self, std::shared_ptr<Engine> engine, const Vector& norm,
               std::vector<Matrix> qkv, const OptionalVector& bias, const OptionalVector& q_norm,
               const OptionalVector& k_norm, Matrix out, const OptionalVector& post_norm, float eps,
               int num_heads, int num_kv_heads, int head_dim, float scale, float softcap, std::int64_t window,
               std::shared_ptr<RopeTables> rope, int group, std::int64_t slot, std::int64_t layer,
               const Array<std::uint8_t, 2>& pages, std::int64_t block_size, std::int64_t num_slots,
               bool integers) {
                const PagePool pool = {
                    .data = pages.data(),
                    .num_blocks = extent(pages, 0),
                    .page_bytes = extent(pages, 1),
                    .block_size = block_size,
                    .num_slots = num_slots,
                    .num_kv_heads = num_kv_heads,
                    .head_dim = head_dim,
                    .integers = integers,
                };
                AttentionSettings settings = {
                    .norm = to_vector(norm),
                    .bias = to_floats(bias),
                    .q_norm = to_floats(q_norm),
                    .k_norm = to_floats(k_norm),
                    .post_norm = to_floats(post_norm),
                    .qkv = std::move(qkv),
                    .out = std::move(out),
                    .eps = eps,
                    .num_heads = num_heads,
                    .num_kv_heads = num_kv_heads,
                    .head_dim = head_dim,
                    .scale = scale,
                    .softcap = softcap,
                    .window = window,
                    .rope = std::move(rope),
                    .group = group,
                    .slot = slot,
                    .layer = layer,
                };
                new (self) PagedAttention{pages, Attention(std::move(engine), std::move(settings), pool)};
            },
            nb::kw_only(), "engine"_a, "norm"_a.noconvert(), "qkv"_a, "bias"_a.noconvert().none(),
            "q_norm"_a.noconvert().none(), "k_norm"_a.noconvert().none(), "out"_a,
            "post_norm"_a.noconvert().none(), "eps"_a, "num_heads"_a, "num_kv_heads"_a, "head_dim"_a,
            "scale"_a, "softcap"_a, "window"_a, "rope"_a, "group"_a, "slot"_a, "layer"_a,
            "pages"_a.noconvert(), "block_size"_a, "num_slots"_a, "integers"_a)
        .def(
            "run",
            [](const PagedAttention& self, const Output& x, Step& step, const AdapterRows* adapters) {
                check_width(x, self.attention.hidden());
                const nb::gil_scoped_release release;
                self.attention.run(x.data(), extent(x, 0), step, adapters);
            },
            "x"_a.noconvert(), "step"_a, "adapters"_a.none());
}

void bind_feed_forward(nb::module_& m) {
    nb::class_<FeedForward>(m, "FeedForward")
        .def(
            "__init__",
            [](FeedForward* self, std::shared_ptr<Engine> engine, const Vector& norm, Matrix gate, Matrix up,
               Matrix down, const OptionalVector& post_norm, float eps, const std::string& activation,
               std::int64_t layer) {
                const bool silu = activation == "silu";
                if (!silu && activation != "gelu_tanh") refuse("there is no activation " + activation);
                FeedForwardSettings settings = {
                    .norm = to_vector(norm),
                    .post_norm = to_floats(post_norm),
                    .gate = std::move(gate),
                    .up = std::move(up),
                    .down = std::move(down),
                    .layer = layer,
                    .eps = eps,
                    .activation = silu ? Activation::kSilu : Activation::kGeluTanh,
                };
                new (self) FeedForward(std::move(engine), std::move(settings));
            },
            nb::kw_only(), "engine"_a, "norm"_a.noconvert(), "gate"_a, "up"_a, "down"_a,
            "post_norm"_a.noconvert().none(), "eps"_a, "activation"_a, "layer"_a)
        .def(
            "run",
            [](const FeedForward& self, const Output& x, const AdapterRows* adapters) {
                check_width(x, self.hidden());
                const nb::gil_scoped_release release;
                self.run(x.data(), extent(x, 0), adapters);
            },
            "x"_a.noconvert(), "adapters"_a.none());
}

void bind_layers(nb::module_& m) {
    nb::class_<Layers>(m, "Layers")
        .def(
            "__init__",
            [](Layers* self, const std::vector<const PagedAttention*>& attention,
               std::vector<const FeedForward*> feed_forward) {
                require(!attention.empty(), "there must be a layer");
                require(attention.size() == feed_forward.size(), "a layer has two modules");
                std::vector<const Attention*> modules;
                for (const PagedAttention* module : attention) modules.push_back(&module->attention);
                new (self) Layers{std::move(modules), std::move(feed_forward)};
            },
            "attention"_a, "feed_forward"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def(
            "run",
            [](const Layers& self, const Output& x, Step& step, const Array<const std::int64_t, 1>& rows,
               const Output& out, const AdapterRows* adapters) {
                for (const Attention* module : self.attention) check_width(x, module->hidden());
                for (const FeedForward* module : self.feed_forward) check_width(x, module->hidden());
                check_output(rows, out, extent(x, 1));
                const nb::gil_scoped_release release;
                self.run(x.data(), extent(x, 0), step, adapters, {rows.data(), rows.size()}, out.data());
            },
            "x"_a.noconvert(), "step"_a, "rows"_a.noconvert(), "out"_a.noconvert(), "adapters"_a.none());
}

void bind_lm_head(nb::module_& m) {
    nb::class_<LMHead>(m, "LMHead")
        .def(
            "__init__",
            [](LMHead* self, std::shared_ptr<Engine> engine, const Vector& norm, Matrix out, float eps,
               float softcap) {
                new (self) LMHead(std::move(engine), to_vector(norm), std::move(out), eps, softcap);
            },
            nb::kw_only(), "engine"_a, "norm"_a.noconvert(), "out"_a, "eps"_a, "softcap"_a)
        .def_prop_ro("columns", &LMHead::columns)
        .def(
            "run",
            [](const LMHead& self, const Input& x, const Output& out, const Array<std::int32_t, 1>& best) {
                check_width(x, self.hidden());
                check_output(x, out, self.columns());
                require(extent(x, 0) == extent(best, 0), "x and best must have the same number of rows");
                const nb::gil_scoped_release release;
                self.run(x.data(), extent(x, 0), out.data(), best.data());
            },
            "x"_a.noconvert(), "out"_a.noconvert(), "best"_a.noconvert());
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("available_variants", &available_variants);
    m.def("emulated_variants", &emulated_variants);
    m.def("passes_self_test", [](const std::string& isa) { return passes_self_test(kernels_named(isa)); }, "isa"_a);
    m.def(
        "same_bits",
        [](const std::string& isa, const std::string& expected) {
            return same_bits(kernels_named(isa), kernels_named(expected));
        },
        "isa"_a, "expected"_a);
    m.def("supports", [](const std::string& dtype) { return format_named(dtype).has_value(); }, "dtype"_a);
    bind_weights(m);
    bind_linear(m);
    bind_embedding(m);
    bind_step(m);
    bind_adapter(m);
    bind_attention(m);
    bind_feed_forward(m);
    bind_layers(m);
    bind_lm_head(m);
}
