// The fast CPU operators: threads, SIMD chosen at run time, BLAS for long prompts; bit-equal for any number of threads.
#pragma once

#include <memory>

#include "kernels/engine/ops.hpp"

namespace kvroof {

// `threads` ≥ 1 counts the calling thread. Results are within rounding of the reference, not bit-equal to it.
std::unique_ptr<Ops> make_fast_ops(unsigned threads);

}  // namespace kvroof
