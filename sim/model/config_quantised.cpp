#include "sim/model/config_quantised.hpp"

#include <fmt/format.h>

#include <array>

namespace kvroof {
namespace {

constexpr std::string_view kConfig = "quantization_config";
constexpr std::string_view kUnsupported =
    "quantised checkpoints are supported in FP8 (E4M3) and, of gpt-oss, in MXFP4; use one of those or the unquantised "
    "one";

void read_block(ConfigFields& fields, std::string_view key, Fp8Storage& storage) {
  if (fields.empty(key)) return;
  const std::vector<double> sizes = fields.positives(key);
  const auto whole = [](double size) { return size <= (1U << 24) && size == static_cast<std::uint32_t>(size); };
  if (sizes.size() != 2 || !whole(sizes[0]) || !whole(sizes[1])) {
    return fields.refuse(key, "expected the rows and the columns that share a scale");
  }
  storage.block_rows = static_cast<std::uint32_t>(sizes[0]);
  storage.block_cols = static_cast<std::uint32_t>(sizes[1]);
}

// Groups of layers, all of which must store weights alike.
void read_groups(ConfigFields& fields, Fp8Storage& storage) {
  const std::string groups = fmt::format("{}.config_groups", kConfig);
  if (fields.names(groups).empty()) fields.refuse(kConfig, "its config_groups are missing");
  for (const std::string& group : fields.names(groups)) {
    const std::string weights = fmt::format("{}.{}.weights", groups, group);
    if (fields.text(weights + ".type", "") != "float" || fields.size(weights + ".num_bits", 16) != 8) {
      return fields.refuse(kConfig, kUnsupported);
    }
    fields.only(weights + ".strategy", {"tensor", "channel", "block"}, "but scales are supported of a");
    Fp8Storage of_group{true};
    if (fields.text(weights + ".strategy", "tensor") == "block") {
      read_block(fields, weights + ".block_structure", of_group);
    }
    if (storage.used && of_group != storage) fields.refuse(groups, "groups with blocks of one size are supported");
    storage = of_group;
  }
}

}  // namespace

Fp8Storage read_quantisation(ConfigFields& fields, std::string_view own) {
  Fp8Storage storage;
  if (!fields.has(kConfig)) return storage;
  const auto key = [](std::string_view name) { return fmt::format("{}.{}", kConfig, name); };
  const std::string method = fields.text(key("quant_method"), "");
  if (!method.empty() && method == own) return storage;
  if (method == "compressed-tensors") {
    read_groups(fields, storage);
  } else if (method == "fp8" || method == "fbgemm_fp8" ||
             (method == "modelopt" && fields.text(key("quant_algo"), "") == "FP8")) {
    storage.used = true;
    fields.only(key("fmt"), {"e4m3"}, "but FP8 is only supported as");
    read_block(fields, key("weight_block_size"), storage);
  } else {
    fields.refuse(kConfig, kUnsupported);
  }
  return storage;
}

}  // namespace kvroof
