// The stages that modules are made of. Each is called by the leader of a parallel region and ends when all
// its work is done.
#pragma once

#include <cstdint>
#include <vector>

#include "engine.hpp"
#include "kernels.hpp"
#include "low_rank.hpp"
#include "packing.hpp"
#include "thread_pool.hpp"

namespace ratoon {

using Floats = std::vector<float>;

// Rows that one item of work takes through a panel: a whole number of tiles, few enough to stay in the cache.
constexpr std::int64_t kRowSlice = 64;

static inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How many parts `count` panels or groups are cut in for a slice of rows: `usual`, or a few for each thread
// where there is one slice only. Its rows are soon done with a part, and taking the next one waits for memory.
static inline std::int64_t num_parts(const Engine& engine, std::int64_t row_slices, std::int64_t count,
                                     std::int64_t usual) {
    const std::int64_t most = row_slices == 1 ? std::int64_t{4} * engine.threads.size() : usual;
    return count < most ? count : most;
}

// Before a region: memory for the input rows of a product with these matrices, in the forms that they take,
// and as floats too where adapters ask for them.
Rows input_rows(Workspace::Input& memory, const Kernels& kernels, std::int64_t num_rows,
                const std::vector<Matrix>& matrices, bool for_adapters = false);

// One row becomes an input row.
void put_row(const Kernels& kernels, const float* x, std::int64_t row, const Rows& rows);

// rows = norm(x)
void normalise_rows(Engine& engine, ParallelRegion& region, const float* x, std::int64_t num_rows, const Floats& norm,
                    float eps, const Rows& rows);

// out = rows times a matrix of one unit, or that added to it, and then the first weight of an adaptation.
void multiply_rows(Engine& engine, ParallelRegion& region, const Panels& panels, const Rows& rows,
                   std::int64_t num_rows, float* out, std::int64_t stride, bool add,
                   const Adaptation* adaptation = nullptr);

// How a module ends: x += rows times a matrix, with an optional norm in between.
class Residual {
public:
    // Before the region.
    Residual(Engine& engine, const Panels& panels, const Floats& post_norm, float eps, std::int64_t num_rows);
    void run(ParallelRegion& region, const Rows& rows, const Adaptation& adaptation, float* x) const;

private:
    Engine& engine_;
    const Panels& panels_;
    const Floats& post_norm_;
    float eps_;
    std::int64_t num_rows_;
    float* product_;
};

}  // namespace ratoon
