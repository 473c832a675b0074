// CUPTI, loaded by name at run time: a program starts and runs where there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cupti/activity_api.hpp"
#include "kernels/cupti/machine.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

struct CuptiLibrary {
  std::string path;
  std::uint32_t version = 0;  // 13.0: 130001
  void* handle = nullptr;     // of dlopen; the library stays loaded
  std::unique_ptr<ActivityApi> activity;
};

// The library that the process has loaded already, else the first that find_library names and that answers with a
// version of CUDA 13. A failure is one sentence: built without CUPTI's headers, not found, too old, a function lacking.
Result<CuptiLibrary> load_cupti(const Machine& machine);

}  // namespace kvroof
