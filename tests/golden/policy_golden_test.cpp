// Kept sets of the policies against reference cases. KVROOF_GOLDEN_POLICIES=DIR compares another folder of such cases.
#include <map>

#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/leverage.hpp"
#include "sim/policy/noise.hpp"
#include "sim/policy/token_scores.hpp"
#include "tests/golden/policy_cases.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// `first_row` is the tensor's row of what is held after the prompt, where only that is given.
void compare(const Case& c, Driver& driver, const std::string& tensor, std::uint32_t first_row = 0) {
  const std::uint32_t heads = driver.policy().storage_heads();
  const Shape& shape = driver.shape();
  const bool every_row = driver.policy().traits().streams_prompt;
  if (every_row) {
    for (std::uint32_t t = 0; t < shape.prompt; ++t) {
      driver.row(t);
      check_all_heads(c, driver, tensor, t, heads);
    }
  } else {
    driver.prompt();
    check_all_heads(c, driver, tensor, first_row, heads);
  }
  for (std::uint32_t i = 1; i <= shape.decode; ++i) {
    driver.row(shape.prompt + i - 1);
    check_all_heads(c, driver, tensor, every_row ? shape.prompt + i - 1 : i, heads);
  }
}

// Of [layers, heads, positions, d], one layer.
std::vector<float> layer_of(const Case& c, std::string_view tensor, std::uint32_t layer) {
  const std::vector<float> all = c.floats(tensor);
  const auto size = static_cast<std::ptrdiff_t>(all.size() / c.size(tensor, 0));
  return {all.begin() + layer * size, all.begin() + (layer + 1) * size};
}

// The output projections of the model of the base cases: [layers, hidden, query heads · width].
const SafetensorsFile& output_projections() {
  static const SafetensorsFile file =
      SafetensorsFile::open(KVROOF_SOURCE_DIR "/tests/golden/policies/kvpress_o_proj.safetensors").or_throw("o_proj");
  return file;
}

// The sketch of the case being run, for a table entry whose functions can hold no state.
std::vector<float> given_sketch;

// The policy of a case; where it has a tensor `sketch`, with that in place of its draws.
PolicyInfo info_for(const Case& c, const PolicySpec& spec) {
  PolicyInfo info = policy_info(spec.name);
  if (c.find("sketch") == nullptr) return info;
  given_sketch = c.floats("sketch");
  info.make = [](const PolicySpec& of, const PolicyContext& context) {
    const auto give = [](std::uint64_t, std::size_t, std::size_t, std::vector<float>& out) { out = given_sketch; };
    return of.name == "compactor" ? make_compactor(of, context, give) : make_leverage(of, context, give);
  };
  return info;
}

// Compares each case of a prefix whose input is the model's prompt, on the q, k and v that its base case gives.
void compare_model_cases(std::string_view prefix) {
  for (const Case& c : cases_named(prefix)) {
    const auto& how = c.json["kvroof"];
    if (how["input"] != "model") continue;
    const Case base = std::move(cases_named(how["base"].get<std::string>()).front());
    const auto& model = base.json["parameters"];
    const RotaryRule rotary =
        plain_rotary(RotaryStyle::kHalfSplit, base.size("q", 3), model["rope_theta"].get<double>());
    Shape shape = {.query_heads = base.size("q", 1),
                         .kv_heads = base.size("k", 1),
                         .prompt = base.size("q", 2),
                         .rotary = &rotary,
                         .width = base.size("q", 3)};
    const TensorInfo& o = *output_projections().header().find("o_proj");
    const std::vector<float> projections = output_projections().read_floats(o);
    for (std::uint32_t layer = 0; layer < base.size("q", 0); ++layer) {
      const std::size_t cols = o.shape[2];
      const float* projection = projections.data() + layer * o.shape[1] * cols;
      shape.projection = {reinterpret_cast<const std::byte*>(projection), DType::kF32, cols, cols, o.shape[1]};
      const auto q = layer_of(base, "q", layer);
      const auto k = layer_of(base, "k", layer);
      const PolicySpec spec = spec_of(how["policy"].get<std::string>());
      Driver driver(info_for(c, spec), spec, shape,
                    logits_of({shape.query_heads, shape.kv_heads, shape.prompt, shape.width, q, k}),
                    DriverRows(q, k, layer_of(base, "v", layer), shape.query_heads, shape.kv_heads, shape.prompt,
                               shape.prompt));
      driver.prompt();
      check_all_heads(c, driver, how["compare"].get<std::string>(), layer, driver.policy().storage_heads());
    }
  }
}

// Compares each case of a prefix whose policy is given in the program's syntax and whose input are tensors.
void compare_cases(std::string_view prefix) {
  for (const Case& c : cases_named(prefix)) {
    const auto& how = c.json["kvroof"];
    if (how["policy"].is_null() || how["input"] != "qkv") continue;
    const auto tensor = how["compare"].get<std::string>();
    Shape shape = shape_of(c);
    shape.layers = how.value("layers", 1U);
    const bool has_rows_of_layers = shape.layers > 1 && c.find(tensor)->shape.size() == 3;
    const std::uint32_t first = how.value("layer", 0U);
    const std::uint32_t end = has_rows_of_layers ? shape.layers : first + 1;
    for (shape.layer = first; shape.layer < end; ++shape.layer) {
      Driver driver(spec_of(how["policy"].get<std::string>()), shape, logits_of(c));
      compare(c, driver, tensor, has_rows_of_layers ? shape.layer : 0);
    }
  }
}

// The noise tensor of the case being run, for a table entry whose functions can hold no state.
struct GivenNoise {
  std::vector<float> values;
  std::uint32_t n = 0;
  bool per_query = false;
};
GivenNoise given;

void given_noise(NoiseKey key, std::span<const TokenPos> positions, std::span<float> out) {
  const std::size_t row = given.per_query ? std::size_t{key.query_head} * given.n + key.query_position : key.query_head;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = given.values[row * given.n + positions[i].value];
}

}  // namespace

TEST_CASE("h2o keeps the reference's sets: real drop, grouped query heads, prompt only") { compare_cases("h2o_"); }

// What each decode query sees, its own token among it.
void compare_visible(const Case& c, Driver& driver, const std::string& tensor) {
  const Shape& shape = driver.shape();
  driver.prompt();
  for (std::uint32_t i = 0; i < shape.decode; ++i) {
    driver.row(shape.prompt + i);
    for (std::uint32_t h = 0; h < shape.query_heads; ++h) {
      INFO(c.name << " decode query " << i << " head " << h);
      CHECK(driver.read(h) == expected_row(c, tensor, i, h));
    }
  }
}

TEST_CASE("h2o-masked shows each query what the reference's masks show it, tokens that return among them") {
  for (const Case& c : cases_named("h2o_masked_")) {
    const auto& p = c.json["parameters"];
    Driver driver(spec_of(fmt::format("h2o-masked:heavy={}:recent={}", p["heavy_ratio"].get<double>(),
                                      p["recent_ratio"].get<double>())),
                  shape_of(c), logits_of(c));
    compare_visible(c, driver, "visible_next");
  }
}

TEST_CASE("keyformer-refcompat shows each query what the reference's masks show it, with the reference's noise") {
  PolicyInfo info = policy_info("keyformer-refcompat");
  info.make = [](const PolicySpec& spec, const PolicyContext& context) {
    return make_keyformer_refcompat(spec, context, given_noise);
  };
  for (const Case& c : cases_named("keyformer_")) {
    if (c.find("ref_visible_next") == nullptr) continue;
    const auto& p = c.json["parameters"];
    const bool zero = p["noise"] == "zero";
    if (!zero) given = {c.floats("noise"), c.size("q", 1), p["noise"] == "per_query"};
    const auto spec = spec_of(fmt::format("keyformer-refcompat:budget={}:recent={}:noise={}:tau={}..{}",
                                          p["budget"].get<int>(), p["recent"].get<int>(),
                                          zero ? "none" : (given.per_query ? "query" : "token"),
                                          p["tau_init"].get<double>(), p["tau_end"].get<double>()));
    Driver driver(info, spec, shape_of(c), logits_of(c));
    compare_visible(c, driver, "ref_visible_next");
  }
}

TEST_CASE("scissorhands-refcompat shows each row of the prompt what the published code shows it") {
  for (const Case& c : cases_named("scissorhands_official_")) {
    const auto& p = c.json["parameters"];
    Driver driver(spec_of(fmt::format("scissorhands-refcompat:start={}:history={}:recent={}",
                                      p["start_compress_length"].get<int>(), p["lru_window"].get<int>(),
                                      p["position_window"].get<int>())),
                  shape_of(c), logits_of(c));
    for (std::uint32_t t = 0; t < driver.shape().prompt; ++t) {
      driver.row(t);
      for (std::uint32_t h = 0; h < driver.shape().query_heads; ++h) {
        INFO(c.name << " row " << t << " head " << h);
        CHECK(driver.read(h) == expected_row(c, "visible", h, t));  // [heads, rows, keys]
      }
    }
  }
}

TEST_CASE("keyformer without noise keeps the reference's sets at every step") { compare_cases("keyformer_n64_zero"); }

TEST_CASE("keyformer keeps the reference's sets when the reference's noise is given, per token and per query") {
  PolicyInfo info = policy_info("keyformer");
  info.make = [](const PolicySpec& spec, const PolicyContext& context) {
    return make_keyformer(spec, context, given_noise);
  };
  for (const Case& c : cases_named("keyformer_")) {
    const auto& p = c.json["parameters"];
    if (p["noise"] == "zero") continue;
    given = {c.floats("noise"), c.size("q", 1), p["noise"] == "per_query"};
    const auto spec = spec_of(fmt::format("keyformer:budget={}:recent={}:noise={}:tau={}..{}", p["budget"].get<int>(),
                                          p["recent"].get<int>(), given.per_query ? "query" : "token",
                                          p["tau_init"].get<double>(), p["tau_end"].get<double>()));
    Driver driver(info, spec, shape_of(c), logits_of(c));
    compare(c, driver, "kept_steps");
  }
}

TEST_CASE("scissorhands keeps the reference's sets for both readings, both thresholds and both prompt modes") {
  compare_cases("scissorhands_");
}

TEST_CASE("policies that score by k, v and q, or find layers lazy, keep the reference's sets of every layer and head") {
  for (auto prefix : {"kvpress_knorm", "kvpress_chunk_knorm", "kvpress_keydiff", "kvpress_block_keydiff",
                      "kvpress_cur", "kvpress_lagkv", "kvpress_expected", "kvpress_simlayerkv", "kvpress_adakv",
                      "kvpress_capkv", "kvpress_finch", "kvpress_qfilters"}) {
    compare_model_cases(prefix);
  }
}

TEST_CASE("scores of a file keep the sets of KVzipPress, whose heads share a layer's budget or the model's") {
  for (const Case& c : cases_named("kvzip_")) {
    PolicySpec spec = spec_of(c.json["kvroof"]["policy"].get<std::string>());
    Shape shape = {.query_heads = c.size("scores", 1), .kv_heads = c.size("scores", 1), .prompt = c.size("scores", 2)};
    shape.layers = c.size("scores", 0);
    const TokenScores scores{shape.layers, shape.kv_heads, {{0, c.floats("scores")}}};
    spec.token_scores = std::make_shared<TokenScores>(scores);
    for (shape.layer = 0; shape.layer < shape.layers; ++shape.layer) {
      Driver driver(spec, shape, [](auto, auto, auto) { return 0.0F; });
      driver.prompt();
      check_all_heads(c, driver, "kept", shape.layer, shape.kv_heads);
    }
  }
}

TEST_CASE("leverage, non-causal and compactor keep the reference's sets, without a sketch and with the reference's") {
  for (auto prefix : {"kvpress_leverage", "kvpress_non_causal", "kvpress_compactor"}) compare_model_cases(prefix);
}

TEST_CASE("entropy-gated-chunkkv keeps the reference's chunks, whole and cut, and its best tokens beside them") {
  compare_model_cases("kvpress_entropy_chunkkv");
}

TEST_CASE("vatp keeps the reference's sets with the sums of all rows and of the last ones") {
  compare_model_cases("vatp_");
}

TEST_CASE("cake keeps the reference's sets where layers have even budgets") { compare_model_cases("cake_"); }

TEST_CASE("chunkkv keeps the chunks of the reference, the same in every head of a layer") {
  compare_model_cases("kvpress_chunkkv");
  compare_cases("chunkkv_");
}

TEST_CASE("criticalkv keeps the reference's sets, whichever policy scores first, with even and adaptive capacities") {
  compare_model_cases("kvpress_criticalkv");
}

TEST_CASE("tova, snapkv, pyramidkv and adakv keep the reference's sets, layer by layer and head by head") {
  for (const char* prefix : {"tova_", "snapkv_", "pyramidkv_n", "adakv_"}) compare_cases(prefix);
}

TEST_CASE("pyramidkv's layers keep as many tokens as the reference's, rounded down at every step as there") {
  const auto table = nlohmann::json::parse(std::ifstream(folder() / "pyramidkv_layer_budgets.json"));
  for (const auto& row : table["rows"]) {
    INFO(row.dump());
    PolicyContext context;
    context.prompt = row["prompt"];
    context.layers = row["layers"];
    const std::uint32_t capacity = row["capacity"];
    for (std::uint32_t layer = 0; layer < context.layers; ++layer) {
      context.layer = LayerId(layer);
      const std::uint32_t kept = pyramid_budget({row["window"], row["beta"]}, context, capacity);
      CHECK(std::min(kept, context.prompt) == row["kept_per_layer"][layer].get<std::uint32_t>());
    }
  }
}

TEST_CASE("window keeps the last tokens of the reference, sinks and window those of the reference's prompt") {
  for (const char* prefix : {"basic_", "sinks_window_"}) compare_cases(prefix);
}

TEST_CASE("streaming keeps the reference's sinks and recent tokens after every forward") {
  for (const Case& c : cases_named("streaming_after")) {
    const auto chunks = c.file.read_integers(*c.find("chunks"));
    const auto prompt = static_cast<std::uint32_t>(chunks[0]);
    const auto decode = static_cast<std::uint32_t>(chunks.size() - 1);
    Driver driver(spec_of("streaming:budget=32:sinks=4"), {.prompt = prompt, .decode = decode},
                  [](auto, auto, auto) { return 0.0F; });
    const auto steps = kept_each_step(driver);
    const auto expected = c.file.read_integers(*c.find("kept_steps"));
    const std::size_t width = expected.size() / steps.size();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      Positions row;
      for (std::size_t j = 0; j < width; ++j) {
        if (expected[i * width + j] >= 0) row.push_back(static_cast<std::uint32_t>(expected[i * width + j]));
      }
      INFO(c.name << " forward " << i);
      CHECK(steps[i] == row);
    }
  }
}

TEST_CASE("the oracle reads the reference's most attended tokens of each decode query, its own counted in") {
  for (const Case& c : cases_named("basic_")) {
    const auto budget = c.json["parameters"]["budget"].get<std::uint32_t>();
    const Shape shape = shape_of(c);
    Driver driver(spec_of(fmt::format("oracle:budget={}", budget - 1)), shape, logits_of(c));
    driver.prompt();
    for (std::uint32_t i = 0; i < shape.decode; ++i) {
      driver.row(shape.prompt + i);
      for (std::uint32_t h = 0; h < shape.query_heads; ++h) {
        INFO(c.name << " step " << i + 1 << " query head " << h);
        CHECK(driver.read(h) == expected_row(c, "oracle_steps", i, h));
      }
    }
  }
}
