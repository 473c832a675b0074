// What the golden tests of models share: runs through the reference back end and comparisons with PyTorch's values.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/engine/session.hpp"
#include "traces/safetensors.hpp"

namespace kvroof::test {

// Folders with reference values, sorted by name.
inline std::vector<std::string> model_folders() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models")) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline PolicySpec full_policy() {
  PolicySpec spec;
  spec.name = "full";
  return spec;
}

inline CpuBackend reference_backend(const Model& model, const PolicySpec& policy = full_policy(),
                                    DType kv = DType::kF32) {
  return CpuBackend(model, std::make_unique<ReferenceOps>(), {policy, 0, kv});
}

inline SafetensorsFile open_tensors(const std::filesystem::path& path) {
  return SafetensorsFile::open(path).or_throw(path.string());
}

inline std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.header().find(name);
  if (tensor == nullptr) throw Error("no tensor " + name);
  return file.read_floats(*tensor);
}

inline std::vector<std::int64_t> integers(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.header().find(name);
  if (tensor == nullptr) throw Error("no tensor " + name);
  return file.read_integers(*tensor);
}

// max |a − b| / max |b|.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || b.empty()) return INFINITY;
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
    if (std::isnan(a[i])) return INFINITY;
  }
  return difference / largest;
}

// Logits of every position of a prompt.
inline std::vector<float> prompt_logits(const Model& model, const std::vector<std::int64_t>& ids) {
  CpuBackend backend = reference_backend(model);
  std::vector<float> logits;
  backend.prefill(0, ids, 1, {}, [&](std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

// Greedy continuation, end-of-text ignored.
inline std::vector<std::int64_t> greedy(const Model& model, const std::vector<std::int64_t>& ids, std::uint32_t count) {
  CpuBackend backend = reference_backend(model);
  SessionOptions options;
  options.max_new_tokens = count;
  options.ignore_eos = true;
  return run_session(backend, model.config, {ids}, options, nullptr).sequences[0].ids;
}

}  // namespace kvroof::test
