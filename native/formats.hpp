// GGUF's storage formats: reading them group by group, packing them into panels, expanding single rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "memory.hpp"
#include "panels.hpp"
#include "threads.hpp"

namespace ratoon {

// By GGUF's name; nothing for a format that has no kernels.
std::optional<Format> format_named(const std::string& name);

// Inputs per quantisation block (1 for floats) and bytes per block, as stored in files.
std::int64_t block_elements(Format format);
std::int64_t row_bytes(Format format, std::int64_t columns);

// A packed matrix and its memory.
struct PackedMatrix {
    Panels panels;
    Arena::Piece memory;
};

// Pack `rows` stored rows (the outputs) of `depth` elements. Panels start afresh every `unit` rows, which must divide `rows`.
std::shared_ptr<PackedMatrix> pack(Pool& pool, Arena& arena, Format format, const std::uint8_t* stored, std::int64_t rows, std::int64_t depth,
                                         std::int64_t unit);

// Expand one stored row to floats.
void expand_row(Format format, const std::uint8_t* stored, std::int64_t columns, float* out);

}  // namespace ratoon
