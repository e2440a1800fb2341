// The seam between what a module computes and how its inner loops run: plain structs and one table of
// functions.
//
// gemm.cpp, attention.cpp and elementwise.cpp are compiled once per instruction set, each time into a
// namespace of its own, and the table is chosen when the program starts. What they share with the rest lies
// in this header and in panels.hpp; functions there are `static`, because of an inline function with external
// linkage the linker keeps one copy for all, perhaps the one that needs AVX-512.
#pragma once

#include <cstddef>
#include <cstdint>

#include "panels.hpp"

namespace ratoon {

// Keys per pass of the attention's softmax. Part of the arithmetic: another number gives other bits.
constexpr int kSpan = 128;
// Keys (or columns of V) that are computed side by side.
constexpr int kLanes = 16;

// Rows (queries times the heads that share a KV head) that an attention unit may hold: enough to fetch K and V
// seldom, few enough for the cache. One query always fits.
static inline int unit_rows(int head_dim, int heads_per_kv_head) {
    const int rows = 6144 / head_dim < 96 ? 6144 / head_dim : 96;
    return rows > heads_per_kv_head ? rows : heads_per_kv_head;
}

// Rows quantised to int8 in groups of 32, in the order in which the product walks them: tiles of up to
// `height` rows, and in a tile group after group. One group of a tile of h rows is
//   int8 q[h][32], float scale[h], float sum[h], float half_sums[2][h], int32 shift[h]
// where sum = scale * (the group's q added up), half_sums are the same for its halves, and
// shift = -128 * (the group's q added up).
struct QuantTiles {
    static constexpr std::int64_t kRowBytes = kGroup + 5 * 4;  // of one group

    std::uint8_t* data;
    std::int64_t rows;
    std::int64_t groups;
    std::int64_t height;
};

// The tile that starts at `first_row`: its rows, and where it lies.
static inline std::int64_t tile_rows(const QuantTiles& tiles, std::int64_t first_row) {
    return tiles.rows - first_row < tiles.height ? tiles.rows - first_row : tiles.height;
}
static inline std::uint8_t* tile_data(const QuantTiles& tiles, std::int64_t first_row) {
    return tiles.data + first_row * tiles.groups * QuantTiles::kRowBytes;
}

// The input rows of a product, as floats, quantised, or both, whatever its weights ask for.
struct Rows {
    float* values;  // [rows][depth]
    QuantTiles tiles;
    std::int64_t depth;
};

enum class Activation { kSilu, kGeluTanh };

// One row of attention: a token of a sequence, and which keys it sees.
struct Query {
    std::int32_t row;
    std::int32_t sequence;
    std::int32_t first_visible;
    std::int32_t end;           // one past its own position
    std::int64_t first_record;  // of its results, one per span; -1 where one unit sees all of its spans
};

static inline std::int32_t first_span(const Query& query) { return query.first_visible / kSpan; }
static inline std::int32_t num_spans(const Query& query) {
    return (query.end - 1) / kSpan - first_span(query) + 1;
}

// Queries whose block tables agree over some spans, at one KV head: its keys and values are read once for all.
struct Unit {
    std::int32_t first_query;
    std::int32_t num_queries;
    std::int32_t first_span;
    std::int32_t end_span;
    std::int32_t kv_head;
};

// Bytes of one KV head in a block, and of one head of a query.
static inline std::int64_t kv_head_bytes(bool integers, std::int64_t head_dim, std::int64_t block_size) {
    return 2 * block_size * (integers ? 2 * head_dim + 4 : 4 * head_dim);
}
static inline std::int64_t query_bytes(bool integers, std::int64_t head_dim) {
    return integers ? (head_dim + 1) / 2 * 4 + 4 : 4 * head_dim;
}

// Everything about one attention call that its units have in common.
struct AttentionCall {
    int num_heads;
    int num_kv_heads;
    int head_dim;
    int block_size;
    bool integers;  // K and V are 16-bit integers with scales, else float32
    float softcap;  // 0 is off; else scores are cap * tanh(score / cap), with 1 / cap already in the queries
    std::uint8_t* pages;  // block b lies at pages + b * page_bytes, KV head after KV head (kv_pages.hpp)
    std::int64_t page_bytes;
    std::uint8_t* queries;  // [row][head], as store_query makes them
    const Unit* units;
    std::int64_t num_units;
    const Query* query;
    const std::int32_t* tables;
    std::int64_t table_width;
    float* out;             // [row][head][dim]
    float* record_values;   // [record][head][dim, rounded up to whole lanes]
    float* record_weights;  // [record][2][head, rounded up to whole lanes]: best scores, sums of weights
};

struct Kernels {
    const char* name;
    int tile_height;  // of QuantTiles

    // RMS norm of n numbers.
    void (*normalise)(const float* x, const float* weight, float eps, std::int64_t n, float* out);
    // Put groups [first_group, end_group) of rows into the tiles; x holds them row after row.
    void (*quantise)(const float* x, std::int64_t first_row, std::int64_t end_row, std::int64_t first_group,
                     std::int64_t end_group, const QuantTiles& tiles);
    // out[r][c] = (or +=) the product of rows [first_row, end_row) with panels [first_panel, end_panel),
    // which belong to one unit; `out` points at the first row and column. The first row starts a tile.
    void (*product)(const Panels& weights, std::int64_t first_panel, std::int64_t end_panel, const Rows& in,
                    std::int64_t first_row, std::int64_t end_row, float* out, std::int64_t stride, bool add);
    // Turn the first 2 * half numbers of a head; pairs are (2i, 2i + 1) if interleaved, else (i, half + i).
    void (*rotate)(float* head, const float* cos, const float* sin, std::int64_t half, bool interleaved);
    // out = activation(gate) * up, n a multiple of 16.
    void (*activate)(Activation activation, const float* gate, const float* up, std::int64_t n, float* out);
    // x = cap * tanh(x / cap)
    void (*softcap)(float* x, std::int64_t n, float cap);
    // The highest of n numbers; NaN if one of them is.
    float (*highest)(const float* x, std::int64_t n);

    // Keep a head's query, scaled such that scores are exponents of 2.
    void (*store_query)(const AttentionCall& call, std::int64_t row, int head, const float* query);
    // Store a head's key and value in its page.
    void (*store_key)(const AttentionCall& call, int kv_head, std::int64_t slot, const float* key);
    void (*store_value)(const AttentionCall& call, int kv_head, std::int64_t slot, const float* value);
    // What attend and merge need of scratch.
    std::size_t (*attend_scratch_bytes)(const AttentionCall& call);
    // Attend one unit. Threads take units in order, mostly.
    void (*attend)(const AttentionCall& call, std::int64_t item, std::uint8_t* scratch);
    // Merge the records of one query in the order of its spans, for each head.
    void (*merge)(const AttentionCall& call, const Query& query, float* scratch);
};

namespace portable {
extern const Kernels kernels;
}
#ifdef RATOON_X86
namespace portable_fma {
extern const Kernels kernels;
}
namespace avx2 {
extern const Kernels kernels;
}
namespace avxvnni {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
namespace amx {
extern const Kernels kernels;
}
namespace amx_emulated {
extern const Kernels kernels;
}
#endif

}  // namespace ratoon
