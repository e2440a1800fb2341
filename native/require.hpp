// Refusing what a caller got wrong: std::invalid_argument, which Python sees as ValueError.
#pragma once

#include <stdexcept>
#include <string>

namespace ratoon {

[[noreturn]] inline void refuse(const std::string& what) { throw std::invalid_argument(what); }

inline void require(bool holds, const char* what) {
    if (!holds) refuse(what);
}

}  // namespace ratoon
