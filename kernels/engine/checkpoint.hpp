// The safetensors files of a model folder, seen as one set of named tensors.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "traces/safetensors.hpp"

namespace kvroof {

// A tensor and the file that holds it.
struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;
};

class Checkpoint {
 public:
  // Opens model.safetensors, or the shards that model.safetensors.index.json lists: plain file names inside the folder,
  // each holding the tensors that the index says. Throws Error naming the file and what is wrong with it; for a folder
  // with pickled weights only, it says how to convert them.
  static Checkpoint open(const std::filesystem::path& folder);

  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

 private:
  void add_file(const std::filesystem::path& path);

  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace kvroof
