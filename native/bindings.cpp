// The extension module: turns NumPy arrays into pointers after checking their shapes, lets go of the GIL, calls a block.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "blocks.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace ratoon;

template <class T, int kDims>
using Array = nb::ndarray<T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
using OptionalVector = std::optional<Array<const float, 1>>;

template <class T>
auto to_vector(const T& array) {
    return std::vector<std::remove_const_t<typename T::Scalar>>(array.data(), array.data() + array.size());
}
Floats to_floats(const OptionalVector& array) { return array ? to_vector(*array) : Floats{}; }

Format known_format(const std::string& dtype) {
    const std::optional<Format> format = format_named(dtype);
    if (!format) throw std::invalid_argument("there are no kernels for weights stored as " + dtype);
    return *format;
}

// Weights as they are stored: a matrix's bytes must be what its shape says.
Format check_stored(const Array<const std::uint8_t, 1>& bytes, const std::string& dtype, std::int64_t rows, std::int64_t columns) {
    const Format format = known_format(dtype);
    if (rows < 1 || columns < 1 || columns % block_elements(format) != 0) throw std::invalid_argument("weights stored as " + dtype + " cannot have this shape");
    if (static_cast<std::int64_t>(bytes.size()) != rows * row_bytes(format, columns)) throw std::invalid_argument("weights have another size than their shape says");
    return format;
}

Matrix pack_matrix(Engine& engine, const Array<const std::uint8_t, 1>& bytes, const std::string& dtype, std::int64_t rows, std::int64_t columns, std::int64_t unit) {
    const Format format = check_stored(bytes, dtype, rows, columns);
    if (unit < 1 || rows % unit != 0) throw std::invalid_argument("the heads do not divide the rows of a weight");
    const nb::gil_scoped_release release;
    return pack(engine.pool, engine.weights, format, bytes.data(), rows, columns, unit);
}

// An embedding reads the mapped file at every call, so it keeps the array.
struct StoredEmbedding {
    Array<const std::uint8_t, 1> bytes;
    Embedding embedding;
};

struct PagedAttention {
    Array<std::uint8_t, 2> pages;
    Attention attention;
};

template <class A>
void check_width(const A& x, std::int64_t width) {
    if (static_cast<std::int64_t>(x.shape(1)) != width) throw std::invalid_argument("x must have " + std::to_string(width) + " columns");
}

std::int64_t num_rows(const auto& x) { return static_cast<std::int64_t>(x.shape(0)); }

void check_output(const auto& x, const Array<float, 2>& out, std::int64_t width) {
    check_width(out, width);
    if (x.shape(0) != out.shape(0)) throw std::invalid_argument("x and out must have the same number of rows");
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("available_variants", &available_variants);
    m.def("supports", [](const std::string& dtype) { return format_named(dtype).has_value(); }, "dtype"_a);

    nb::class_<Engine>(m, "Engine")
        .def(nb::init<int, const std::string&>(), "num_threads"_a, "isa"_a)
        .def_prop_ro("num_threads", [](const Engine& engine) { return engine.pool.size(); });

    nb::class_<PackedMatrix>(m, "Matrix");
    m.def("pack", &pack_matrix, "engine"_a, "data"_a.noconvert(), "dtype"_a, "rows"_a, "columns"_a, "unit"_a);

    nb::class_<Step>(m, "Step").def(
        "__init__",
        [](Step* self, const Array<const std::int32_t, 1>& positions, const Array<const std::int32_t, 1>& cu_seqlens,
           const std::vector<Array<const std::int32_t, 2>>& tables, const std::vector<Array<const std::int64_t, 1>>& slots) {
            if (tables.size() != slots.size()) throw std::invalid_argument("every cache group needs block tables and write slots");
            std::vector<Step::Group> groups;
            for (std::size_t i = 0; i < tables.size(); ++i) {
                if (tables[i].shape(0) + 1 != cu_seqlens.size()) throw std::invalid_argument("block tables must have one row per sequence");
                groups.push_back({to_vector(tables[i]), static_cast<std::int64_t>(tables[i].shape(1)), to_vector(slots[i])});
            }
            new (self) Step(to_vector(positions), to_vector(cu_seqlens), std::move(groups));
        },
        "positions"_a.noconvert(), "cu_seqlens"_a.noconvert(), "block_tables"_a.noconvert(), "write_slots"_a.noconvert());

    nb::class_<Linear>(m, "Linear")
        .def(nb::init<std::shared_ptr<Engine>, std::vector<Matrix>>(), "engine"_a, "matrices"_a)
        .def_prop_ro("columns", &Linear::columns)
        .def(
            "run",
            [](const Linear& self, const Array<const float, 2>& x, const Array<float, 2>& out) {
                check_width(x, self.depth());
                check_output(x, out, self.columns());
                const nb::gil_scoped_release release;
                self.run(x.data(), num_rows(x), out.data());
            },
            "x"_a.noconvert(), "out"_a.noconvert());

    nb::class_<StoredEmbedding>(m, "Embedding")
        .def(
            "__init__",
            [](StoredEmbedding* self, std::shared_ptr<Engine> engine, const Array<const std::uint8_t, 1>& data, const std::string& dtype,
               std::int64_t rows, std::int64_t columns, float scale) {
                const Format format = check_stored(data, dtype, rows, columns);
                new (self) StoredEmbedding{data, Embedding(std::move(engine), format, data.data(), rows, columns, scale)};
            },
            "engine"_a, "data"_a.noconvert(), "dtype"_a, "rows"_a, "columns"_a, "scale"_a)
        .def(
            "run",
            [](const StoredEmbedding& self, const Array<const std::int32_t, 1>& ids, const Array<float, 2>& out) {
                check_output(ids, out, self.embedding.columns());
                const nb::gil_scoped_release release;
                self.embedding.run(ids.data(), num_rows(ids), out.data());
            },
            "token_ids"_a.noconvert(), "out"_a.noconvert());

    nb::class_<RopeTables>(m, "Rope").def(
        "__init__",
        [](RopeTables* self, const Array<const float, 2>& cos, const Array<const float, 2>& sin, bool interleaved) {
            if (cos.shape(0) != sin.shape(0) || cos.shape(1) != sin.shape(1)) throw std::invalid_argument("cos and sin must have the same shape");
            new (self) RopeTables{to_vector(cos), to_vector(sin), static_cast<std::int64_t>(cos.shape(1)), interleaved};
        },
        "cos"_a.noconvert(), "sin"_a.noconvert(), "interleaved"_a);

    nb::class_<PagedAttention>(m, "Attention")
        .def(
            "__init__",
            [](PagedAttention* self, std::shared_ptr<Engine> engine, const Array<const float, 1>& norm, std::vector<Matrix> qkv,
               const OptionalVector& bias, const OptionalVector& q_norm, const OptionalVector& k_norm, Matrix out,
               const OptionalVector& post_norm, float eps, int num_heads, int num_kv_heads, int head_dim, float scale, float softcap,
               std::int64_t window, std::shared_ptr<RopeTables> rope, int group, std::int64_t slot, const Array<std::uint8_t, 2>& pages,
               std::int64_t block_size, std::int64_t num_slots, bool half) {
                const auto page_bytes = static_cast<std::int64_t>(pages.shape(1));
                if (page_bytes != 2 * num_slots * num_kv_heads * head_dim * block_size * (half ? 2 : 4)) throw std::invalid_argument("the pages have another size than their layout says");
                AttentionSettings settings{to_vector(norm), to_floats(bias), to_floats(q_norm), to_floats(k_norm), to_floats(post_norm),
                                           std::move(qkv), std::move(out), eps, num_heads, num_kv_heads, head_dim, scale, softcap, window,
                                           std::move(rope), group, slot};
                const PagePool pool{pages.data(), static_cast<std::int64_t>(pages.shape(0)), page_bytes, block_size, num_slots, num_kv_heads, head_dim, half};
                new (self) PagedAttention{pages, Attention(std::move(engine), std::move(settings), pool)};
            },
            nb::kw_only(), "engine"_a, "norm"_a.noconvert(), "qkv"_a, "bias"_a.noconvert().none(), "q_norm"_a.noconvert().none(),
            "k_norm"_a.noconvert().none(), "out"_a, "post_norm"_a.noconvert().none(), "eps"_a, "num_heads"_a, "num_kv_heads"_a, "head_dim"_a,
            "scale"_a, "softcap"_a, "window"_a, "rope"_a, "group"_a, "slot"_a, "pages"_a.noconvert(), "block_size"_a, "num_slots"_a, "half"_a)
        .def(
            "run",
            [](const PagedAttention& self, const Array<float, 2>& x, Step& step) {
                check_width(x, self.attention.hidden());
                const nb::gil_scoped_release release;
                self.attention.run(x.data(), num_rows(x), step);
            },
            "x"_a.noconvert(), "step"_a);

    nb::class_<FeedForward>(m, "FeedForward")
        .def(
            "__init__",
            [](FeedForward* self, std::shared_ptr<Engine> engine, const Array<const float, 1>& norm, Matrix gate, Matrix up, Matrix down,
               const OptionalVector& post_norm, float eps, const std::string& activation) {
                if (activation != "silu" && activation != "gelu_tanh") throw std::invalid_argument("there is no activation " + activation);
                const Activation kind = activation == "silu" ? Activation::kSilu : Activation::kGeluTanh;
                new (self) FeedForward(std::move(engine), {to_vector(norm), to_floats(post_norm), std::move(gate), std::move(up), std::move(down), eps, kind});
            },
            nb::kw_only(), "engine"_a, "norm"_a.noconvert(), "gate"_a, "up"_a, "down"_a, "post_norm"_a.noconvert().none(), "eps"_a, "activation"_a)
        .def(
            "run",
            [](const FeedForward& self, const Array<float, 2>& x) {
                check_width(x, self.hidden());
                const nb::gil_scoped_release release;
                self.run(x.data(), num_rows(x));
            },
            "x"_a.noconvert());

    nb::class_<Head>(m, "Head")
        .def(
            "__init__",
            [](Head* self, std::shared_ptr<Engine> engine, const Array<const float, 1>& norm, Matrix out, float eps, float softcap) {
                new (self) Head(std::move(engine), to_vector(norm), std::move(out), eps, softcap);
            },
            nb::kw_only(), "engine"_a, "norm"_a.noconvert(), "out"_a, "eps"_a, "softcap"_a)
        .def_prop_ro("columns", &Head::columns)
        .def(
            "run",
            [](const Head& self, const Array<const float, 2>& x, const Array<float, 2>& out) {
                check_width(x, self.hidden());
                check_output(x, out, self.columns());
                const nb::gil_scoped_release release;
                self.run(x.data(), num_rows(x), out.data());
            },
            "x"_a.noconvert(), "out"_a.noconvert());
}
