#include "analysis/published_operator.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "analysis/published_names.hpp"
#include "sim/core/names.hpp"

namespace kvroof {
namespace {

using O = LayerOperator;

struct OperatorName {
  std::string_view text;  // plain letters
  O op;
};
// As Hugging Face, vLLM and profilers of them call the parts of a decoder.
constexpr std::array<OperatorName, 34> kNames = {{
    {"qkv", O::kQkv}, {"qkvproj", O::kQkv}, {"qkvlinear", O::kQkv}, {"attnqkv", O::kQkv},
    {"o", O::kAttentionOut}, {"oproj", O::kAttentionOut}, {"outproj", O::kAttentionOut}, {"attnout", O::kAttentionOut},
    {"gateup", O::kGateUp}, {"gateupproj", O::kGateUp}, {"mlpup", O::kGateUp}, {"fc1", O::kGateUp},
    {"down", O::kDown}, {"downproj", O::kDown}, {"mlpdown", O::kDown}, {"fc2", O::kDown},
    {"lmhead", O::kHead}, {"head", O::kHead}, {"logits", O::kHead},
    {"attention", O::kAttention}, {"attn", O::kAttention}, {"attndecode", O::kAttention},
    {"decodeattention", O::kAttention},
    {"norm", O::kElementwise}, {"layernorm", O::kElementwise}, {"rmsnorm", O::kElementwise},
    {"inputlayernorm", O::kElementwise}, {"postlayernorm", O::kElementwise}, {"finallayernorm", O::kElementwise},
    {"actfn", O::kElementwise}, {"swiglu", O::kElementwise}, {"rotaryemb", O::kElementwise},
    {"rope", O::kElementwise}, {"qknorm", O::kElementwise},
}};

std::optional<O> operator_called(const std::string& plain) {
  for (const OperatorName& name : kNames) {
    if (name.text == plain) return name.op;
  }
  return std::nullopt;
}

// Words end at anything but letters, digits and what names of models hold.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const bool part = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == '=';
    if (part) words.back() += c;
    if (!part && !words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

Result<PublishedKernel> product(const CostModel& cost, const PublishedSetting& s, double n, double k, double bits) {
  const double tokens = s.batch.value_or(1);
  const auto round = [](double x) { return static_cast<std::uint64_t>(std::max(x, 1.0)); };
  const double devices = s.deployment.tensor_parallel;
  const Bytes bytes(round(n * k / devices * bits / 8));
  return PublishedKernel{cost.product(round(tokens), round(n / devices), round(k)), bytes, 2 * tokens * n * k / devices,
                         PublishedKind::kProduct};
}

}  // namespace

NamedOperator operator_in(std::string_view text) {
  NamedOperator found;
  std::string all;
  for (const std::string& word : words_of(text)) {
    const std::string plain = plain_letters(word);
    if (plain == "layer" || plain == "decoder") continue;
    const auto op = operator_called(plain);
    if (op && !found.op) {
      found.op = op;
      continue;
    }
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      const std::string key = plain_letters(word.substr(0, equals));
      if (key == "tokens" || key == "m" || key == "batch") found.tokens = published_count(word.substr(equals));
      continue;
    }
    all += (all.empty() ? "" : " ") + word;
    found.rest.push_back(word);
  }
  found.rest.insert(found.rest.begin(), all);
  return found;
}

Result<PublishedKernel> operator_kernel(const PublishedSetting& s) {
  const CostModel cost(s.shape, s.deployment, s.device, s.engine);
  const ModelShape& m = s.shape;
  const double bits = s.deployment.weights.layer_bits;
  const double q = static_cast<double>(m.heads) * m.head_dim, out = static_cast<double>(m.heads) * m.v_head_dim;
  const double kv = static_cast<double>(m.kv_heads) * (m.head_dim + m.v_head_dim);
  const bool latent = m.latent_rank > 0;
  const bool experts = m.experts > 0;
  switch (*s.part) {
    case O::kQkv:
      if (latent) break;
      return product(cost, s, q + kv, m.hidden, bits);
    case O::kAttentionOut:
      if (latent) break;
      return product(cost, s, m.hidden, out, bits);
    case O::kGateUp:
      if (experts) break;
      return product(cost, s, (m.mlp == MlpKind::kPlain ? 1.0 : 2.0) * m.ffn, m.hidden, bits);
    case O::kDown:
      if (experts) break;
      return product(cost, s, m.hidden, m.ffn, bits);
    case O::kHead:
      return product(cost, s, m.vocab, m.hidden, bits);
    case O::kElementwise: {
      const std::uint64_t elements = std::uint64_t{s.batch.value_or(1)} * m.hidden;
      return PublishedKernel{cost.elementwise_call(elements), Bytes(0), 0, PublishedKind::kElementwise};
    }
    case O::kAttention: {
      if (latent || s.input <= 1) break;
      const double heads = kv / s.deployment.tensor_parallel;
      const Bytes rows(static_cast<std::uint64_t>(s.batch.value_or(1) * heads * s.input *
                                                  static_cast<double>(s.deployment.types.kv.bits()) / 8));
      const double each = std::max(1.0, m.kv_heads / static_cast<double>(s.deployment.tensor_parallel));
      return PublishedKernel{cost.attention_call(rows, s.batch.value_or(1) * each), rows, 0,
                             PublishedKind::kAttention};
    }
  }
  return failure("this part of {} is not predicted by itself", m.name);
}

}  // namespace kvroof
