// Which back end runs a model: --backend, or the best that there is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apps/cli/command.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/engine/backend.hpp"
#include "kernels/engine/model.hpp"
#include "kernels/engine/repetition.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

enum class BackendKind : std::uint8_t { kReference, kFast, kCuda };
std::string_view name_of(BackendKind kind);

struct BackendChoice {
  BackendKind kind = BackendKind::kFast;
  bool asked_for = false;  // by name
  std::string note;        // why it is not the best that there is; empty: it is
  LinearBy linear = LinearBy::kAuto;  // of the CUDA back end
};

inline constexpr const char* kBackendHelp = "fast | reference | cuda (default: cuda where a GPU is and runs the model)";

inline constexpr const char* kLinearHelp =
    "of the CUDA back end: auto | own | cublaslt make products of weights with many vectors";

// --backend and --linear. To be called before a model or a prompt is read: throws Error (needs a device) for cuda
// without a device that can be used, Error (usage) for unknown names.
BackendChoice backend_option(const Arguments& arguments);

// Whether the chosen back end runs such a model under these policies and their caches; `weights`: none: the model's.
// A choice that was not asked for by name becomes one that does; otherwise throws Error (usage), as for --linear where
// the CPU runs the model.
void settle_backend(BackendChoice& choice, const ModelConfig& config, std::span<const PolicySpec> policies,
                    std::optional<DType> weights);

// Puts the elements into memory that the back end and the policies read there: all of them for the CPU.
void make_host_elements(BackendKind kind, const Arguments& arguments, Model& model,
                        std::span<const PolicySpec> policies);

// With the cache that the policy names, or else of the weights' type; one that has the model repeat prompts where the
// policy asks for that, whose scores `scored` is shown. The model must outlive the back end. Throws Error when a device
// refuses, and where there are no words to ask the model for a repetition.
std::unique_ptr<Backend> make_backend(const BackendChoice& choice, const Arguments& arguments, const Model& model,
                                      const PolicySpec& policy, RepeatingBackend::Sink scored = {});

// What a reader of results should know of how products are made, in one sentence; empty: nothing.
std::string linear_note(const LinearFacts& facts);

}  // namespace kvroof
