// How those who published a model store its weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace kvroof {

// Bits of a parameter of each part, scales and zero points included, are there where a file says them; 0 is what the
// format has by itself (sim/cost/weight_format.hpp).
struct StoredFormat {
  std::string_view name;  // of a format, a literal: fp8, int4, Q4_K_M; empty: as the shape's weight_type says
  double layer_bits = 0, expert_bits = 0, head_bits = 0, embedding_bits = 0;
  double plain_share = 0;       // of the parameters of a dense model's layers, what stays at 16 bits all the same
  std::string_view cache = {};  // the type of the cache that its file states: fp8, or empty
  bool operator==(const StoredFormat&) const = default;
};

// Of a model of the catalog (`stored: mxfp4`), by the name of a format; empty: as its weight_type says. Throws Error
// where the catalog has no such model.
std::string stored_format_of(const std::string& catalog_name, const std::filesystem::path& catalog);
// Of a folder with a config.json, or of such a file, by its quantization_config; of a GGUF file by its tensors; empty
// for what else is there. Throws Error (usage) for a file that is refused, or whose quant_method is not known.
StoredFormat stored_format_of(const std::filesystem::path& folder_or_file);
// Why the engine does not run a checkpoint, as far as its config.json says; empty for other files.
std::string cannot_run_of(const std::filesystem::path& folder_or_file);

}  // namespace kvroof
