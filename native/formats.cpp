// The byte layouts are those of ggml's block structs (ggml-common.h in llama.cpp).
#include "formats.hpp"

#include <bit>
#include <cstring>

namespace ratoon {
namespace {

float half_to_float(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7FFFu;
    if (rest < 0x0400u)
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(rest) * 0x1p-24f) | sign);
    const std::uint32_t exponent =
        rest >= 0x7C00u ? 0x70000000u : 0x38000000u;  // infinite or NaN; normal
    return std::bit_cast<float>(((rest << 13) + exponent) | sign);
}

void read_nibbles(const std::uint8_t* bytes, StoredGroup& group) {
    for (int i = 0; i < 16; ++i) {
        group.q[i] = bytes[i] & 0x0F;
        group.q[i + 16] = bytes[i] >> 4;
    }
}

void read_fifth_bits(const std::uint8_t* bytes, StoredGroup& group) {
    std::uint32_t bits;
    std::memcpy(&bits, bytes, 4);
    for (int i = 0; i < kGroup; ++i) group.q[i] |= static_cast<std::uint8_t>((bits >> i & 1) << 4);
}

// Groups of a K-quant lie in pairs: the low halves of 32 bytes are one group, the high halves the next.
void read_nibble_half(const std::uint8_t* bytes, int half, StoredGroup& group) {
    for (int i = 0; i < kGroup; ++i) group.q[i] = bytes[i] >> (4 * half) & 0x0F;
}

// Eight scales and eight offsets of six bits in twelve bytes.
void read_nested_scales(const std::uint8_t* bytes, int index, StoredGroup& group) {
    if (index < 4) {
        group.scale = bytes[index] & 63;
        group.offset = bytes[index + 4] & 63;
    } else {
        group.scale = static_cast<std::uint8_t>((bytes[index + 4] & 0x0F) | bytes[index - 4] >> 6 << 4);
        group.offset = static_cast<std::uint8_t>(bytes[index + 4] >> 4 | bytes[index] >> 6 << 4);
    }
}

struct Stored {
    const char* name;
    int elements, bytes;  // of one block
};

Stored stored_as(Format format) {
    switch (format) {
        case Format::kF32: return {"F32", 1, 4};
        case Format::kF16: return {"F16", 1, 2};
        case Format::kBF16: return {"BF16", 1, 2};
        case Format::kQ8_0: return {"Q8_0", 32, 34};
        case Format::kQ4_0: return {"Q4_0", 32, 18};
        case Format::kQ4_1: return {"Q4_1", 32, 20};
        case Format::kQ5_0: return {"Q5_0", 32, 22};
        case Format::kQ5_1: return {"Q5_1", 32, 24};
        case Format::kQ4_K: return {"Q4_K", 256, 144};
        case Format::kQ5_K: return {"Q5_K", 256, 176};
        case Format::kQ6_K: return {"Q6_K", 256, 210};
    }
    return {};
}

}  // namespace

std::optional<Format> format_named(const std::string& name) {
    for (int i = 0; i <= static_cast<int>(Format::kQ6_K); ++i) {
        if (name == stored_as(static_cast<Format>(i)).name) return static_cast<Format>(i);
    }
    return std::nullopt;
}

std::int64_t block_elements(Format format) { return stored_as(format).elements; }

std::int64_t row_bytes(Format format, std::int64_t columns) {
    const Stored stored = stored_as(format);
    return columns / stored.elements * stored.bytes;
}

void read_group(Format format, const std::uint8_t* row, std::int64_t index, StoredGroup& group) {
    const Stored stored = stored_as(format);
    const std::uint8_t* block = row + index * kGroup / stored.elements * stored.bytes;
    const int part = static_cast<int>(index % 8);  // of a K-quant's super-block
    std::memcpy(&group.d, block, 2);
    switch (format) {
        case Format::kQ8_0:
            for (int i = 0; i < kGroup; ++i) group.q[i] = block[2 + i] ^ 0x80;
            break;
        case Format::kQ4_0: read_nibbles(block + 2, group); break;
        case Format::kQ4_1:
            std::memcpy(&group.m, block + 2, 2);
            read_nibbles(block + 4, group);
            break;
        case Format::kQ5_0:
            read_nibbles(block + 6, group);
            read_fifth_bits(block + 2, group);
            break;
        case Format::kQ5_1:
            std::memcpy(&group.m, block + 2, 2);
            read_nibbles(block + 8, group);
            read_fifth_bits(block + 4, group);
            break;
        case Format::kQ4_K:
            std::memcpy(&group.m, block + 2, 2);
            read_nested_scales(block + 4, part, group);
            read_nibble_half(block + 16 + part / 2 * 32, part % 2, group);
            break;
        case Format::kQ5_K:
            std::memcpy(&group.m, block + 2, 2);
            read_nested_scales(block + 4, part, group);
            read_nibble_half(block + 48 + part / 2 * 32, part % 2, group);
            for (int i = 0; i < kGroup; ++i)
                group.q[i] |= static_cast<std::uint8_t>((block[16 + i] >> part & 1) << 4);
            break;
        case Format::kQ6_K: {
            const int half = part / 4, quarter = part % 4;  // 128 elements each; 32 each
            std::memcpy(&group.d, block + 208, 2);
            std::memcpy(group.half_scales, block + 192 + 2 * part, 2);
            read_nibble_half(block + 64 * half + 32 * (quarter % 2), quarter / 2, group);
            for (int i = 0; i < kGroup; ++i) {
                group.q[i] |= static_cast<std::uint8_t>((block[128 + 32 * half + i] >> 2 * quarter & 3) << 4);
            }
            break;
        }
        default: break;
    }
}

void expand_row(Format format, const std::uint8_t* stored, std::int64_t columns, float* out) {
    const PanelLayout layout = layout_of(format);
    if (format == Format::kF32) {
        std::memcpy(out, stored, static_cast<std::size_t>(columns) * 4);
        return;
    }
    if (!quantised(layout)) {
        for (std::int64_t i = 0; i < columns; ++i) {
            std::uint16_t bits;
            std::memcpy(&bits, stored + 2 * i, 2);
            out[i] = format == Format::kF16 ? half_to_float(bits)
                                            : std::bit_cast<float>(std::uint32_t{bits} << 16);
        }
        return;
    }
    StoredGroup group;
    for (std::int64_t g = 0; g < columns / kGroup; ++g, out += kGroup) {
        read_group(format, stored, g, group);
        const float d = half_to_float(group.d), m = half_to_float(group.m);
        const float center = static_cast<float>(layout.bits == 8 ? 128 : layout.center);
        for (int i = 0; i < kGroup; ++i) {
            const float q = static_cast<float>(group.q[i]);
            switch (layout.scaling) {
                case Scaling::kNone: break;
                case Scaling::kScale: out[i] = d * (q - center); break;
                case Scaling::kScaleOffset: out[i] = d * q + m; break;
                case Scaling::kNested:
                    out[i] = d * static_cast<float>(group.scale) * q - m * static_cast<float>(group.offset);
                    break;
                case Scaling::kNestedCenter:
                    out[i] = d * static_cast<float>(group.half_scales[i / 16]) * (q - center);
                    break;
            }
        }
    }
}

}  // namespace ratoon
