// Names of kernels as people read them.
#pragma once

#include <string>
#include <string_view>

namespace kvroof {

// What a mangled C++ name stands for ("void attention<64>(Rows, float*)"); any other name unchanged.
std::string demangled_name(std::string_view name);

// The function's own name: without return type, namespaces, template arguments and parameters ("attention").
std::string short_name(std::string_view demangled);

}  // namespace kvroof
