#include "layers.hpp"

#include <algorithm>
#include <optional>
#include <ranges>

#include "require.hpp"

namespace ratoon {

void Layers::run(float* x, std::int64_t num_rows, Step& step, const AdapterRows* adapters,
                 std::span<const std::int64_t> rows, float* out) const {
    for (const std::int64_t row : rows) require(0 <= row && row < num_rows, "x has no such row");
    const std::size_t last = attention.size() - 1;
    for (std::size_t i = 0; i < last; ++i) {
        attention[i]->run(x, num_rows, step, adapters);
        feed_forward[i]->run(x, num_rows, adapters);
    }
    const auto count = static_cast<std::int64_t>(rows.size()), hidden = attention[last]->hidden();
    for (std::int64_t i = 0; i < count; ++i) std::copy_n(x + rows[i] * hidden, hidden, out + i * hidden);
    if (std::ranges::equal(rows, std::views::iota(std::int64_t{0}, num_rows))) {
        attention[last]->run(out, count, step, adapters);
        feed_forward[last]->run(out, count, adapters);
        return;
    }
    attention[last]->store(x, num_rows, step, adapters);
    if (count == 0) return;
    Step readers = step.readers(rows);
    const auto theirs = adapters ? std::optional(adapters->of(rows)) : std::nullopt;
    attention[last]->run(out, count, readers, theirs ? &*theirs : nullptr);
    feed_forward[last]->run(out, count, theirs ? &*theirs : nullptr);
}

}  // namespace ratoon
