#include "traces/manifest.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "traces/json_object.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMaxLayers = 1024;
constexpr std::uint64_t kMaxHeads = 1024;
constexpr std::uint64_t kMaxWidth = 65536;
constexpr std::uint64_t kMaxSequences = 65536;
constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 24;
constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();
constexpr double kMaxFloat = std::numeric_limits<float>::max();

const std::vector<std::string> kSources = {"engine", "import", "profile"};
const std::vector<std::string> kBackends = {"reference", "fast", "cuda", ""};
const std::vector<std::string> kTypes = {"f32", "f16", "bf16"};
const std::vector<std::string> kQuantisedTypes = {"int8", "int4", "int4g64", "kivi2", "kivi4"};
const std::vector<std::string> kRotaryStyles = {"none", "half_split", "adjacent_pairs"};
const std::vector<std::string> kStopReasons = {"length",  "end_of_text", "interrupted",
                                               "context", "imported",    "unknown",     "failed"};

// What is as in a plain rotation of leading elements is left out.
nlohmann::ordered_json rotary_to_json(const RotaryInfo& rotary) {
  nlohmann::ordered_json json = {{"style", rotary.style}, {"dims", rotary.dims}, {"theta", rotary.theta}};
  if (rotary.first > 0) json["first"] = rotary.first;
  if (rotary.magnitude != 1) json["magnitude"] = rotary.magnitude;
  if (!rotary.inverse_frequencies.empty()) json["inverse_frequencies"] = rotary.inverse_frequencies;
  if (rotary.long_from > 0) {
    json["long_from"] = rotary.long_from;
    json["long_inverse_frequencies"] = rotary.long_inverse_frequencies;
  }
  return json;
}

nlohmann::ordered_json layer_to_json(const TraceLayer& layer) {
  nlohmann::ordered_json object = {{"query_heads", layer.query_heads},
                                   {"kv_heads", layer.kv_heads},
                                   {"k_width", layer.k_width},
                                   {"v_width", layer.v_width},
                                   {"scale", layer.scale},
                                   {"softcap", layer.softcap},
                                   {"window", layer.window},
                                   {"alibi_slopes", layer.alibi_slopes},
                                   {"rotary", rotary_to_json(layer.rotary)}};
  if (layer.alibi_rounded_scale != 0) object["alibi_rounded_scale"] = layer.alibi_rounded_scale;
  if (!layer.attention_sinks.empty()) object["attention_sinks"] = layer.attention_sinks;
  return object;
}

nlohmann::ordered_json sequence_to_json(const TraceSequence& sequence) {
  return {{"id", sequence.id},
          {"prompt", sequence.prompt},
          {"requested_new_tokens", sequence.requested_new_tokens},
          {"tokens", sequence.tokens},
          {"stop_reason", sequence.stop_reason}};
}

std::uint32_t integer32(const JsonObject& object, std::string_view field, std::uint64_t low, std::uint64_t high) {
  return static_cast<std::uint32_t>(object.integer(field, low, high));
}

// A frequency for each pair, or nothing where the field is absent.
std::vector<float> frequencies_from(const JsonObject& object, std::string_view field, std::uint32_t dims) {
  if (!object.has(field)) return {};
  std::vector<float> frequencies = object.floats(field, dims / 2);
  if (frequencies.size() != dims / 2) object.refuse(field, "has no frequency for each pair of the rotated elements");
  return frequencies;
}

RotaryInfo rotary_from(const JsonObject& object, std::uint32_t k_width) {
  RotaryInfo rotary;
  rotary.style = object.word("style", kRotaryStyles);
  rotary.dims = integer32(object, "dims", 0, k_width);
  rotary.theta = object.number("theta", 0, std::numeric_limits<double>::max());
  if (object.has("first")) rotary.first = integer32(object, "first", 0, k_width - rotary.dims);
  if (object.has("magnitude")) rotary.magnitude = static_cast<float>(object.number("magnitude", 0, kMaxFloat));
  rotary.inverse_frequencies = frequencies_from(object, "inverse_frequencies", rotary.dims);
  if (object.has("long_from")) {
    rotary.long_from = integer32(object, "long_from", 1, kMaxTokens);
    rotary.long_inverse_frequencies = frequencies_from(object, "long_inverse_frequencies", rotary.dims);
    if (rotary.long_inverse_frequencies.empty()) object.refuse("long_inverse_frequencies", "is missing");
  }
  return rotary;
}

TraceLayer layer_from(const JsonObject& object) {
  TraceLayer layer;
  layer.query_heads = integer32(object, "query_heads", 1, kMaxHeads);
  layer.kv_heads = integer32(object, "kv_heads", 1, layer.query_heads);
  if (layer.query_heads % layer.kv_heads != 0) object.refuse("query_heads", "is not a multiple of kv_heads");
  layer.k_width = integer32(object, "k_width", 1, kMaxWidth);
  layer.v_width = integer32(object, "v_width", 1, kMaxWidth);
  layer.scale = static_cast<float>(object.number("scale", -kMaxFloat, kMaxFloat));
  layer.softcap = static_cast<float>(object.number("softcap", 0, kMaxFloat));
  layer.window = integer32(object, "window", 0, kMaxTokens);
  layer.alibi_slopes = object.floats("alibi_slopes", layer.query_heads);
  if (!layer.alibi_slopes.empty() && layer.alibi_slopes.size() != layer.query_heads) {
    object.refuse("alibi_slopes", "has neither one slope for each query head nor none");
  }
  if (object.has("alibi_rounded_scale")) {
    layer.alibi_rounded_scale = static_cast<float>(object.number("alibi_rounded_scale", 0, kMaxFloat));
  }
  if (object.has("attention_sinks")) {
    layer.attention_sinks = object.floats("attention_sinks", layer.query_heads);
    if (!layer.attention_sinks.empty() && layer.attention_sinks.size() != layer.query_heads) {
      object.refuse("attention_sinks", "has neither one logit for each query head nor none");
    }
  }
  const JsonObject rotary = object.object("rotary");
  if (object.problem().empty()) layer.rotary = rotary_from(rotary, layer.k_width);
  return layer;
}

TraceSequence sequence_from(const JsonObject& object) {
  TraceSequence sequence;
  sequence.id = integer32(object, "id", 0, kMax32);
  sequence.prompt = integer32(object, "prompt", 0, kMaxTokens);
  sequence.requested_new_tokens = integer32(object, "requested_new_tokens", 0, kMaxTokens);
  sequence.tokens = integer32(object, "tokens", 0, kMaxTokens);
  sequence.stop_reason = object.word("stop_reason", kStopReasons);
  return sequence;
}

}  // namespace

std::string manifest_to_json(const TraceManifest& m) {
  nlohmann::ordered_json json = {{"format_version", m.format_version},
                                 {"tool_version", m.tool_version},
                                 {"source", m.source},
                                 {"model_name", m.model_name},
                                 {"model_path", m.model_path},
                                 {"model_shape", nullptr},
                                 {"backend", m.backend},
                                 {"policy", m.policy},
                                 {"seed", m.seed},
                                 {"weight_type", name_of(m.weight_type)},
                                 {"kv_type", name_of(m.kv_type)},
                                 {"command_line", m.command_line},
                                 {"host", m.host},
                                 {"layers", nlohmann::ordered_json::array()},
                                 {"sequences", nlohmann::ordered_json::array()}};
  if (!m.linear.empty()) json["linear"] = m.linear;
  if (m.cache_type) json["cache_type"] = name_of(*m.cache_type);
  if (!m.model_shape_json.empty()) json["model_shape"] = nlohmann::ordered_json::parse(m.model_shape_json);
  for (const TraceLayer& layer : m.layers) json["layers"].push_back(layer_to_json(layer));
  for (const TraceSequence& sequence : m.sequences) json["sequences"].push_back(sequence_to_json(sequence));
  // Paths and command lines may hold bytes that are not UTF-8; JSON may not.
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool has_newer_format(std::string_view manifest) {
  const Result<JsonObject> parsed = JsonObject::parse(manifest);
  return parsed.ok() && integer32(parsed.value(), "format_version", 1, kMax32) > kTraceFormatVersion;
}

Result<TraceManifest> manifest_from_json(std::string_view text) {
  const Result<JsonObject> parsed = JsonObject::parse(text);
  if (!parsed) return failure("{}", parsed.error());
  const JsonObject& object = parsed.value();
  TraceManifest m;
  m.format_version = integer32(object, "format_version", 1, kMax32);
  if (m.format_version > kTraceFormatVersion) {
    return failure(
        "format version {} is newer than this program, which reads up to {}; a kvroof that knows version {} is needed",
        m.format_version, kTraceFormatVersion, m.format_version);
  }
  m.tool_version = object.string("tool_version");
  m.source = object.word("source", kSources);
  m.model_name = object.string("model_name");
  m.model_path = object.string("model_path");
  m.model_shape_json = object.object_text("model_shape");
  m.backend = object.word("backend", kBackends);
  if (object.has("linear")) m.linear = object.string("linear");
  m.policy = object.string("policy");
  m.seed = object.integer("seed", 0, kMax64);
  m.weight_type = parse_dtype(object.word("weight_type", kTypes)).value_or(DType::kF32);
  m.kv_type = parse_dtype(object.word("kv_type", kTypes)).value_or(DType::kF32);
  if (object.has("cache_type")) m.cache_type = parse_kv_type(object.word("cache_type", kQuantisedTypes));
  if (m.cache_type && m.cache_type->by_age() && has_attention(m)) {
    object.refuse("cache_type", "has rows that change with age, which a trace with attention does not hold");
  }
  m.command_line = object.string("command_line");
  m.host = object.string("host");
  const std::size_t least = has_attention(m) ? 1 : 0;
  const auto most = [&](std::uint64_t limit) { return has_attention(m) ? limit : 0; };
  for (const JsonObject& layer : object.objects("layers", least, most(kMaxLayers))) {
    m.layers.push_back(layer_from(layer));
  }
  std::set<std::uint32_t> ids;
  for (const JsonObject& sequence : object.objects("sequences", least, most(kMaxSequences))) {
    m.sequences.push_back(sequence_from(sequence));
    if (!ids.insert(m.sequences.back().id).second) sequence.refuse("id", "occurs twice");
  }
  if (!object.problem().empty()) return Failure{object.problem()};
  return m;
}

}  // namespace kvroof
