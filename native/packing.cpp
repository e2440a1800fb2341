#include "packing.hpp"

#include <cstring>

namespace ratoon {
namespace {

std::uint32_t four(const std::uint8_t* bytes) {
    std::uint32_t word;
    std::memcpy(&word, bytes, 4);
    return word;
}

// Put a column's integers where panels.hpp says, four bytes at a time.
void write_quants(int bits, const std::uint8_t (&q)[kGroup], int column, std::uint8_t* quants) {
    const auto put = [&](int row, std::uint32_t word) {
        std::memcpy(quants + 64 * row + 4 * column, &word, 4);
    };
    if (bits == 8) {
        for (int step = 0; step < 8; ++step) put(step, four(q + 4 * step) ^ 0x80808080u);
        return;
    }
    for (int pair = 0; pair < 4; ++pair) {
        put(pair, (four(q + 8 * pair) & 0x0F0F0F0Fu) | (four(q + 8 * pair + 4) & 0x0F0F0F0Fu) << 4);
    }
    if (bits == 5) {
        std::uint32_t word = 0;
        for (int step = 0; step < 8; ++step) word |= (four(q + 4 * step) >> 4 & 0x01010101u) << step;
        put(4, word);
    } else if (bits == 6) {
        for (int half = 0; half < 2; ++half) {
            std::uint32_t word = 0;
            for (int step = 0; step < 4; ++step)
                word |= (four(q + 16 * half + 4 * step) >> 4 & 0x03030303u) << 2 * step;
            put(4 + half, word);
        }
    }
}

void write_group(PanelLayout layout, const StoredGroup& group, int column, std::uint8_t* header,
                 std::uint8_t* at) {
    const auto put_half = [&](std::uint8_t* to, std::uint16_t half) {
        std::memcpy(to + 2 * column, &half, 2);
    };
    switch (layout.scaling) {
        case Scaling::kNone: break;
        case Scaling::kScale: put_half(at, group.d); break;
        case Scaling::kScaleOffset:
            put_half(at, group.d);
            put_half(at + 2 * kPanel, group.m);
            break;
        case Scaling::kNested:
            put_half(header, group.d);
            put_half(header + 2 * kPanel, group.m);
            at[column] = group.scale;
            at[kPanel + column] = group.offset;
            break;
        case Scaling::kNestedCenter:
            put_half(header, group.d);
            std::memcpy(at + column, &group.half_scales[0], 1);
            std::memcpy(at + kPanel + column, &group.half_scales[1], 1);
            break;
    }
    write_quants(layout.bits, group.q, column, at + scale_bytes(layout));
}

void pack_quantised_panel(Format format, const std::uint8_t* stored, std::int64_t depth, int columns,
                          std::uint8_t* panel) {
    const PanelLayout layout = layout_of(format);
    const std::int64_t stride = row_bytes(format, depth);
    for (int column = 0; column < columns; ++column) {
        std::uint8_t *at = panel, *header = panel;
        StoredGroup group;
        for (std::int64_t g = 0; g < depth / kGroup; ++g) {
            if (g % groups_per_superblock(layout) == 0) {
                header = at;
                at += header_bytes(layout);
            }
            read_group(format, stored + column * stride, g, group);
            write_group(layout, group, column, header, at);
            at += group_bytes(layout);
        }
    }
}

template <class T>
void pack_float_panel(const std::uint8_t* stored, std::int64_t depth, int columns, std::uint8_t* panel) {
    for (std::int64_t k = 0; k < depth; ++k) {
        for (int column = 0; column < columns; ++column) {
            std::memcpy(panel + (k * kPanel + column) * sizeof(T), stored + (column * depth + k) * sizeof(T),
                        sizeof(T));
        }
    }
}

}  // namespace

Matrix pack(ThreadPool& threads, Arena& arena, Format format, const std::uint8_t* stored, std::int64_t rows,
            std::int64_t depth, std::int64_t unit) {
    const PanelLayout layout = layout_of(format);
    Panels panels{format, depth, rows, unit, panel_bytes(layout, depth), nullptr};
    const Arena::Allocation memory = arena.take(static_cast<std::size_t>(num_panels(panels) * panels.panel_bytes));
    panels.data = memory.data;
    threads.run([&](ParallelRegion& region) {
        region.parallel_for(num_panels(panels), [&](std::int64_t p) {
            const std::int64_t per_unit = panels_per_unit(panels);
            const std::uint8_t* from =
                stored + (p / per_unit * unit + p % per_unit * kPanel) * row_bytes(format, depth);
            std::uint8_t* to = memory.data + p * panels.panel_bytes;
            const int columns = columns_of(panels, p);
            if (columns < kPanel) std::memset(to, 0, static_cast<std::size_t>(panels.panel_bytes));
            if (quantised(layout)) pack_quantised_panel(format, from, depth, columns, to);
            else if (layout.bits == 32) pack_float_panel<std::uint32_t>(from, depth, columns, to);
            else pack_float_panel<std::uint16_t>(from, depth, columns, to);
        });
    });
    return std::make_shared<PackedMatrix>(panels, memory);
}

}  // namespace ratoon
