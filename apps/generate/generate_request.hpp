// The options that run and record share, read and checked before any work.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/generate/backend_choice.hpp"
#include "kernels/engine/sampler.hpp"
#include "sim/core/dtype.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

// A prompt as it was given: a text to be encoded, or ids.
struct PromptSource {
  std::string origin;  // for messages: the file, or the option
  std::optional<std::string> text;
  std::vector<std::int64_t> ids;
  std::uint32_t random = 0;  // so many random ids
};

struct GenerateRequest {
  std::filesystem::path model;
  std::optional<ModelShape> random_weights;  // of such a model, instead of the folder's
  std::vector<PromptSource> prompts;  // copies of --batch included
  PolicySpec policy;
  BackendChoice backend;
  std::optional<DType> weight_type;   // none: the checkpoint's own
  std::uint32_t max_tokens = 0;
  bool ignore_eos = false;
  bool prompt_logprobs = false;       // record alone
  bool capture = true;                // record alone: queries, keys and values
  Sampling sampling;
  std::optional<std::filesystem::path> dump_logits, dump_scores;
};

void describe_generate(boost::program_options::options_description_easy_init add);

// Reads prompt files too. Throws Error (usage) in one sentence.
GenerateRequest parse_generate(const Arguments& arguments);

}  // namespace kvroof
