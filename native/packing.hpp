// Turns stored weights into the panels that the kernels walk (panels.hpp).
#pragma once

#include <cstdint>
#include <memory>

#include "formats.hpp"
#include "memory.hpp"
#include "panels.hpp"
#include "thread_pool.hpp"

namespace ratoon {

// A packed matrix and its memory.
struct PackedMatrix {
    Panels panels;
    Arena::Allocation memory;
};

using Matrix = std::shared_ptr<PackedMatrix>;

// Pack `rows` stored rows (the outputs) of `depth` elements. Panels start afresh every `unit` rows, which
// must divide `rows`.
Matrix pack(ThreadPool& threads, Arena& arena, Format format, const std::uint8_t* stored, std::int64_t rows,
            std::int64_t depth, std::int64_t unit);

}  // namespace ratoon
