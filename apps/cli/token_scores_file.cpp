#include "apps/cli/token_scores_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "traces/safetensors.hpp"

namespace kvroof {
namespace {

// One tensor for all sequences, or one for each.
std::vector<const TensorInfo*> score_tensors(const SafetensorsHeader& header) {
  if (const TensorInfo* one = header.find("scores")) return {one};
  std::vector<const TensorInfo*> found;
  while (const TensorInfo* next = header.find(fmt::format("scores.{}", found.size()))) found.push_back(next);
  return found;
}

// Empty: it is as it should be.
std::string problem_of(const TensorInfo& tensor, const TensorInfo& first) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  const bool is_float = tensor.type == DType::kF32 || tensor.type == DType::kF16 || tensor.type == DType::kBF16;
  const bool is_shape = tensor.shape.size() == 3 && std::ranges::all_of(tensor.shape, [](std::uint64_t size) {
    return size > 0 && size <= kMost;
  });
  if (!is_float || !is_shape) {
    return fmt::format("tensor {} is {} [{}]: expected F32, F16 or BF16 [layers, heads, tokens of the prompt]",
                       tensor.name, name_of(tensor.type), fmt::join(tensor.shape, ", "));
  }
  if (tensor.shape[0] != first.shape[0] || tensor.shape[1] != first.shape[1]) {
    return fmt::format("tensor {} is of {} layers and {} heads, {} of {} and {}: expected the same model", tensor.name,
                       tensor.shape[0], tensor.shape[1], first.name, first.shape[0], first.shape[1]);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const TokenScores>> read_token_scores(const std::filesystem::path& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) return failure("{}", file.error());
  const std::vector<const TensorInfo*> tensors = score_tensors(file.value().header());
  if (tensors.empty()) return failure("has no tensor `scores` and no `scores.0`");
  for (const TensorInfo* tensor : tensors) {
    if (const std::string problem = problem_of(*tensor, *tensors.front()); !problem.empty()) {
      return failure("{}", problem);
    }
  }
  auto scores = std::make_shared<TokenScores>();
  scores->layers = static_cast<std::uint32_t>(tensors.front()->shape[0]);
  scores->heads = static_cast<std::uint32_t>(tensors.front()->shape[1]);
  for (const TensorInfo* tensor : tensors) {
    const auto number = static_cast<std::uint32_t>(scores->sequences.size());
    const auto& values = scores->sequences[number] = file.value().read_floats(*tensor);
    const auto bad = std::ranges::find_if(values, [](float x) { return std::isnan(x); });
    if (bad == values.end()) continue;
    const auto index = static_cast<std::uint64_t>(bad - values.begin());
    const std::uint64_t tokens = tensor->shape[2];
    return failure("tensor {} has a NaN for token {} of head {} in layer {}: expected a number", tensor->name,
                   index % tokens, index / tokens % scores->heads, index / tokens / scores->heads);
  }
  return std::shared_ptr<const TokenScores>(std::move(scores));
}

void write_token_scores(const std::filesystem::path& path, const TokenScores& scores) {
  std::vector<TensorToWrite> tensors;
  const std::uint64_t heads = std::uint64_t{scores.layers} * scores.heads;
  for (const auto& [number, values] : scores.sequences) {
    tensors.push_back({scores.sequences.size() == 1 ? "scores" : fmt::format("scores.{}", number), DType::kF32,
                       {scores.layers, scores.heads, values.size() / heads}, std::as_bytes(std::span(values))});
  }
  write_safetensors(path, tensors, {});
}

}  // namespace kvroof
