// What the parts of the made CUPTI share: complaints about calls that the real one would refuse, and a test's wishes.
#pragma once

#include <cupti.h>

#include <cstdint>

namespace made {

// A call that breaks the library's rules: said on stderr, counted (made_complaints), and answered with `result`.
CUptiResult complain(const char* function, const char* what, CUptiResult result = CUPTI_ERROR_INVALID_OPERATION);

// The environment's MADE_CUPTI, a list as in "lost=3,cuptiRangeProfilerStart=35": the number of a wish; -1: not wished.
long wish(const char* name);

// By the clock that was registered, else CUPTI's own (CLOCK_REALTIME), or that in any case; `monotonic_ns` is a moment
// of CLOCK_MONOTONIC.
std::uint64_t time_of(std::uint64_t monotonic_ns, bool own_clock = false);

// The device ran a kernel, from and to moments of CLOCK_MONOTONIC; the profiler counts and samples it.
void count_kernel(std::uint64_t start_ns, std::uint64_t end_ns);

}  // namespace made
