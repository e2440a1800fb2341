// The two-dimensional registers of a matrix unit: what kernels that use one are written against.
//
// There are eight. A shape gives each its rows and the bytes of a row. `multiply` adds to 32-bit sums [m][n] the
// products of 8-bit integers a [m][k] with b, whose row i holds, for every column, four bytes: the factors of
// a's columns 4i to 4i + 3. matrix_tiles_amx.hpp is the hardware; matrix_tiles_emulated.hpp does the same in
// plain C++, so that any machine can test the kernels.
#pragma once

#include <cstdint>

namespace ratoon {

struct TileShape {
    int rows, row_bytes;
};

constexpr int kMatrixTiles = 8;

}  // namespace ratoon
