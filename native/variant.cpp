// The table of functions of one instruction set.
#include <type_traits>

#include "simd.hpp"

#define RATOON_QUOTED(x) #x
#define RATOON_TEXT(x) RATOON_QUOTED(x)

namespace ratoon::RATOON_ISA {

template <class T>
using Function = std::remove_pointer_t<T>;

Function<decltype(Kernels::normalise)> normalise;
Function<decltype(Kernels::quantise)> quantise;
Function<decltype(Kernels::product)> product;
Function<decltype(Kernels::rotate)> rotate;
Function<decltype(Kernels::activate)> activate;
Function<decltype(Kernels::softcap)> softcap;
Function<decltype(Kernels::highest)> highest;
Function<decltype(Kernels::store_query)> store_query;
Function<decltype(Kernels::store_key)> store_key;
Function<decltype(Kernels::store_value)> store_value;
Function<decltype(Kernels::attend_scratch_bytes)> attend_scratch_bytes;
Function<decltype(Kernels::attend)> attend;
Function<decltype(Kernels::merge)> merge;

const Kernels kernels = {
    .name = RATOON_TEXT(RATOON_ISA),
    .tile_height = kTileHeight,
    .normalise = normalise,
    .quantise = quantise,
    .product = product,
    .rotate = rotate,
    .activate = activate,
    .softcap = softcap,
    .highest = highest,
    .store_query = store_query,
    .store_key = store_key,
    .store_value = store_value,
    .attend_scratch_bytes = attend_scratch_bytes,
    .attend = attend,
    .merge = merge,
};

}  // namespace ratoon::RATOON_ISA
