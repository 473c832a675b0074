// What a kernel of another program is for, as far as its name tells.
#pragma once

#include <string_view>

namespace kvroof {

// gemm, attention, kv_cache, normalisation, rotary, softmax, routing, sampling, quantisation, communication, reduction,
// copy, elementwise or other, from the demangled name with its template arguments: those of libraries such as CUTLASS
// say what their kernels do.
std::string_view kind_of_kernel(std::string_view demangled);

}  // namespace kvroof
