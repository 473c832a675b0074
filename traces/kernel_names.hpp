// Names of kernels as people read them.
#pragma once

#include <string>
#include <string_view>

namespace kvroof {

// What a record that stands for all kernels of a graph's launch is called, with the graph's number behind it.
inline constexpr std::string_view kWholeGraph = "CUDA graph ";

// What a mangled C++ name stands for ("void attention<64>(Rows, float*)"); any other name unchanged.
std::string demangled_name(std::string_view name);

// The function's own name: without return type, namespaces, template arguments and parameters ("attention").
std::string short_name(std::string_view demangled);

}  // namespace kvroof
