// GGUF's storage formats: their sizes, and reading them group by group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "panels.hpp"

namespace ratoon {

// By GGUF's name; nothing for a format that has no kernels.
std::optional<Format> format_named(const std::string& name);

// Elements of one quantisation block (1 for floats), and bytes of a row.
std::int64_t block_elements(Format format);
std::int64_t row_bytes(Format format, std::int64_t columns);

// Thirty-two stored weights: unsigned integers (with 128 added to signed bytes), and their scales as stored.
struct StoredGroup {
    std::uint8_t q[kGroup];
    std::uint16_t d, m;          // float16
    std::uint8_t scale, offset;  // within a K-quant's super-block
    std::int8_t half_scales[2];
};

// Read one group of a quantised row.
void read_group(Format format, const std::uint8_t* row, std::int64_t index, StoredGroup& group);

// Expand one stored row to floats.
void expand_row(Format format, const std::uint8_t* stored, std::int64_t columns, float* out);

}  // namespace ratoon
