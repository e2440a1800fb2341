// Reading packed panels of quantised weights, group by group.
#pragma once

#include "simd.hpp"

namespace ratoon::RATOON_ISA {

struct Scales {
    Vec scale, offset;  // a weight is scale * q + offset
};

template <Format kFormat>
struct Reader {
    static constexpr PanelLayout kLayout = layout_of(kFormat);
    static constexpr int kBits = kLayout.bits;
    // Parts of a group with a scale of their own.
    static constexpr int kParts = kLayout.scaling == Scaling::kNestedCenter ? 2 : 1;
    static constexpr bool kOffset = kLayout.scaling != Scaling::kScale || kLayout.center != 0;

    template <int kPart>
    INLINE static Scales scales(const std::uint8_t* header, const std::uint8_t* group) {
        const auto* d = reinterpret_cast<const Half*>(kLayout.scaling >= Scaling::kNested ? header : group);
        if constexpr (kLayout.scaling == Scaling::kScale) {
            const Vec scale = load(d);
            return {scale, scale * set1(-kLayout.center)};
        } else if constexpr (kLayout.scaling == Scaling::kScaleOffset) {
            return {load(d), load(d + kPanel)};
        } else if constexpr (kLayout.scaling == Scaling::kNested) {
            return {load(d) * load(group), zero() - load(d + kPanel) * load(group + kPanel)};
        } else {
            const Vec scale = load(d) * load(reinterpret_cast<const std::int8_t*>(group) + kPart * kPanel);
            return {scale, scale * set1(-kLayout.center)};
        }
    }

    // Inputs 4 * kStep to 4 * kStep + 3 of all columns.
    template <int kStep>
    INLINE static Bytes weights(const std::uint8_t* group) {
        const std::uint8_t* quants = group + scale_bytes(kLayout);
        if constexpr (kBits == 8) return load_bytes(quants + 64 * kStep);
        const Bytes nibbles = load_bytes(quants + 64 * (kStep / 2));
        const Bytes low = keep_bits(kStep % 2 ? shift<-4>(nibbles) : nibbles, 0x0F);
        if constexpr (kBits == 5) {
            return join(low, keep_bits(shift<4 - kStep>(load_bytes(quants + 256)), 0x10));
        } else if constexpr (kBits == 6) {
            return join(
                low,
                keep_bits(shift<4 - 2 * (kStep % 4)>(load_bytes(quants + 256 + 64 * (kStep / 4))), 0x30));
        } else {
            return low;
        }
    }
};

// f(group's header, group) for a number of groups; `panel` is the beginning of a super-block.
template <class Reader, class F>
INLINE void for_groups(const std::uint8_t* panel, std::int64_t count, F f) {
    constexpr int kGroups = groups_per_superblock(Reader::kLayout);
    for (std::int64_t superblock = count / kGroups; superblock > 0; --superblock) {
        const std::uint8_t* header = panel;
        panel += header_bytes(Reader::kLayout);
        for (int g = 0; g < kGroups; ++g, panel += group_bytes(Reader::kLayout)) f(header, panel);
    }
}

// With few rows, weights are needed as fast as memory gives them, and processors' own guesses stop at pages.
constexpr int kPrefetchBytes = 8192;
template <int kBytes>
INLINE void prefetch(const std::uint8_t* from) {
    for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(from + i);
}

// The integers of one group as bytes, 64 * step: what `weights` gives for each step.
constexpr int kExpandedBytes = 512;

// Many rows times a panel: its integers are expanded once for all of them, so many groups at a time as stay in
// the nearest cache. The sums wait in memory meanwhile, which changes no bit of them.
constexpr std::int64_t kMostRows = 64;
constexpr std::int64_t kChunkGroups = 32;

template <class Reader>
INLINE void expand_groups(const std::uint8_t* panel, std::int64_t count, std::uint8_t* to) {
    for_groups<Reader>(panel, count, [&](const std::uint8_t*, const std::uint8_t* group) {
        prefetch<group_bytes(Reader::kLayout)>(group + kPrefetchBytes);
        unroll<8>([&]<int kStep>() { store_bytes(to + 64 * kStep, Reader::template weights<kStep>(group)); });
        to += kExpandedBytes;
    });
}

// The rare case is kept out of the way of the other.
[[gnu::noinline]] inline void put_first(float* out, Vec sum, int columns, bool add) {
    store_first(out, columns, add ? load_first(out, columns) + sum : sum);
}
INLINE void put(float* out, Vec sum, int columns, bool add) {
    if (columns < kPanel) put_first(out, sum, columns, add);
    else store(out, add ? load(out) + sum : sum);
}

}  // namespace ratoon::RATOON_ISA
