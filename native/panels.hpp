// How weights lie in memory after packing: panels of 16 output columns, walked from the first input on.
//
// Float formats are plain [input][column]. Quantised formats are cut in groups of 32 inputs. A group of a
// panel holds the scales of its 16 columns and then the integers, unsigned except for 8 bits, in rows of 64
// bytes of which byte 4 * column + t holds
//   4 bits, row j of 4:  input 8j + t in its low half, input 8j + 4 + t in its high half
//   5 bits, one row more: in bit s the fifth bit of input 4s + t
//   6 bits, rows p = 0, 1 more: in bits 2s and 2s + 1 the upper two bits of input 16p + 4s + t
//   8 bits, row s of 8:  input 4s + t
// K-quants have one header of float16 scales per super-block of eight groups.
#pragma once

#include <cstdint>

namespace ratoon {

constexpr int kPanel = 16;
constexpr int kGroup = 32;

struct Half {
    std::uint16_t bits;
};
struct BFloat {
    std::uint16_t bits;
};

enum class Format : std::uint8_t {
    kF32,
    kF16,
    kBF16,
    kQ8_0,
    kQ4_0,
    kQ4_1,
    kQ5_0,
    kQ5_1,
    kQ4_K,
    kQ5_K,
    kQ6_K
};

enum class Scaling : std::uint8_t {
    kNone,          // floats
    kScale,         // d * (q - center)
    kScaleOffset,   // d * q + m
    kNested,        // d * scale * q - dmin * offset: header d, dmin; group: 16 scales, 16 offsets of 6 bits
    kNestedCenter,  // d * scale * (q - center): header d; group: 16 signed scales for either half
};

struct PanelLayout {
    int bits;
    Scaling scaling;
    int center;
};

static constexpr PanelLayout layout_of(Format format) {
    switch (format) {
        case Format::kF32: return {32, Scaling::kNone, 0};
        case Format::kF16: return {16, Scaling::kNone, 0};
        case Format::kBF16: return {16, Scaling::kNone, 0};
        case Format::kQ8_0: return {8, Scaling::kScale, 0};
        case Format::kQ4_0: return {4, Scaling::kScale, 8};
        case Format::kQ4_1: return {4, Scaling::kScaleOffset, 0};
        case Format::kQ5_0: return {5, Scaling::kScale, 16};
        case Format::kQ5_1: return {5, Scaling::kScaleOffset, 0};
        case Format::kQ4_K: return {4, Scaling::kNested, 0};
        case Format::kQ5_K: return {5, Scaling::kNested, 0};
        case Format::kQ6_K: return {6, Scaling::kNestedCenter, 32};
    }
    return {};
}

static constexpr bool quantised(PanelLayout layout) { return layout.scaling != Scaling::kNone; }
static constexpr int groups_per_superblock(PanelLayout layout) {
    return layout.scaling == Scaling::kNested || layout.scaling == Scaling::kNestedCenter ? 8 : 1;
}
static constexpr int header_bytes(PanelLayout layout) {
    if (layout.scaling == Scaling::kNested) return 4 * kPanel;
    return layout.scaling == Scaling::kNestedCenter ? 2 * kPanel : 0;
}
static constexpr int scale_bytes(PanelLayout layout) {
    return layout.scaling == Scaling::kScaleOffset ? 4 * kPanel : 2 * kPanel;
}
static constexpr int group_bytes(PanelLayout layout) {
    return scale_bytes(layout) + (layout.bits == 8 ? 512 : 256 + 64 * (layout.bits - 4));
}
static constexpr std::int64_t panel_bytes(PanelLayout layout, std::int64_t depth) {
    if (!quantised(layout)) return depth * kPanel * layout.bits / 8;
    const std::int64_t superblocks = depth / kGroup / groups_per_superblock(layout);
    return superblocks * (header_bytes(layout) + groups_per_superblock(layout) * group_bytes(layout));
}

// A packed matrix. Panels start afresh every `unit` columns (a head, or all of them), so the last panel of a
// unit may be partly empty.
struct Panels {
    Format format;
    std::int64_t depth;
    std::int64_t columns;
    std::int64_t unit;
    std::int64_t panel_bytes;
    const std::uint8_t* data;
};

static inline std::int64_t panels_per_unit(const Panels& w) { return (w.unit + kPanel - 1) / kPanel; }
static inline std::int64_t num_panels(const Panels& w) { return w.columns / w.unit * panels_per_unit(w); }
static inline int columns_of(const Panels& w, std::int64_t panel) {
    const std::int64_t left = w.unit - panel % panels_per_unit(w) * kPanel;
    return left < kPanel ? static_cast<int>(left) : kPanel;
}

}  // namespace ratoon
