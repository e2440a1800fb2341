// A small computation by two variants of the kernels, compared bit by bit.
//
// Compilers, emulators and hypervisors can be wrong about an instruction; a variant that is would write wrong K
// and V, which others would then be given. The test takes a few milliseconds.
#include <cstring>
#include <vector>

#include "processor.hpp"

namespace ratoon {
namespace {

// Numbers that are equal at every start (SplitMix64).
class Random {
public:
    std::uint64_t bits() {
        std::uint64_t x = state_ += 0x9E3779B97F4A7C15u;
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
        x = (x ^ x >> 27) * 0x94D049BB133111EBu;
        return x ^ x >> 31;
    }
    float number() { return static_cast<float>(static_cast<std::int32_t>(bits() >> 32)) * 0x1p-31f; }
    std::vector<float> numbers(std::int64_t count) {
        std::vector<float> all(static_cast<std::size_t>(count));
        for (float& x : all) x = number();
        return all;
    }

private:
    std::uint64_t state_ = 1;
};

constexpr std::int64_t kDepth = 256, kColumns = 24;
constexpr Format kFormats[] = {Format::kF32,  Format::kF16,  Format::kBF16, Format::kQ8_0, Format::kQ4_0, Format::kQ4_1,
                               Format::kQ5_0, Format::kQ5_1, Format::kQ4_K, Format::kQ5_K, Format::kQ6_K};

// A packed matrix of random bytes, in which bytes that could be the upper half of a float16 or float32 are made
// small: no scale is infinite or NaN.
std::vector<std::uint8_t> random_panels(Random& random, Panels& panels) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(num_panels(panels) * panels.panel_bytes));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.bits());
    const PanelLayout layout = layout_of(panels.format);
    const auto make_finite = [](std::uint8_t* from, std::int64_t count) {
        for (std::int64_t i = 1; i < count; i += 2) from[i] &= 0xBF;
    };
    if (!quantised(layout)) make_finite(bytes.data(), static_cast<std::int64_t>(bytes.size()));
    const std::int64_t groups = quantised(layout) ? num_panels(panels) * kDepth / kGroup : 0;
    std::uint8_t* at = bytes.data();
    for (std::int64_t group = 0; group < groups; ++group, at += group_bytes(layout)) {
        if (group % groups_per_superblock(layout) == 0) {
            make_finite(at, header_bytes(layout));
            at += header_bytes(layout);
        }
        if (groups_per_superblock(layout) == 1) make_finite(at, scale_bytes(layout));
    }
    panels.data = bytes.data();
    return bytes;
}

std::vector<float> product(const Kernels& kernels, const Panels& panels, std::vector<float>& x) {
    const auto rows = static_cast<std::int64_t>(x.size()) / kDepth;
    Rows in = {x.data(), {nullptr, rows, kDepth / kGroup, kernels.tile_height}, kDepth};
    std::vector<std::uint8_t> tiles(static_cast<std::size_t>(rows * in.tiles.groups * QuantTiles::kRowBytes));
    in.tiles.data = tiles.data();
    kernels.quantise(x.data(), 0, rows, 0, in.tiles.groups, in.tiles);
    std::vector<float> out(static_cast<std::size_t>(rows * kColumns));
    kernels.product(panels, 0, num_panels(panels), in, 0, rows, out.data(), kColumns, false);
    return out;
}

// Attention of the last queries of one sequence: the pages, and then the results.
struct AttentionData {
    static constexpr int kHeads = 3, kDim = 64, kBlock = 16, kLength = 150, kQueries = 7;
    std::vector<float> keys, values, queries;

    std::vector<std::uint8_t> run(const Kernels& kernels) const {
        constexpr std::int64_t kBlocks = (kLength + kBlock - 1) / kBlock + 1;
        const std::int64_t page = kv_head_bytes(true, kDim, kBlock);
        std::vector<std::uint8_t> pages(static_cast<std::size_t>(kBlocks * page)),
            stored(static_cast<std::size_t>(kQueries * kHeads * query_bytes(true, kDim)));
        std::vector<Query> query;
        std::vector<std::int32_t> table;
        for (std::int32_t block = 1; block < kBlocks; ++block) table.push_back(block);
        for (std::int32_t row = 0; row < kQueries; ++row)
            query.push_back({row, 0, row * 9, kLength - kQueries + row + 1, -1});
        const Unit unit = {0, kQueries, 0, (kLength - 1) / kSpan + 1, 0};
        std::vector<float> out(kQueries * kHeads * kDim);
        const AttentionCall call = {
            .num_heads = kHeads,
            .num_kv_heads = 1,
            .head_dim = kDim,
            .block_size = kBlock,
            .integers = true,
            .softcap = 0.0f,
            .pages = pages.data(),
            .page_bytes = page,
            .queries = stored.data(),
            .units = &unit,
            .num_units = 1,
            .query = query.data(),
            .tables = table.data(),
            .table_width = static_cast<std::int64_t>(table.size()),
            .out = out.data(),
            .record_values = nullptr,
            .record_weights = nullptr,
        };
        for (std::int64_t i = 0; i < kLength; ++i) {
            kernels.store_key(call, 0, i + kBlock, keys.data() + i * kDim);
            kernels.store_value(call, 0, i + kBlock, values.data() + i * kDim);
        }
        for (int i = 0; i < kQueries * kHeads; ++i)
            kernels.store_query(call, i / kHeads, i % kHeads, queries.data() + i * kDim);
        std::vector<std::uint8_t> memory(kernels.attend_scratch_bytes(call) + 64);
        std::uint8_t* scratch = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
        kernels.attend(call, 0, scratch);
        const auto* results = reinterpret_cast<const std::uint8_t*>(out.data());
        pages.insert(pages.end(), results, results + out.size() * sizeof(float));
        return pages;
    }
};

std::vector<float> elementwise(const Kernels& kernels, std::vector<float> x) {
    const auto half = static_cast<std::int64_t>(x.size()) / 2;
    std::vector<float> out(x.size());
    kernels.normalise(x.data(), x.data(), 1e-5f, half, out.data());
    kernels.activate(Activation::kSilu, x.data(), x.data() + half, half, out.data() + half);
    kernels.rotate(x.data(), x.data() + half, x.data(), half / 2, false);
    kernels.softcap(x.data(), half, 2.0f);
    out.insert(out.end(), x.begin(), x.end());
    return out;
}

bool equal(const auto& a, const auto& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

}  // namespace

bool same_bits(const Kernels& kernels, const Kernels& expected) {
    Random random;
    // Whole tiles and lower ones of every variant, and single rows.
    for (const std::int64_t rows : {27, 1}) {
        std::vector<float> x = random.numbers(rows * kDepth);
        for (const Format format : kFormats) {
            Panels panels = {format, kDepth, kColumns, kColumns, panel_bytes(layout_of(format), kDepth), nullptr};
            const std::vector<std::uint8_t> memory = random_panels(random, panels);
            if (!equal(product(kernels, panels, x), product(expected, panels, x))) return false;
        }
    }
    using Data = AttentionData;
    const Data data = {random.numbers(Data::kLength * Data::kDim), random.numbers(Data::kLength * Data::kDim),
                       random.numbers(Data::kQueries * Data::kHeads * Data::kDim)};
    if (!equal(data.run(kernels), data.run(expected))) return false;
    const std::vector<float> x = random.numbers(128);
    return equal(elementwise(kernels, x), elementwise(expected, x));
}

bool passes_self_test(const Kernels& kernels) {
#ifdef RATOON_X86
    if (&kernels != &portable::kernels && &kernels != &portable_fma::kernels)
        return same_bits(kernels, portable_fma::kernels);
#endif
    return true;
}

}  // namespace ratoon
