// Which variants of the kernels this processor runs.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace ratoon {

// Best first. The first call asks the operating system for what some of them need.
std::vector<std::string> available_variants();
// Variants that do in software what this processor lacks: for tests.
std::vector<std::string> emulated_variants();
// Throws std::invalid_argument for a variant in neither list.
const Kernels& kernels_named(const std::string& isa);

// Whether the kernels compute the same bits as plain C++ does, for a few small products and one attention. True
// where there is nothing to compare with: portable kernels are plain C++.
bool passes_self_test(const Kernels& kernels);
// The same with these kernels for the expected bits.
bool same_bits(const Kernels& kernels, const Kernels& expected);

}  // namespace ratoon
