#include "kernels/cuda/device_problem.hpp"

#include <fmt/format.h>

namespace kvroof::cuda {
namespace {

// CUDA writes 13.0 as 13000.
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::string device_problem(const DeviceFacts& facts, std::string_view why) {
  if (facts.driver == 0) return "no NVIDIA driver is installed (libcuda.so.1 was not found)";
  // A driver runs every program of its major version, and of those before.
  if (facts.driver / 1000 < facts.runtime / 1000) {
    return fmt::format("the NVIDIA driver is too old: it runs CUDA {}, and this program needs {}.0 or newer",
                       version_text(facts.driver), facts.runtime / 1000);
  }
  if (facts.devices == 0) return "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES can hide them)";
  if (facts.name[0] != '\0' && !facts.has_code) {
    return fmt::format("the GPU, {}, has compute capability {}.{}; this program has code for 8.0 and newer",
                       static_cast<const char*>(facts.name), facts.major, facts.minor);
  }
  if (why == kNoMemory) {
    return "other programs hold nearly all memory of the GPU (nvidia-smi lists them), and leave none to begin with";
  }
  return fmt::format("the GPU cannot be used: {}", why);
}

}  // namespace kvroof::cuda
