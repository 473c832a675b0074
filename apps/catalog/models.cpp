// kvroof models: the shapes that can be asked about, and what their weights and caches need.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/prediction/workload_weights.hpp"
#include "kernels/engine/weight_families.hpp"
#include "sim/core/bytes_text.hpp"
#include "sim/core/suggest.hpp"
#include "sim/model/config_json.hpp"
#include "sim/model/config_of_shape.hpp"
#include "sim/model/gguf.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/model/stored_format.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

std::string gib_text(double gibibytes) { return fmt::format("{:.{}f}", gibibytes, gibibytes < 10 ? 3 : 1); }

Table list_models(const std::filesystem::path& catalog) {
  Table table;
  table.columns = {{"model", "model", false},
                   {"family", "family", false},
                   {"layers", "layers"},
                   {"hidden", "hidden"},
                   {"query heads", "heads"},
                   {"KV heads", "kv_heads"},
                   {"head", "head_dim"},
                   {"size (10⁹)", "parameters"},
                   {"type", "weight_type", false},
                   {"weights (GiB)", "weight_bytes"},
                   {"KV f16 a token (KiB)", "kv_bytes_per_token_f16"}};
  for (const std::string& name : catalog_model_names(catalog)) {
    const ModelShape s = find_model_shape(name, catalog);
    const std::uint64_t parameters = parameter_count(s);
    const WeightFormat format = stored_format(name, s).value_or(plain_format(s.weight_type));
    const Bytes weights = weight_bytes(s, format);
    const Bytes token = kv_bytes_per_token(s, DType::kF16);
    const std::vector<std::string> sizes = {s.name,
                                            s.family,
                                            std::to_string(s.blocks()),
                                            std::to_string(s.hidden),
                                            std::to_string(s.heads),
                                            std::to_string(s.kv_heads),
                                            std::to_string(s.head_dim)};
    std::vector<std::string> row = sizes, raw = sizes;
    row.insert(row.end(),
               {fmt::format("{:.2f}", static_cast<double>(parameters) / 1e9), std::string(format.name),
                gib_text(gib(weights)), fmt::format("{:.1f}", static_cast<double>(token.value) / 1024)});
    raw.insert(raw.end(), {std::to_string(parameters), std::string(format.name),
                           std::to_string(weights.value), std::to_string(token.value)});
    table.rows.push_back(std::move(row));
    table.raw_rows.push_back(std::move(raw));
  }
  return table;
}

// What is known about a model that is shown, beside its shape.
struct Weights {
  std::uint64_t parameters = 0;
  Bytes bytes;
  Bytes a_token;                 // read to decode one; 0: not known
  std::string types, raw_types;  // for people; for JSON and CSV
  DType kv;                      // of a cache that is not asked for another
  std::string unknown_windows;   // why none are counted where there are some; or empty
};

Weights projected_weights(const Arguments& arguments, const std::string& model, const ModelShape& s) {
  const WeightFormat format = arguments.has("dtype")
                                  ? weight_format_value(arguments.get<std::string>("dtype"))
                                  : stored_format(model, s).value_or(plain_format(s.weight_type));
  const std::string name(format.name);
  const DType kv = format.quantised() ? DType::kBF16 : parse_dtype(name).value_or(s.weight_type);
  return {parameter_count(s), weight_bytes(s, format), active_weight_bytes(s, format), name, name, kv, {}};
}

// Whether all that it holds is of the shape that its metadata describe, so that predictions take it.
bool is_described(const GgufModel& model) { return model.parameters == parameter_count(model.shape); }

// The bytes of the tensors themselves, type by type.
Weights stored_weights(const Arguments& arguments, const GgufModel& model) {
  if (arguments.has("dtype")) throw usage_error("--dtype: a GGUF file says the types of its weights itself");
  const WeightFormat format = weight_format_of(model.stored).value_or(plain_format(model.shape.weight_type));
  const Bytes a_token = is_described(model) ? active_weight_bytes(model.shape, format) : Bytes{};
  Weights weights{model.parameters, Bytes{model.bytes}, a_token, {}, {}, model.shape.weight_type,
                  model.unknown_windows};
  for (const auto& type : model.types) {
    weights.types += fmt::format("{}{}", weights.types.empty() ? "" : " ", type.name);
    weights.raw_types += fmt::format("{}{}:{}", weights.raw_types.empty() ? "" : " ", type.name, type.bytes);
  }
  return weights;
}

Table show_model(const Arguments& arguments, const ModelShape& s, const Weights& weights) {
  const auto batches = count_list("batch", arguments.get<std::string>("batch"), 1, 1U << 20);
  const auto contexts = count_list("context", arguments.get<std::string>("context"), 1, 1U << 24);
  const KvType kv = arguments.has("kv") ? kv_type_value(arguments.get<std::string>("kv"), true) : weights.kv;
  Table table;
  table.columns = {{"model", "model", false},
                   {"parameters", "parameters"},
                   {"weight type", "weight_type", false},
                   {"weights (GiB)", "weight_bytes"},
                   {"KV type", "kv_type", false},
                   {"batch", "batch"},
                   {"context (tokens)", "context"},
                   {"KV a token (KiB)", "kv_bytes_per_token"},
                   {"KV (GiB)", "kv_bytes"},
                   {"weights and KV (GiB)", "total_bytes"}};
  for (const std::uint32_t batch : batches) {
    for (const std::uint32_t context : contexts) {
      const Bytes weight = weights.bytes;
      const Bytes token = kv_bytes_per_token(s, kv);
      const Bytes cache = kv_bytes(s, kv, context) * batch;
      const auto parameters = std::to_string(weights.parameters);
      const std::string kv_type(name_of(kv));
      const std::string b = std::to_string(batch), n = std::to_string(context);
      table.rows.push_back({s.name, parameters, weights.types, gib_text(gib(weight)), kv_type, b, n,
                            fmt::format("{:.1f}", static_cast<double>(token.value) / 1024), gib_text(gib(cache)),
                            gib_text(gib(weight + cache))});
      table.raw_rows.push_back({s.name, parameters, weights.raw_types, std::to_string(weight.value), kv_type, b, n,
                                std::to_string(token.value), std::to_string(cache.value),
                                std::to_string((weight + cache).value)});
    }
  }
  return table;
}

std::string_view position_text(const ModelShape& s) {
  switch (s.position) {
    case PositionScheme::kRotaryHalfSplit:
      return "rotary, half split";
    case PositionScheme::kRotaryAdjacent:
      return "rotary, adjacent pairs";
    case PositionScheme::kAlibi:
      return "ALiBi";
    case PositionScheme::kLearned:
      return "learned";
    default:
      return "none";
  }
}

std::uint32_t windowed_layers(const ModelShape& s) {
  return static_cast<std::uint32_t>(
      std::count_if(s.layer_windows.begin(), s.layer_windows.end(), [](std::uint32_t window) { return window > 0; }));
}

std::uint32_t smallest_window(const ModelShape& s) {
  std::uint32_t smallest = 0;
  for (const std::uint32_t window : s.layer_windows) {
    if (window > 0 && (smallest == 0 || window < smallest)) smallest = window;
  }
  return smallest;
}

// What the engine cannot do with a model, or nothing.
std::string not_supported(const std::string& name, const ModelShape& s) {
  if (const std::string part = not_built(s); !part.empty()) {
    return fmt::format("running {}: only its sizes are known", part);
  }
  if (!runs_family(s.family)) return fmt::format("running model_type {}: only its sizes are known", s.family);
  if (const std::string part = unnamed_part(s); !part.empty()) {
    return fmt::format("running model_type {} with {}: only its sizes are known", s.family, part);
  }
  std::error_code error;
  if (std::filesystem::exists(name, error)) {
    if (std::string why = cannot_run_of(name); !why.empty()) return why;
  }
  const auto stored = stored_format(name, s);
  if (!stored || !stored->quantised() || stored->name == "fp8" || stored->name == "mxfp4") return {};
  return fmt::format("running weights in {}: only their sizes are known", stored->name);
}

std::string attention_text(const ModelShape& s) {
  if (s.latent()) {
    return fmt::format("{} heads on one latent row of {} + {}", s.heads, s.latent_rank, s.latent_rope_dim);
  }
  if (s.compressed) return fmt::format("{} query heads on one row of {}, k and v at once", s.heads, s.head_dim);
  std::string text = fmt::format("{} query heads on {} KV heads of {}", s.heads, s.kv_heads, s.head_dim);
  const OtherAttention& o = s.other;
  if (!o.layers.empty()) {
    text += fmt::format("; in {} of {} layers {} on {} of {}", o.layers.size(), s.layers, o.heads, o.kv_heads,
                        o.head_dim);
  }
  if (s.sharing_layers > 0) text += fmt::format("; the last {} layers read caches of earlier ones", s.sharing_layers);
  return text;
}

// How many layers hold a row for so many tokens.
std::string compressed_text(const ModelShape& s) {
  std::map<std::uint32_t, std::uint32_t> layers;
  for (const std::uint32_t rate : s.compressed.rates) ++layers[rate];
  std::string text = "beside the window";
  for (const auto& [rate, count] : layers) {
    text += rate == 0 ? fmt::format(", none in {} layers", count)
                      : fmt::format(", one for {} tokens in {} layers", rate, count);
  }
  return text + fmt::format("; what makes them holds {} of a sequence", bytes_text(compressor_bytes(s)));
}

std::string states_text(const ModelShape& s) {
  return fmt::format("in {} of {} layers, {} a cache: {} for a sequence of any length", s.state.layers, s.blocks(),
                     s.state.beside_attention ? "beside" : "in place of",
                     bytes_text(state_bytes(s, s.weight_type).value));
}

std::string facts_text(const ModelShape& s, const Weights& weights, const std::string& missing) {
  const auto line = [](std::string_view title, const std::string& text) {
    return fmt::format("{:<20} {}\n", title, text);
  };
  const std::uint32_t all = s.blocks();
  std::string text = line("family", fmt::format("{}: {} layers of {}", s.family, all, s.hidden));
  text += line("attention", attention_text(s));
  if (s.compressed) text += line("compressed rows", compressed_text(s));
  if (s.index) {
    text += line("index", fmt::format("{} {} at most for a query, chosen by {} heads of {} in {} of {} layers",
                                      s.index.tokens, s.compressed ? "compressed rows" : "tokens", s.index.heads,
                                      s.index.dim, s.index.layers, s.layers));
  }
  if (s.state.layers > 0) text += line("states", states_text(s));
  const std::size_t unturned = s.unturned_layers.size();
  const std::string none = unturned > 0 ? fmt::format(", none in {} of {} layers", unturned, s.layers) : "";
  if (s.residual_streams > 1) text += line("residual", fmt::format("{} streams", s.residual_streams));
  text += line("positions", fmt::format("{}{}; up to {} tokens", position_text(s), none, s.max_positions));
  const std::uint32_t windowed = windowed_layers(s);
  const std::string none_known = weights.unknown_windows.empty() ? "none" : weights.unknown_windows;
  text += line("windows", windowed == 0
                              ? none_known
                              : fmt::format("{} tokens in {} of {} layers", smallest_window(s), windowed, s.layers));
  if (s.experts > 0) {
    text += line("experts", fmt::format("{} of {} a token{} in {} of {} layers", s.experts_per_token, s.experts,
                                        s.shared_expert_ffn > 0 ? " and shared ones" : "", s.expert_layers(), all));
  }
  if (weights.a_token.value > 0) {
    text += line("weights a token", fmt::format("{} GiB of {} GiB are read", gib_text(gib(weights.a_token)),
                                                gib_text(gib(weights.bytes))));
  }
  return text + line("not supported", missing.empty() ? "nothing" : missing) + "\n";
}

// The same for programs: the same cells in every row.
void add_facts(Table& table, const ModelShape& s, const Weights& weights, const std::string& missing) {
  const std::vector<std::pair<Table::Column, std::string>> facts = {
      {{"family", "family", false}, s.family},
      {{"positions", "positions", false}, std::string(position_text(s))},
      {{"longest context", "max_positions"}, std::to_string(s.max_positions)},
      {{"layers with a window", "windowed_layers"}, std::to_string(windowed_layers(s))},
      {{"window (tokens)", "window"}, windowed_layers(s) > 0 ? std::to_string(smallest_window(s)) : ""},
      {{"windows not known", "unknown_windows", false}, weights.unknown_windows},
      {{"layers with an index", "index_layers"}, std::to_string(s.index.layers)},
      {{"tokens a query reads at most", "index_tokens"}, s.index ? std::to_string(s.index.tokens) : ""},
      {{"layers with compressed rows", "compressed_layers"}, std::to_string(s.compressed.layers())},
      {{"layers with other heads", "other_layers"}, std::to_string(s.other.layers.size())},
      {{"layers that read others' caches", "sharing_layers"}, std::to_string(s.sharing_layers)},
      {{"layers with a state", "state_layers"}, std::to_string(s.state.layers)},
      {{"states of a sequence", "state_bytes"}, std::to_string(state_bytes(s, s.weight_type).value)},
      {{"experts", "experts"}, std::to_string(s.experts)},
      {{"experts a token", "experts_per_token"}, std::to_string(s.experts_per_token)},
      {{"layers with experts", "expert_layers"}, std::to_string(s.expert_layers())},
      {{"weights a token", "weight_bytes_per_token"},
       weights.a_token.value > 0 ? std::to_string(weights.a_token.value) : ""},
      {{"not supported", "not_supported", false}, missing},
  };
  for (const auto& [column, cell] : facts) {
    table.columns.push_back(column);
    for (auto* rows : {&table.rows, &table.raw_rows}) {
      for (auto& row : *rows) row.push_back(cell);
    }
  }
}

int show(const Arguments& arguments, const ModelShape& shape, const Weights& weights, const std::string& missing) {
  Table table = show_model(arguments, shape, weights);
  if (format_of(arguments) == Format::kTable) {
    write_result(arguments, facts_text(shape, weights, missing) + format_table(table));
  } else {
    add_facts(table, shape, weights, missing);
    write_table(arguments, table);
  }
  return 0;
}

int run_models(const Arguments& arguments) {
  const std::filesystem::path catalog = data_folder() / "catalog";
  if (asks_for_list(arguments)) {
    write_table(arguments, list_models(catalog));
    return 0;
  }
  const std::string& word = arguments.positional[0];
  const std::vector<std::string> known = {"show"};
  if (word != "show") {
    throw usage_error(fmt::format("models {}: expected `models` or `models show NAME|DIR|F.gguf`{}", word,
                                  did_you_mean(word, known)));
  }
  if (arguments.positional.size() < 2) {
    throw usage_error("models show: a name, a folder or a file is missing").note("`kvroof models` lists the names");
  }
  const std::filesystem::path path = arguments.positional[1];
  if (path.extension() == ".gguf" && std::filesystem::is_regular_file(path)) {
    const GgufModel model = load_gguf(path);
    std::string missing = "running GGUF weights: only their sizes are read";
    if (!is_described(model)) {
      missing += fmt::format("; predictions, for its metadata describe {} parameters", parameter_count(model.shape));
    }
    return show(arguments, model.shape, stored_weights(arguments, model), missing);
  }
  const std::string& name = arguments.positional[1];
  const ModelShape shape = find_model_shape(name, catalog);
  return show(arguments, shape, projected_weights(arguments, name, shape), not_supported(name, shape));
}

void describe_models(po::options_description_easy_init add) {
  add("batch", po::value<std::string>()->default_value("1"), "sequences; a list is a sweep")(
      "context", po::value<std::string>()->default_value("2k"), "tokens of each, k = 1,024; a list is a sweep")(
      "kv", po::value<std::string>(),
      "KV cache as f32 | f16 | bf16 | fp8 | int8 | int4 | int4g64 | kivi2 | kivi4 (default: as the weights, beside "
      "quantised ones bf16, of a GGUF file f16)")(
      "dtype", po::value<std::string>(),
      "how weights are stored: bf16 | f16 | fp8 | int8 | int4 | Q4_K_M … (default: as the checkpoint is)");
}

}  // namespace

Command models_command() {
  return {"models",
          "model shapes: parameters, weight and KV bytes",
          "[list | show NAME|DIR|F.gguf [--batch B --context N --kv f16]]",
          "  kvroof models\n"
          "  kvroof models show opt-175b --batch 128 --context 2k --kv f16\n"
          "  kvroof models show models/demo --context 512,1k,2k --format csv",
          describe_models,
          run_models,
          0,
          2};
}

}  // namespace kvroof
