// Kept sets of the policies against reference cases. KVROOF_GOLDEN_POLICIES=DIR compares another folder of such cases.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/noise.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

struct Case {
  std::string name;
  nlohmann::json json;
  SafetensorsFile file;

  [[nodiscard]] const TensorInfo* find(std::string_view tensor) const { return file.header().find(tensor); }
  [[nodiscard]] std::vector<float> floats(std::string_view tensor) const { return file.read_floats(*find(tensor)); }
  [[nodiscard]] std::uint32_t size(std::string_view tensor, std::size_t dimension) const {
    return static_cast<std::uint32_t>(find(tensor)->shape[dimension]);
  }
};

std::filesystem::path folder() {
  const char* other = std::getenv("KVROOF_GOLDEN_POLICIES");
  return other != nullptr ? other : KVROOF_SOURCE_DIR "/tests/golden/policies";
}

std::vector<Case> cases_named(std::string_view prefix) {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".json" || !name.starts_with(prefix)) continue;
    auto json = nlohmann::json::parse(std::ifstream(entry.path()));
    auto path = entry.path();
    path.replace_extension(".safetensors");
    if (std::filesystem::exists(path)) {
      cases.push_back({name, std::move(json), SafetensorsFile::open(path).or_throw(path.string())});
    }
  }
  std::ranges::sort(cases, {}, &Case::name);
  REQUIRE(!cases.empty());
  return cases;
}

// q and k of some heads: [heads][tokens][d].
struct QueriesAndKeys {
  std::uint32_t query_heads, kv_heads, tokens, d;
  std::vector<float> q, k;
};

// All logits: [query heads][queries][keys up to the query], scale 1 / √d.
LogitFunction logits_of(const QueriesAndKeys& x) {
  const std::uint32_t n = x.tokens;
  const std::uint32_t group = x.query_heads / x.kv_heads;
  std::vector<float> logits(std::size_t{x.query_heads} * n * n);
  for (std::uint32_t h = 0; h < x.query_heads; ++h) {
    const auto* keys = reinterpret_cast<const std::byte*>(x.k.data() + std::size_t{h / group} * n * x.d);
    for (std::uint32_t t = 0; t < n; ++t) {
      const std::size_t row = (std::size_t{h} * n + t);
      compute_logits(std::span(x.q).subspan(row * x.d, x.d), {keys, DType::kF32, x.d, x.d, t + 1},
                     {.scale = 1 / std::sqrt(static_cast<float>(x.d))}, std::span(logits).subspan(row * n, t + 1));
    }
  }
  return [logits = std::move(logits), n](std::uint32_t h, std::uint32_t t, std::uint32_t j) {
    return logits[(std::size_t{h} * n + t) * n + j];
  };
}

LogitFunction logits_of(const Case& c) {
  return logits_of({c.size("q", 0), c.size("k", 0), c.size("q", 1), c.size("q", 2), c.floats("q"), c.floats("k")});
}

Shape shape_of(const Case& c) {
  const auto prompt = c.json["shape"]["prompt"].get<std::uint32_t>();
  const std::uint32_t decode = c.size("q", 1) - prompt;
  return {.query_heads = c.size("q", 0), .kv_heads = c.size("k", 0), .prompt = prompt, .decode = decode};
}

// Row `row` of a tensor [rows, heads, …] of positions padded with −1, or of a 0/1 mask over positions.
Positions expected_row(const Case& c, const std::string& tensor, std::uint32_t row, std::uint32_t head) {
  const TensorInfo& info = *c.find(tensor);
  const auto values = c.file.read_integers(info);
  const bool single = info.shape.size() == 2;  // [heads, kept]
  const auto heads = static_cast<std::uint32_t>(info.shape[single ? 0 : 1]);
  const auto width = static_cast<std::size_t>(info.shape.back());
  const std::size_t begin = (std::size_t{single ? 0 : row} * heads + (heads == 1 ? 0 : head)) * width;
  Positions positions;
  for (std::size_t i = 0; i < width; ++i) {
    const std::int64_t value = values[begin + i];
    if (tensor.find("mask") != std::string::npos || tensor.find("visible") != std::string::npos) {
      if (value != 0) positions.push_back(static_cast<std::uint32_t>(i));
    } else if (value >= 0) {
      positions.push_back(static_cast<std::uint32_t>(value));
    }
  }
  return positions;
}

void check_all_heads(const Case& c, const Driver& driver, const std::string& tensor, std::uint32_t row,
                     std::uint32_t heads) {
  for (std::uint32_t h = 0; h < heads; ++h) {
    INFO(c.name << " row " << row << " head " << h);
    CHECK(driver.kept(h) == expected_row(c, tensor, row, h));
  }
}

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
      Driver driver(spec_of(how["policy"].get<std::string>()), shape,
                    logits_of({shape.query_heads, shape.kv_heads, shape.prompt, shape.width, q, k}),
                    DriverRows(q, k, layer_of(base, "v", layer), shape.query_heads, shape.kv_heads, shape.prompt,
                               shape.prompt));
      driver.prompt();
      check_all_heads(c, driver, how["compare"].get<std::string>(), layer, shape.kv_heads);
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
                      "kvpress_cur", "kvpress_lagkv", "kvpress_expected", "kvpress_simlayerkv", "kvpress_adakv"}) {
    compare_model_cases(prefix);
  }
}

TEST_CASE("chunkkv keeps the chunks of the reference, the same in every head of a layer") {
  compare_model_cases("kvpress_chunkkv");
  compare_cases("chunkkv_");
}

TEST_CASE("criticalkv keeps the reference's sets, whichever policy scores first, with even and adaptive capacities") {
  compare_model_cases("kvpress_criticalkv");
}

TEST_CASE("r-kv keeps the reference's sets call after call, in the reference's order of storage") {
  for (const Case& c : cases_named("rkv_")) {
    const auto& p = c.json["parameters"];
    const auto lengths = c.file.read_integers(*c.find("lengths"));
    const auto interval = p["interval"].get<std::uint32_t>();
    const Shape shape = {.query_heads = c.size("q", 0),
                         .kv_heads = c.size("k", 0),
                         .prompt = static_cast<std::uint32_t>(lengths.front()),
                         .decode = static_cast<std::uint32_t>(lengths.back() - lengths.front()),
                         .width = c.size("q", 2)};
    Driver driver(spec_of(fmt::format("r-kv:budget={}:window={}:kernel={}:lambda={}:when={}", p["budget"].get<int>(),
                                      p["window"].get<int>(), p["kernel"].get<int>(), p["mix_lambda"].get<double>(),
                                      interval)),
                  shape, logits_of(c),
                  DriverRows(c.floats("q"), c.floats("k"), c.floats("v"), shape.query_heads, shape.kv_heads,
                             c.size("q", 1), shape.prompt));
    driver.prompt();
    for (std::uint32_t call = 0; call < lengths.size(); ++call) {
      for (std::uint32_t i = 0; call > 0 && i < interval; ++i) {
        driver.row(shape.prompt + (call - 1) * interval + i);
      }
      check_all_heads(c, driver, "kept_steps", call, shape.kv_heads);
    }
  }
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
