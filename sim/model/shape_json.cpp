#include "sim/model/shape_json.hpp"

#include <algorithm>
#include <array>

#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

using nlohmann::json;

template <class Enum>
struct Word {
  Enum value;
  std::string_view word;
};
constexpr std::array<Word<PositionScheme>, 5> kPositions = {{{PositionScheme::kRotaryHalfSplit, "rotary_half_split"},
                                                             {PositionScheme::kRotaryAdjacent, "rotary_adjacent"},
                                                             {PositionScheme::kAlibi, "alibi"},
                                                             {PositionScheme::kLearned, "learned"},
                                                             {PositionScheme::kNone, "none"}}};
constexpr std::array<Word<MlpKind>, 2> kMlps = {{{MlpKind::kGated, "gated"}, {MlpKind::kPlain, "plain"}}};
constexpr std::array<Word<NormKind>, 2> kNorms = {{{NormKind::kRms, "rms"}, {NormKind::kLayer, "layer"}}};
constexpr std::array<Word<QkNorm>, 4> kQkNorms = {{{QkNorm::kNone, "none"},
                                                    {QkNorm::kHead, "head"},
                                                    {QkNorm::kEachHead, "each_head"},
                                                    {QkNorm::kWhole, "whole"}}};

constexpr std::array<Word<StateKind>, 7> kStates = {{{StateKind::kNone, "none"},
                                                     {StateKind::kMamba1, "mamba1"},
                                                     {StateKind::kMamba2, "mamba2"},
                                                     {StateKind::kGatedDelta, "gated_delta"},
                                                     {StateKind::kKimiDelta, "kimi_delta"},
                                                     {StateKind::kLightning, "lightning"},
                                                     {StateKind::kShortConvolution, "short_convolution"}}};

template <class Shape, class Visitor>
void visit_experts(Shape& s, Visitor& visit) {
  visit("experts", s.experts);
  visit("experts_per_token", s.experts_per_token);
  visit("expert_ffn", s.expert_ffn);
  visit("shared_expert_ffn", s.shared_expert_ffn);
  visit("shared_expert_gate", s.shared_expert_gate);
  visit("expert_width", s.expert_width);
  visit("dense_layers", s.dense_layers);
  visit("router_bias", s.router_bias);
  visit("router_logit_bias", s.router_logit_bias);
  visit("hashed_layers", s.hashed_layers);
}

template <class Shape, class Visitor>
void visit_latent(Shape& s, Visitor& visit) {
  visit("latent_rank", s.latent_rank);
  visit("latent_q_rank", s.latent_q_rank);
  visit("latent_nope_dim", s.latent_nope_dim);
  visit("latent_rope_dim", s.latent_rope_dim);
  visit("latent_v_dim", s.latent_v_dim);
  visit("index_heads", s.index.heads);
  visit("index_dim", s.index.dim);
  visit("index_tokens", s.index.tokens);
  visit("index_layers", s.index.layers);
  visit("row_rates", s.compressed.rates);
  visit("row_chosen_rate", s.compressed.chosen_rate);
  visit("out_groups", s.compressed.out_groups);
  visit("out_rank", s.compressed.out_rank);
  visit("residual_streams", s.residual_streams);
}

// The fields of a shape in the order of its declaration; the one list behind the writer and the readers.
template <class Shape, class Visitor>
void visit_fields(Shape& s, Visitor&& visit) {
  visit("name", s.name);
  visit("family", s.family);
  visit("layers", s.layers);
  visit("hidden", s.hidden);
  visit("heads", s.heads);
  visit("kv_heads", s.kv_heads);
  visit("head_dim", s.head_dim);
  visit("v_head_dim", s.v_head_dim);
  visit("ffn", s.ffn);
  visit("vocab", s.vocab);
  visit("max_positions", s.max_positions);
  visit("position", s.position);
  visit("position_rows", s.position_rows);
  visit("embedding_width", s.embedding_width);
  visit("mlp", s.mlp);
  visit("norm", s.norm);
  visit("norms_per_layer", s.norms_per_layer);
  visit("norm_bias", s.norm_bias);
  visit("embedding_norm", s.embedding_norm);
  visit("final_norm", s.final_norm);
  visit("tied_head", s.tied_head);
  visit("head_bias", s.head_bias);
  visit("qkv_bias", s.qkv_bias);
  visit("out_bias", s.out_bias);
  visit("attention_gate", s.attention_gate);
  visit("head_gate", s.head_gate);
  visit("mlp_bias", s.mlp_bias);
  visit("qk_norm", s.qk_norm);
  visit("layer_windows", s.layer_windows);
  visit("unturned_layers", s.unturned_layers);
  visit("attention_sinks", s.attention_sinks);
  visit("other_layers", s.other.layers);
  visit("other_heads", s.other.heads);
  visit("other_kv_heads", s.other.kv_heads);
  visit("other_head_dim", s.other.head_dim);
  visit("other_v_head_dim", s.other.v_head_dim);
  visit("other_v_of_k", s.other.v_of_k);
  visit("sharing_layers", s.sharing_layers);
  visit("sharing_ffn", s.sharing_ffn);
  visit("state_kind", s.state.kind);
  visit("state_layers", s.state.layers);
  visit("state_heads", s.state.heads);
  visit("state_key_heads", s.state.key_heads);
  visit("state_key_dim", s.state.key_dim);
  visit("state_value_dim", s.state.value_dim);
  visit("state_convolution", s.state.convolution);
  visit("state_type", s.state.type);
  visit("state_step_rank", s.state.step_rank);
  visit("state_output_norm", s.state.output_norm);
  visit("state_beside_attention", s.state.beside_attention);
  visit("mlp_layers", s.mlp_layers);
  visit("layer_embedding", s.layer_embedding);
  visit("layer_embedding_rows", s.layer_embedding_rows);
  visit("layer_extras", s.layer_extras);
  visit("model_extras", s.model_extras);
  visit_experts(s, visit);
  visit_latent(s, visit);
  visit("weight_type", s.weight_type);
}

struct Writer {
  nlohmann::ordered_json& out;
  void operator()(const char* key, const std::string& v) const { out[key] = v; }
  void operator()(const char* key, std::uint32_t v) const { out[key] = v; }
  void operator()(const char* key, bool v) const { out[key] = v; }
  void operator()(const char* key, DType v) const { out[key] = name_of(v); }
  void operator()(const char* key, PositionScheme v) const { word(key, v, kPositions); }
  void operator()(const char* key, MlpKind v) const { word(key, v, kMlps); }
  void operator()(const char* key, NormKind v) const { word(key, v, kNorms); }
  void operator()(const char* key, QkNorm v) const { word(key, v, kQkNorms); }
  void operator()(const char* key, StateKind v) const { word(key, v, kStates); }
  void operator()(const char* key, const std::vector<std::uint32_t>& v) const {
    if (!v.empty()) out[key] = v;
  }
  template <class Enum, std::size_t N>
  void word(const char* key, Enum v, const std::array<Word<Enum>, N>& words) const {
    for (const auto& w : words) {
      if (w.value == v) out[key] = w.word;
    }
  }
};

// Takes the fields that are there; remembers the first problem.
struct Reader {
  const json& in;
  std::string problem;

  const json* find(const char* key) {
    const auto it = in.find(key);
    return it == in.end() || !problem.empty() ? nullptr : &*it;
  }
  void expect(const char* key, std::string_view what, const json& found) {
    problem = fmt::format("'{}' must be {}, found {}", key, what, found.dump());
  }
  void operator()(const char* key, std::string& v) {
    const json* j = find(key);
    if (j == nullptr) return;
    if (!j->is_string()) return expect(key, "text", *j);
    v = j->get<std::string>();
  }
  void operator()(const char* key, std::uint32_t& v) {
    const json* j = find(key);
    if (j == nullptr) return;
    if (!j->is_number_unsigned() || j->get<std::uint64_t>() > UINT32_MAX) return expect(key, "a whole number", *j);
    v = j->get<std::uint32_t>();
  }
  void operator()(const char* key, bool& v) {
    const json* j = find(key);
    if (j == nullptr) return;
    if (!j->is_boolean()) return expect(key, "true or false", *j);
    v = j->get<bool>();
  }
  void operator()(const char* key, DType& v) {
    const json* j = find(key);
    if (j == nullptr) return;
    const auto type = j->is_string() ? parse_dtype(j->get<std::string>()) : std::nullopt;
    if (!type) return expect(key, "an element type such as bf16", *j);
    v = *type;
  }
  void operator()(const char* key, PositionScheme& v) { word(key, v, kPositions); }
  void operator()(const char* key, MlpKind& v) { word(key, v, kMlps); }
  void operator()(const char* key, NormKind& v) { word(key, v, kNorms); }
  void operator()(const char* key, QkNorm& v) { word(key, v, kQkNorms); }
  void operator()(const char* key, StateKind& v) { word(key, v, kStates); }
  void operator()(const char* key, std::vector<std::uint32_t>& v) {
    const json* j = find(key);
    if (j == nullptr) return;
    const auto good = [](const json& e) { return e.is_number_unsigned() && e.get<std::uint64_t>() <= UINT32_MAX; };
    if (!j->is_array() || !std::all_of(j->begin(), j->end(), good)) return expect(key, "a list of whole numbers", *j);
    v = j->get<std::vector<std::uint32_t>>();
  }
  template <class Enum, std::size_t N>
  void word(const char* key, Enum& v, const std::array<Word<Enum>, N>& words) {
    const json* j = find(key);
    if (j == nullptr) return;
    std::vector<std::string> known;
    for (const auto& w : words) {
      if (j->is_string() && j->get<std::string>() == w.word) {
        v = w.value;
        return;
      }
      known.emplace_back(w.word);
    }
    expect(key, "one of " + join(known), *j);
  }
};

std::vector<std::string> field_names() {
  std::vector<std::string> names;
  ModelShape any;
  visit_fields(any, [&](const char* key, auto&) { names.emplace_back(key); });
  return names;
}

}  // namespace

Result<ModelShape> shape_from_json(const json& in) {
  if (!in.is_object()) return failure("expected an object with the sizes of a model");
  const std::vector<std::string> known = field_names();
  for (const auto& [key, value] : in.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return failure("unknown key '{}'{}", key.substr(0, 100), did_you_mean(key, known));
    }
  }
  for (const char* key : {"layers", "hidden", "heads", "ffn", "vocab", "max_positions"}) {
    if (!in.contains(key)) return failure("key '{}' is missing", key);
  }
  ModelShape s;
  Reader reader{in, {}};
  visit_fields(s, reader);
  if (!reader.problem.empty()) return Failure{reader.problem};
  // What follows from other sizes in most families need not be written.
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  if (s.head_dim == 0 && s.heads > 0) s.head_dim = s.hidden / s.heads;
  if (s.v_head_dim == 0) s.v_head_dim = s.head_dim;
  if (s.embedding_width == 0) s.embedding_width = s.hidden;
  const std::string problem = shape_problem(s);
  if (!problem.empty()) return Failure{problem};
  return s;
}

std::string shape_to_json(const ModelShape& shape) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  visit_fields(shape, Writer{out});
  // What says nothing of most models is left out, so that earlier versions read their traces.
  nlohmann::ordered_json nothing = nlohmann::ordered_json::object();
  const ModelShape plain;
  visit_fields(plain, Writer{nothing});
  for (const char* key :
       {"attention_gate", "head_gate", "other_heads", "other_kv_heads", "other_head_dim", "other_v_head_dim",
        "other_v_of_k", "sharing_layers", "sharing_ffn", "state_kind", "state_layers", "state_heads", "state_key_heads",
        "state_key_dim", "state_value_dim", "state_convolution", "state_type", "state_step_rank", "state_output_norm",
        "state_beside_attention", "mlp_layers", "layer_embedding", "layer_embedding_rows", "layer_extras",
        "model_extras", "residual_streams", "expert_width", "hashed_layers", "index_heads", "index_dim", "index_tokens",
        "index_layers", "row_chosen_rate", "out_groups", "out_rank"}) {
    if (out[key] == nothing[key]) out.erase(key);
  }
  return out.dump(2);
}

Result<ModelShape> shape_from_json(std::string_view text) {
  const json in = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (in.is_discarded()) return failure("not valid JSON");
  return shape_from_json(in);
}

}  // namespace kvroof
