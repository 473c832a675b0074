// Model folders for tests: the tensors of a golden, changed and written again, and what loading them says.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/engine/model.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/run_program.hpp"
#include "traces/safetensors.hpp"

namespace kvroof::test {

inline const std::filesystem::path kGoldenModels =
    std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

// A tensor with its content.
struct StoredContent {
  std::string name;
  DType type;
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> data;
};
using Tensors = std::vector<StoredContent>;

inline Tensors golden_tensors(const std::string& model) {
  const SafetensorsFile file = SafetensorsFile::open(kGoldenModels / model / "model.safetensors").or_throw(model);
  Tensors tensors;
  for (const TensorInfo& info : file.header().tensors) {
    tensors.push_back({info.name, info.type, info.shape, std::vector<std::byte>(info.bytes)});
    file.read(info, 0, tensors.back().data);
  }
  return tensors;
}

inline void write_tensors(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<TensorToWrite> list;
  for (const StoredContent& t : tensors) list.push_back({t.name, t.type, t.shape, t.data});
  write_safetensors(path, list, {});
}

inline StoredContent& named(Tensors& tensors, const std::string& name) {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  if (it == tensors.end()) throw Error("no tensor " + name);
  return *it;
}

// What load_model says to a folder: "accepted", or its error.
inline std::string refusal(const std::filesystem::path& folder) {
  try {
    load_model(folder, std::nullopt);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// The same of a folder with the golden's configuration and these tensors.
inline std::string refusal_of(const std::string& model, const Tensors& tensors) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kGoldenModels / model / "config.json", folder.path() / "config.json");
  write_tensors(folder.path() / "model.safetensors", tensors);
  return refusal(folder.path());
}

}  // namespace kvroof::test
