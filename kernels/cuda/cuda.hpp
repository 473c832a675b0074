// The CUDA back end as a program sees it. A build without CUDA has the same functions: there is no device then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/engine/backend.hpp"
#include "kernels/engine/elements.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

// Whether this program has the back end at all.
bool cuda_is_built();

// Why no CUDA device can be used here, in one sentence; nothing: one can. Reads no file and allocates no memory.
std::optional<std::string> cuda_device_problem();

// Whether the driver lists a device, which may be one that cannot be used.
bool cuda_device_is_there();

// What of such a model no CUDA kernel runs, as in "the CUDA back end does not run …"; nothing: all of it runs.
std::optional<std::string> cuda_model_problem(const ModelConfig& config, DType weights, KvType kv);
// The same for a policy.
std::optional<std::string> cuda_policy_problem(const PolicySpec& policy);

// Which kernels make products of weights with many vectors: cuBLASLt's where it wins and is found, always our own, or
// cuBLASLt's of any number of vectors.
enum class LinearBy : std::uint8_t { kAuto, kOwn, kCublasLt };

// The model must outlive the back end; what of it is not in memory (open_model, random_model) goes straight to the
// device, and `progress` is told. Throws Error where the functions above have something to say, for policies that
// only a replay can follow, when the device refuses, and where cuBLASLt is asked for and not to be had.
std::unique_ptr<Backend> make_cuda_backend(const Model& model, const PolicySpec& policy, std::uint64_t seed,
                                           KvType kv_type, LinearBy linear, const ElementProgress& progress = {});

}  // namespace kvroof
