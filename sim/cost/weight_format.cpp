#include "sim/cost/weight_format.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>

#include "sim/core/names.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

using F = DeviceField;

// Bits follow from the layouts: fp8 and int8 have a scale a channel or tensor (nothing a parameter); nvfp4 an fp8 scale
// for 16; mxfp4 an 8-bit exponent for 32, experts alone (gpt-oss; fp8-mxfp4: all else in fp8, DeepSeek-V4), and
// int4-moe a 16-bit scale for 32, likewise (Kimi-K2-Thinking); int4-g32-wo a 16-bit scale and zero point for 32;
// AWQ and GPTQ the same for 128, the zero point in 4 bits; gf4 a shared fp8 scale and eight 3-bit values in 32 bits;
// Q4_0 a 16-bit scale for 32; Q4_K 144 bytes, Q5_K 176 and Q6_K 210 for 256; mixtures (_S, _M, _L, Q2_K, IQ) have parts
// in wider types: what is left of the bits a weight that llama.cpp's quantize tool prints for Llama-3.1-8B without its
// head (Q6_K; Q5_K below 3.3 bits) and embedding.
// Unpacking goes on beside reading and bounds it where arithmetic is slow: public weight-only int8 runs on A100 read
// 1,030 to 1,070 GB/s where 16-bit ones read 1,410, as 18 fp32 operations a parameter would; 4-bit kernels unpack
// several at once, and on boards with GDDR memory neither is seen. fp8 has an instruction. Products in fp8 start later
// and reach less of their peak, because activations are quantised before them. In fp4 blocks walk along the columns of
// a product, beside reading (fp4_walk_us of a device); quantising included, tables of vLLM and SGLang start at 3.7 to
// 7.4 us then, in the middle at 5.0, those of TensorRT-LLM at 5.4 to 6.5, where 16-bit ones start at 3.6.
// The head stays in 16 bits where engines quantise it only if they are told to; int4-g32-wo is gpt-fast's, which has
// all.
// Such checkpoints of models with latent attention have its projections, routers and the head in bf16: DeepSeek-R1's
// (NVIDIA/Model-Optimizer#150, and the table of TensorRT-LLM's blog on its latency).
constexpr double kUnpackInt8 = 18, kUnpack = 11, kUnpackFp8 = 4;
// Experts in mxfp4 take 0.17 and 0.20 ps a parameter on H200 in tables of TensorRT-LLM and vLLM, where reading takes
// 0.13; boards with products of 4 bits multiply them as they lie.
constexpr double kUnpackMxfp4 = 18;
constexpr std::array<WeightFormat, 34> kFormats = {{
    {"fp8", 8, 8, 16, 16, F::kPeakFp8Tflops, kUnpackFp8, 1.5, 0.8, {}, 6},
    {"int8", 8, 8, 16, 16, F::kPeakInt8Tops, kUnpackInt8, 1.5, 0.7},
    {"int8-wo", 8, 8, 16, 16, {}, kUnpackInt8},
    {"int4", 4.16, 4.16, 16, 16, {}, kUnpack},
    {"int4-moe", 16, 4.5, 16, 16, {}, kUnpack},
    {"int4-g32-wo", 5, 5, 5, 16, {}, kUnpack},
    {"fp4", 4.5, 4.5, 16, 16, F::kPeakFp4Tflops, kUnpack, 0, 1, F::kFp4Fraction, 1.8, {}, true, F::kFp4WalkUs},
    {"nvfp4", 4.5, 4.5, 16, 16, F::kPeakFp4Tflops, kUnpack, 0, 1, F::kFp4Fraction, 1.8, {}, true, F::kFp4WalkUs},
    {"mxfp4", 16, 4.25, 16, 16, {}, kUnpackMxfp4, 0, 1, {}, 0, F::kPeakFp4Tflops},
    {"fp8-mxfp4", 8, 4.25, 16, 16, F::kPeakFp8Tflops, kUnpackMxfp4, 1.5, 0.8, {}, 6, F::kPeakFp4Tflops},
    {"gf4", 4, 4, 4, 4, {}, kUnpack},
    {"Q4_0", 4.5, 4.5, 6.5625, 4.5, {}, kUnpack},
    {"Q4_1", 5, 5, 6.5625, 5, {}, kUnpack},
    {"Q4_K_S", 4.6, 4.6, 6.5625, 4.5, {}, kUnpack},
    {"Q4_K_M", 4.8, 4.8, 6.5625, 4.5, {}, kUnpack},
    {"Q5_K_M", 5.65, 5.65, 6.5625, 5.5, {}, kUnpack},
    {"Q6_K", 6.5625, 6.5625, 6.5625, 6.5625, {}, kUnpack},
    {"Q8_0", 8.5, 8.5, 8.5, 8.5, {}, kUnpackFp8},
    {"Q5_0", 5.5, 5.5, 6.5625, 5.5, {}, kUnpack},
    {"Q5_1", 6, 6, 6.5625, 6, {}, kUnpack},
    {"Q5_K_S", 5.5, 5.5, 6.5625, 5.5, {}, kUnpack},
    {"Q3_K_S", 3.44, 3.44, 6.5625, 3.4375, {}, kUnpack},
    {"Q3_K_M", 3.85, 3.85, 6.5625, 3.4375, {}, kUnpack},
    {"Q3_K_L", 4.2, 4.2, 6.5625, 3.4375, {}, kUnpack},
    {"Q2_K", 2.95, 2.95, 6.5625, 2.625, {}, kUnpack},
    {"IQ4_XS", 4.32, 4.32, 6.5625, 4.25, {}, kUnpack},
    {"IQ4_NL", 4.55, 4.55, 6.5625, 4.5, {}, kUnpack},
    {"IQ3_XXS", 3.1, 3.1, 5.5, 3.0625, {}, kUnpack},
    {"IQ2_XS", 2.37, 2.37, 5.5, 2.625, {}, kUnpack},
    {"IQ2_XXS", 2.13, 2.13, 5.5, 2.625, {}, kUnpack},
    {"IQ1_S", 1.7, 1.7, 5.5, 2.625, {}, kUnpack},
    {"mxfp8", 8.25, 8.25, 16, 16, F::kPeakFp8Tflops, kUnpackFp8, 1.5, 0.8},
    {"q3f16", 3.6, 3.6, 3.6, 3.6, {}, kUnpack},
    {"q4f16", 4.5, 4.5, 4.5, 4.5, {}, kUnpack},
}};

struct Alias {
  std::string_view text, name;
};
constexpr std::array kAliases = {
    Alias{"fp8block", "fp8"},          Alias{"fp8e4m3", "fp8"},        Alias{"fp8dynamic", "fp8"},
    Alias{"w8a8fp8", "fp8"},           Alias{"fp8w8a8", "fp8"},        Alias{"float8", "fp8"},
    Alias{"w8a8", "int8"},             Alias{"int8w8a8", "int8"},      Alias{"w8a8int8", "int8"},
    Alias{"smoothquant", "int8"},      Alias{"int8sq", "int8"},        Alias{"w8a16", "int8-wo"},
    Alias{"int8weightonly", "int8-wo"}, Alias{"int8woq", "int8-wo"},    Alias{"int4wo", "int4"},
    Alias{"int4weightonly", "int4"},   Alias{"int4g128", "int4"},      Alias{"awq", "int4"},
    Alias{"gptq", "int4"},             Alias{"int4awq", "int4"},       Alias{"awqint4", "int4"},
    Alias{"int4gptq", "int4"},         Alias{"gptqint4", "int4"},      Alias{"awq4bit", "int4"},
    Alias{"gptq4bit", "int4"},         Alias{"w4a16", "int4"},         Alias{"w4a16awq", "int4"},
    Alias{"w4a16gptq", "int4"},        Alias{"4bit", "int4"},          Alias{"nf4", "int4"},
    Alias{"fp8pertensor", "fp8"},      Alias{"fp8perchannel", "fp8"},  Alias{"int4g128wo", "int4"},
    Alias{"awq4b", "int4"},            Alias{"int4group128", "int4"},  Alias{"4bit128g", "int4"},
    Alias{"w4a8", "int4"},             Alias{"uint4", "int4"},         Alias{"bnbnf4", "int4"},
    Alias{"hqq4bit", "int4"},          Alias{"8bit", "int8-wo"},       Alias{"bnbint8", "int8-wo"},
    Alias{"llmint8", "int8-wo"},       Alias{"q0f16", "f16"},          Alias{"q0f32", "f32"},
    Alias{"half", "f16"},              Alias{"q3f161", "q3f16"},       Alias{"q2k", "Q2_K"},
    Alias{"q4", "Q4_K_M"},             Alias{"q4k", "Q4_K_M"},         Alias{"q4f161", "q4f16"},
    Alias{"q5k", "Q5_K_M"},            Alias{"q8", "Q8_0"},            Alias{"float16", "f16"},
    Alias{"bfloat16", "bf16"},         Alias{"awqmarlin", "int4"},     Alias{"gptqmarlin", "int4"},
    Alias{"q4kxl", "Q4_K_M"},          Alias{"udq4kxl", "Q4_K_M"},     Alias{"fp8kv", "fp8"},
    Alias{"mxfp4moe", "mxfp4"},        Alias{"torchaofp8", "fp8"},     Alias{"int8dynamic", "int8"},
    Alias{"q4kmedium", "Q4_K_M"},      Alias{"q4ksmall", "Q4_K_S"},    Alias{"q5kmedium", "Q5_K_M"},
    Alias{"q3kmedium", "Q3_K_M"},      Alias{"gptqint8", "int8-wo"},   Alias{"int8gptq", "int8-wo"}};

// "EXL2 4.65bpw": that many bits in a layer, and 6 in the head (exllamav2's own choice).
std::optional<WeightFormat> bits_per_weight(std::string_view text) {
  const std::size_t unit = text.find("bpw");
  if (unit == std::string_view::npos) return std::nullopt;
  std::size_t begin = unit;
  const auto of_number = [](char c) { return c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (begin > 0 && of_number(text[begin - 1])) --begin;
  const double bits = parse_number<double>(text.substr(begin, unit - begin)).value_or(0);
  if (!(bits >= 1 && bits <= 16)) return std::nullopt;
  return WeightFormat{"bpw", bits, bits, 6, 16, {}, kUnpack};
}

}  // namespace

std::span<const WeightFormat> weight_formats() { return kFormats; }

std::optional<WeightFormat> weight_format_of(const StoredFormat& stored) {
  if (stored.name.empty()) return std::nullopt;
  WeightFormat f = parse_weight_format(stored.name).value_or(WeightFormat{stored.name, 4, 4, 16, 16, {}, kUnpack});
  const auto take = [](double& bits, double said) {
    if (said > 0) bits = said;
  };
  take(f.layer_bits, stored.layer_bits);
  take(f.expert_bits, stored.expert_bits);
  take(f.head_bits, stored.head_bits);
  take(f.embedding_bits, stored.embedding_bits);
  for (double* bits : {&f.layer_bits, &f.expert_bits}) *bits += stored.plain_share * (16 - *bits);
  return f;
}

WeightFormat plain_format(DType type) {
  const double bits = 8.0 * static_cast<double>(size_of(type));
  WeightFormat f;
  f.name = name_of(type);
  f.layer_bits = f.expert_bits = f.head_bits = f.embedding_bits = bits;
  return f;
}

std::optional<WeightFormat> parse_weight_format(std::string_view text) {
  if (const auto bits = bits_per_weight(text)) return bits;
  std::string letters = plain_letters(text);  // engines write int8-wo, int8_wo and INT8 WO
  for (const Alias& alias : kAliases) {
    if (alias.text == letters) letters = plain_letters(alias.name);
  }
  for (const WeightFormat& f : kFormats) {
    if (plain_letters(f.name) == letters) return f;
  }
  const auto type = parse_dtype(letters);
  if (type == DType::kF32 || type == DType::kF16 || type == DType::kBF16) return plain_format(*type);
  return std::nullopt;
}

// Parameters of latent attention in one layer: q and the latent row, its way back, the output.
static double latent_parameters(const ModelShape& s) {
  const double h = s.hidden, heads = s.heads, q = heads * (s.latent_nope_dim + s.latent_rope_dim);
  const double q_rank = s.latent_q_rank, rank = s.latent_rank;
  return (q_rank > 0 ? h * q_rank + q_rank * q : h * q) + h * (rank + s.latent_rope_dim) +
         rank * heads * (s.latent_nope_dim + s.latent_v_dim) + heads * s.latent_v_dim * h;
}

// Parameters of all layers but those of routed experts.
static double beside_experts(const ModelShape& s) {
  return static_cast<double>(layers_parameters(s) - routed_parameters(s));
}

WeightFormat format_in(const ModelShape& shape, WeightFormat format, double beside_bits) {
  if (shape.experts > 0 && beside_bits > 0 && format.expert_bits < 16 && format.layer_bits >= 16) {
    format.layer_bits = format.head_bits = format.embedding_bits = beside_bits;
  }
  if (shape.experts == 0) format.layer_bits = std::min(format.layer_bits, format.expert_bits);
  if (format.plain_latent && shape.latent()) {
    const double index = shape.index.layers * static_cast<double>(shape.index.parameters(shape.hidden,
                                                                                          shape.latent_q_rank));
    const double plain = (shape.layers * latent_parameters(shape) + index) / beside_experts(shape);
    format.layer_bits = format.expert_bits + plain * (16 - format.expert_bits);
  }
  return format;
}

// Parameters by how formats store them.
struct PartCounts {
  double layers = 0, experts = 0, head = 0, embedding = 0, exact = 0;
};

static PartCounts counts_of(const ModelShape& shape) {
  PartCounts c;
  c.experts = static_cast<double>(routed_parameters(shape));
  c.head = static_cast<double>(shape.tied_head ? 0 : head_parameters(shape));
  c.embedding = static_cast<double>(embedding_parameters(shape));
  c.exact = static_cast<double>(exact_parameters(shape));
  c.layers = static_cast<double>(parameter_count(shape)) - c.experts - c.head - c.embedding - c.exact;
  return c;
}

static Bytes bytes_of(const PartCounts& c, const WeightFormat& format, bool tied_head) {
  // A tied head is read as a head, whatever the type of an embedding by itself.
  const double embedding_bits = tied_head ? format.head_bits : format.embedding_bits;
  const double bits = c.layers * format.layer_bits + c.experts * format.expert_bits + c.head * format.head_bits +
                      c.embedding * embedding_bits + c.exact * 32;
  return Bytes(static_cast<std::uint64_t>(std::llround(bits / 8)));
}

Bytes weight_bytes(const ModelShape& shape, const WeightFormat& stored) {
  return bytes_of(counts_of(shape), format_in(shape, stored), shape.tied_head);
}

Bytes active_weight_bytes(const ModelShape& shape, const WeightFormat& stored) {
  PartCounts c = counts_of(shape);
  if (shape.experts > 0) c.experts *= static_cast<double>(shape.experts_per_token) / shape.experts;
  c.head = static_cast<double>(head_parameters(shape));
  c.embedding = static_cast<double>(embedding_row(shape));
  if (shape.tied_head && shape.head_bias) c.layers -= shape.vocab;  // counted beside the layers where the head is tied
  return bytes_of(c, format_in(shape, stored), shape.tied_head);
}

std::optional<WeightFormat> format_in_name(std::string_view checkpoint) {
  constexpr std::string_view kSeparators = "-_. ";
  for (std::size_t at = checkpoint.find_first_of(kSeparators); at != std::string_view::npos;
       at = checkpoint.find_first_of(kSeparators, at + 1)) {
    if (const auto format = parse_weight_format(checkpoint.substr(at + 1))) return format;
  }
  return std::nullopt;
}

}  // namespace kvroof
