// Pages that quest reads against the published code for accuracy. KVROOF_GOLDEN_POLICIES=DIR compares other such cases.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/policy/page_bounds.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::filesystem::path folder() {
  const char* other = std::getenv("KVROOF_GOLDEN_POLICIES");
  return other != nullptr ? other : KVROOF_SOURCE_DIR "/tests/golden/policies";
}

struct Case {
  nlohmann::json json;
  SafetensorsFile file;

  [[nodiscard]] std::vector<float> floats(std::string_view name) const {
    return file.read_floats(*file.header().find(name));
  }
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name) const {
    return file.read_integers(*file.header().find(name));
  }
};

// The case's queries are those of decoded tokens alone; those of the prompt are not read and are zero here.
DriverRows rows_of(const Case& c, const Shape& shape) {
  const std::uint32_t tokens = shape.prompt + shape.decode;
  const std::vector<float> decoded = c.floats("q");
  std::vector<float> queries(std::size_t{shape.query_heads} * tokens * shape.width);
  for (std::size_t h = 0; h < shape.query_heads; ++h) {
    const auto from = decoded.begin() + static_cast<std::ptrdiff_t>(h * shape.decode * shape.width);
    std::copy_n(from, shape.decode * shape.width,
                queries.begin() + static_cast<std::ptrdiff_t>((h * tokens + shape.prompt) * shape.width));
  }
  std::vector<float> keys = c.floats("k");
  return {std::move(queries), keys, keys, shape.query_heads, shape.kv_heads, tokens, shape.prompt};
}

// The bounds of every page for query i, to 1e-4 of the largest.
void check_scores(std::span<const float> scores, const Case& c, const Shape& shape, std::uint32_t page,
                  std::uint32_t i) {
  const std::vector<float> keys = c.floats("k");
  const std::vector<float> queries = c.floats("q");
  const std::uint32_t tokens = shape.prompt + shape.decode;
  const std::size_t pages = scores.size() / shape.decode / shape.query_heads;
  for (std::size_t h = 0; h < shape.query_heads; ++h) {
    const std::size_t kv_head = h / (shape.query_heads / shape.kv_heads);
    PageBounds bounds(page, shape.width);
    for (std::uint32_t t = 0; t <= shape.prompt + i; ++t) {
      bounds.add(TokenPos(t), std::span(keys).subspan((kv_head * tokens + t) * shape.width, shape.width));
    }
    const auto query = std::span(queries).subspan((h * shape.decode + i) * shape.width, shape.width);
    const auto products = bounds.products(query);
    const std::span<const float> expected = scores.subspan((i * shape.query_heads + h) * pages, products.size());
    const float largest = *std::ranges::max_element(expected);
    for (std::size_t p = 0; p < products.size(); ++p) CHECK(std::fabs(products[p] - expected[p]) <= 1e-4F * largest);
  }
}

void compare(const Case& c) {
  const auto& sizes = c.json["shape"];
  const auto& parameters = c.json["parameters"];
  const Shape shape = {.query_heads = sizes["heads"],
                       .kv_heads = sizes["kv_heads"],
                       .prompt = sizes["cached_before_first_query"],
                       .decode = sizes["queries"],
                       .width = sizes["d"]};
  const PolicySpec spec = spec_of(fmt::format("quest:budget={}:page={}:rule=repository:dense=0",
                                              parameters["token_budget"].get<int>(), parameters["page"].get<int>()));
  Driver driver(spec, shape, [](auto, auto, auto) { return 0.0F; }, rows_of(c, shape));
  const auto page = parameters["page"].get<std::uint32_t>();
  const std::vector<std::int64_t> selected = c.integers("selected_pages");
  const std::size_t width = selected.size() / shape.decode / shape.query_heads;
  const std::vector<float> scores = c.floats("page_scores");
  driver.prompt();
  for (std::uint32_t i = 0; i < shape.decode; ++i) {
    const std::uint32_t position = shape.prompt + i;
    driver.row(position);
    check_scores(scores, c, shape, page, i);
    for (std::uint32_t h = 0; h < shape.query_heads; ++h) {
      INFO("query " << i << " head " << h);
      Positions expected;
      for (std::size_t p = 0; p < width; ++p) {
        const std::int64_t number = selected[(std::size_t{i} * shape.query_heads + h) * width + p];
        if (number < 0) continue;
        const auto first = static_cast<std::uint32_t>(number) * page;
        for (std::uint32_t t = first; t < std::min(first + page, position + 1); ++t) expected.push_back(t);
      }
      CHECK(driver.read(h) == expected);
    }
  }
}

}  // namespace

TEST_CASE("quest reads the pages that the published code for accuracy selects, for every query and head") {
  std::size_t cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    auto path = entry.path();
    if (path.extension() != ".json" || !path.stem().string().starts_with("quest_")) continue;
    INFO(path.stem().string());
    auto json = nlohmann::json::parse(std::ifstream(path));
    path.replace_extension(".safetensors");
    compare({std::move(json), SafetensorsFile::open(path).or_throw(path.string())});
    ++cases;
  }
  CHECK(cases > 0);
}
