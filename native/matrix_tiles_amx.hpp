// Tiles in hardware: Intel's AMX-TILE and AMX-INT8.
//
// A thread's tiles are configured while a `MatrixTiles` lives; outside that time the operating system has
// nothing of them to save. The numbers of registers are part of the instructions, hence the template arguments.
#pragma once

#include "matrix_tiles.hpp"

namespace ratoon::RATOON_ISA {

class MatrixTiles {
public:
    explicit MatrixTiles(const TileShape (&shapes)[kMatrixTiles]) {
        struct alignas(64) {
            std::uint8_t palette, start_row, reserved[14];
            std::uint16_t row_bytes[16];
            std::uint8_t rows[16];
        } config = {.palette = 1, .start_row = 0, .reserved = {}, .row_bytes = {}, .rows = {}};
        static_assert(sizeof config == 64);
        for (int i = 0; i < kMatrixTiles; ++i) {
            config.rows[i] = static_cast<std::uint8_t>(shapes[i].rows);
            config.row_bytes[i] = static_cast<std::uint16_t>(shapes[i].row_bytes);
        }
        asm volatile("ldtilecfg %0" : : "m"(config));
    }
    ~MatrixTiles() { asm volatile("tilerelease"); }
    MatrixTiles(const MatrixTiles&) = delete;
    MatrixTiles& operator=(const MatrixTiles&) = delete;

    template <int kTile>
    void zero() {
        asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
    }
    template <int kTile>
    void load(const void* from, std::int64_t stride) {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
    }
    template <int kTile>
    void store(void* to, std::int64_t stride) {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
    }
    template <int kSums, int kA, int kB, bool kSignedA, bool kSignedB>
    void multiply() {
        if constexpr (kSignedA && kSignedB)
            asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
        else if constexpr (kSignedA)
            asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
        else if constexpr (kSignedB)
            asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
        else asm volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
    }
};

}  // namespace ratoon::RATOON_ISA
