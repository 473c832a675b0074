#include "sim/model/config_quantised.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

constexpr std::string_view kConfig = "quantization_config";
constexpr double kScaleBits = 16;  // of a group of integers

std::string key(std::string_view name) { return fmt::format("{}.{}", kConfig, name); }

// Formats that are not unpacked here: their bits alone are known.
void keep(Quantisation& q, std::string_view format, double bits = 0) {
  q.stored = {.name = format, .layer_bits = bits, .expert_bits = bits};
  q.cannot_run =
      "quantised checkpoints are run in FP8 (E4M3) and, of gpt-oss, in MXFP4; use one of those or the unquantised one "
      "(plan, compare and simulate take this one as it is)";
}

void keep_fp8(Quantisation& q) {
  q.stored.name = "fp8";
  q.fp8.used = true;
}

// Integers of which `group` share a scale; 0: a channel's, which is next to nothing.
void keep_integers(Quantisation& q, std::uint32_t bits, std::uint32_t group, bool zero_points, bool activations) {
  const std::string_view format = bits < 8 ? "int4" : activations ? "int8" : "int8-wo";
  keep(q, format, bits + (group > 0 ? (kScaleBits + (zero_points ? bits : 0)) / group : 0));
}

void read_block(ConfigFields& fields, std::string_view name, Fp8Storage& storage) {
  if (fields.empty(name)) return;
  const std::vector<double> sizes = fields.positives(name);
  const auto whole = [](double size) { return size <= (1U << 24) && size == static_cast<std::uint32_t>(size); };
  if (sizes.size() != 2 || !whole(sizes[0]) || !whole(sizes[1])) {
    return fields.refuse(name, "expected the rows and the columns that share a scale");
  }
  storage.block_rows = static_cast<std::uint32_t>(sizes[0]);
  storage.block_cols = static_cast<std::uint32_t>(sizes[1]);
}

std::uint32_t group_size(ConfigFields& fields, const std::string& name) {
  return fields.is_number(name, -1) ? 0 : fields.count(name, 0);
}

void read_group(ConfigFields& fields, const std::string& group, Quantisation& q) {
  const std::string weights = group + ".weights";
  const std::string type = fields.text(weights + ".type", "int");
  const std::uint32_t bits = fields.size(weights + ".num_bits", 8, 8);
  if (type == "float" && bits == 8) {
    fields.only(weights + ".strategy", {"tensor", "channel", "block"}, "but scales are supported of a");
    keep_fp8(q);
    if (fields.text(weights + ".strategy", "tensor") == "block") {
      read_block(fields, weights + ".block_structure", q.fp8);
    }
    return;
  }
  const std::uint32_t size = group_size(fields, weights + ".group_size");
  if (type == "float" && bits == 4) return keep(q, size == 32 ? "mxfp4" : "nvfp4", size == 32 ? 4.25 : 0);
  fields.only(weights + ".type", {"int", "float"}, "but numbers are supported of the kinds");
  if (type == "float") fields.refuse(weights + ".num_bits", "expected 4 or 8 of numbers of the kind float");
  keep_integers(q, bits, size, !fields.flag(weights + ".symmetric", true), fields.has(group + ".input_activations"));
}

// Groups of layers, all of which must store weights alike.
void read_compressed(ConfigFields& fields, Quantisation& q) {
  const std::string groups = key("config_groups");
  const std::vector<std::string> names = fields.names(groups);
  if (names.empty()) fields.refuse(kConfig, "its config_groups are missing");
  for (const std::string& name : names) {
    Quantisation of_group;
    read_group(fields, fmt::format("{}.{}", groups, name), of_group);
    if (name != names.front() && (of_group.stored != q.stored || of_group.fp8 != q.fp8)) {
      return fields.refuse(groups, "groups that store weights alike, in blocks of one size, are supported");
    }
    of_group.taken = std::move(q.taken);
    q = std::move(of_group);
    for (std::string& target : fields.texts(fmt::format("{}.{}.targets", groups, name))) {
      q.taken.push_back(std::move(target));
    }
  }
}

// DeepSeek-V4's experts, which are in 4 bits where all else is in 8: an exponent of 8 bits is shared by 32, or NVIDIA's
// scale by 16.
void read_narrow_experts(ConfigFields& fields, Quantisation& q) {
  const std::string name = fields.has(key("expert_dtype")) ? key("expert_dtype") : "expert_dtype";
  const bool nvfp4 = fields.text(key("moe_quant_algo"), "") == "NVFP4";
  fields.only(name, {"fp4", "fp8"}, "but experts beside matrices in FP8 are only supported as");
  if (fields.text(name, "fp8") != "fp4" && !nvfp4) return;
  const Fp8Storage fp8 = q.fp8;
  keep(q, "fp8-mxfp4");
  q.fp8 = fp8;
  if (nvfp4) q.stored.expert_bits = 4.5;
}

void read_fp8(ConfigFields& fields, Quantisation& q) {
  keep_fp8(q);
  fields.only(key("fmt"), {"e4m3", "float8_e4m3fn"}, "but FP8 is only supported as");
  read_block(fields, key("weight_block_size"), q.fp8);
  read_narrow_experts(fields, q);
}

// NVIDIA's Model Optimizer, by the names of its algorithms.
void read_modelopt(ConfigFields& fields, Quantisation& q) {
  const std::string name = key(fields.has(key("quant_algo")) ? "quant_algo" : "quantization.quant_algo");
  if (!fields.has(name)) {
    const bool cache_alone =
        fields.has(key("kv_cache_quant_algo")) || fields.has(key("quantization.kv_cache_quant_algo"));
    if (!cache_alone) fields.refuse(kConfig, "its quant_algo is missing");
    return;
  }
  const std::string algorithm = fields.text(name, "");
  if (algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN") return read_fp8(fields, q);
  if (algorithm == "FP8_PB_WO" || algorithm == "fp8_pb_wo") return keep(q, "fp8");  // blocks of 128 x 128
  if (algorithm == "MXFP8") return keep(q, "fp8", 8 + 8.0 / 32);
  if (algorithm.starts_with("NVFP4") || algorithm == "W4A16_NVFP4") return keep(q, "nvfp4");
  if (algorithm == "W4A16_AWQ" || algorithm == "W4A8_AWQ") return keep(q, "int4");
  if (algorithm == "W8A16") return keep(q, "int8-wo");
  if (algorithm == "INT8_SQ" || algorithm == "W8A8_SQ_PER_CHANNEL") return keep(q, "int8");
  q.cannot_run = q.unknown = fmt::format(
      "{} is \"{}\"; of Model Optimizer are known FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, MXFP8, NVFP4, W4A16_AWQ, "
      "W4A8_AWQ, W8A16 and INT8_SQ; --dtype says how weights are stored", name, algorithm);
}

// AWQ, GPTQ and AutoRound. AWQ's and asymmetric GPTQ's zero points have as many bits as a weight. The head is among
// the matrices only where lm_head says so.
void read_grouped(ConfigFields& fields, Quantisation& q) {
  const bool zero_points = fields.flag(key("zero_point"), false) || !fields.flag(key("sym"), true);
  keep_integers(q, fields.size(key("bits"), 4, 8), group_size(fields, key("group_size")), zero_points, false);
  if (fields.flag(key("lm_head"), false)) q.stored.head_bits = q.stored.layer_bits;
}

// 64 weights share a scale of 32 bits, or one of 8 bits of which 256 share another (QLoRA, arXiv:2305.14314).
void read_bitsandbytes(ConfigFields& fields, Quantisation& q) {
  if (!fields.flag(key("load_in_4bit"), false)) return keep(q, "int8-wo");
  const bool twice = fields.flag(key("bnb_4bit_use_double_quant"), false);
  keep(q, "int4", 4 + (twice ? 8.0 / 64 + 32.0 / (64 * 256) : 32.0 / 64));
}

void read_exllama(ConfigFields& fields, Quantisation& q) {
  keep(q, "bpw", fields.positive(key("bits")));
  q.stored.head_bits = fields.positive(key(fields.has(key("lm_head_bits")) ? "lm_head_bits" : "head_bits"), 6);
}

struct Method {
  std::string_view name;  // quant_method
  void (*read)(ConfigFields&, Quantisation&);
};
constexpr std::array<Method, 12> kMethods = {{{"auto-round", read_grouped},
                                              {"awq", read_grouped},
                                              {"bitsandbytes", read_bitsandbytes},
                                              {"compressed-tensors", read_compressed},
                                              {"exl2", read_exllama},
                                              {"exl3", read_exllama},
                                              {"fbgemm_fp8", read_fp8},
                                              {"fp8", read_fp8},
                                              {"gptq", read_grouped},
                                              {"intel/auto-round", read_grouped},
                                              {"modelopt", read_modelopt},
                                              {"modelopt_fp4", read_modelopt}}};

std::vector<std::string> modules_left(ConfigFields& fields) {
  std::vector<std::string> left;
  for (const char* list : {"ignore", "modules_to_not_convert", "exclude_modules", "quantization.exclude_modules"}) {
    if (!fields.is_list(key(list))) continue;
    for (std::string& module : fields.texts(key(list))) left.push_back(std::move(module));
  }
  return left;
}

// llm-compressor's scheme, and NVIDIA's word for it.
bool states_fp8_cache(ConfigFields& fields) {
  const std::string scheme = key("kv_cache_scheme");
  if (fields.has(scheme + ".num_bits")) {
    return fields.text(scheme + ".type", "float") == "float" && fields.is_number(scheme + ".num_bits", 8);
  }
  for (const char* name : {"kv_cache_quant_algo", "quantization.kv_cache_quant_algo"}) {
    if (fields.has(key(name))) return fields.text(key(name), "") == "FP8";
  }
  return false;
}

}  // namespace

Quantisation read_quantisation(ConfigFields& fields, std::string_view own) {
  Quantisation q;
  if (!fields.has(kConfig)) return q;
  const std::string method = fields.text(key("quant_method"), "");
  if (!method.empty() && method == own) {
    q.stored.name = own;
    return q;
  }
  const auto known = std::ranges::find(kMethods, method, &Method::name);
  if (known == kMethods.end()) {
    std::vector<std::string> names;
    for (const Method& m : kMethods) names.emplace_back(m.name);
    if (!own.empty()) names.emplace_back(own);
    q.unknown = fmt::format("{}; of quant_method are known {}; --dtype says how weights are stored",
                            method.empty() ? fmt::format("{} has no quant_method", kConfig)
                                           : fmt::format("{} is \"{}\"", key("quant_method"), method),
                            join(names));
    q.cannot_run = q.unknown;
    return q;
  }
  known->read(fields, q);
  q.left = modules_left(fields);
  if (states_fp8_cache(fields)) q.stored.cache = "fp8";
  return q;
}

}  // namespace kvroof
