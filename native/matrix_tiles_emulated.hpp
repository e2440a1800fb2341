// Tiles in plain C++: slow, and with the semantics of the hardware, down to the sums that wrap around.
#pragma once

#include "matrix_tiles.hpp"

namespace ratoon::RATOON_ISA {

class MatrixTiles {
public:
    explicit MatrixTiles(const TileShape (&shapes)[kMatrixTiles]) {
        for (int i = 0; i < kMatrixTiles; ++i) shapes_[i] = shapes[i];
    }
    MatrixTiles(const MatrixTiles&) = delete;
    MatrixTiles& operator=(const MatrixTiles&) = delete;

    template <int kTile>
    void zero() {
        __builtin_memset(bytes_[kTile], 0, sizeof bytes_[kTile]);
    }
    template <int kTile>
    void load(const void* from, std::int64_t stride) {
        zero<kTile>();
        for (int row = 0; row < shapes_[kTile].rows; ++row)
            __builtin_memcpy(bytes_[kTile][row], static_cast<const std::uint8_t*>(from) + row * stride,
                             static_cast<std::size_t>(shapes_[kTile].row_bytes));
    }
    template <int kTile>
    void store(void* to, std::int64_t stride) {
        for (int row = 0; row < shapes_[kTile].rows; ++row)
            __builtin_memcpy(static_cast<std::uint8_t*>(to) + row * stride, bytes_[kTile][row],
                             static_cast<std::size_t>(shapes_[kTile].row_bytes));
    }
    template <int kSums, int kA, int kB, bool kSignedA, bool kSignedB>
    void multiply() {
        const auto widen = [](std::uint8_t byte, bool is_signed) {
            return is_signed ? static_cast<std::int8_t>(byte) : static_cast<std::int32_t>(byte);
        };
        for (int m = 0; m < shapes_[kSums].rows; ++m) {
            for (int n = 0; n < shapes_[kSums].row_bytes / 4; ++n) {
                std::uint32_t sum;
                __builtin_memcpy(&sum, &bytes_[kSums][m][4 * n], sizeof sum);
                for (int k = 0; k < shapes_[kA].row_bytes; ++k)
                    sum += static_cast<std::uint32_t>(widen(bytes_[kA][m][k], kSignedA) *
                                                      widen(bytes_[kB][k / 4][4 * n + k % 4], kSignedB));
                __builtin_memcpy(&bytes_[kSums][m][4 * n], &sum, sizeof sum);
            }
        }
    }

private:
    TileShape shapes_[kMatrixTiles];
    std::uint8_t bytes_[kMatrixTiles][16][64];
};

}  // namespace ratoon::RATOON_ISA
