// Reference cases of policies: NAME.json and NAME.safetensors. KVROOF_GOLDEN_POLICIES=DIR compares another folder.
#pragma once

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"
#include "traces/safetensors.hpp"

namespace kvroof::test {

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

inline std::filesystem::path folder() {
  const char* other = std::getenv("KVROOF_GOLDEN_POLICIES");
  return other != nullptr ? other : KVROOF_SOURCE_DIR "/tests/golden/policies";
}

inline std::vector<Case> cases_named(std::string_view prefix) {
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
inline LogitFunction logits_of(const QueriesAndKeys& x) {
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

inline LogitFunction logits_of(const Case& c) {
  return logits_of({c.size("q", 0), c.size("k", 0), c.size("q", 1), c.size("q", 2), c.floats("q"), c.floats("k")});
}

inline Shape shape_of(const Case& c) {
  const auto prompt = c.json["shape"]["prompt"].get<std::uint32_t>();
  const std::uint32_t decode = c.size("q", 1) - prompt;
  return {.query_heads = c.size("q", 0), .kv_heads = c.size("k", 0), .prompt = prompt, .decode = decode};
}

// Row `row` of a tensor [rows, heads, …] of positions padded with −1, or of a 0/1 mask over positions.
inline Positions expected_row(const Case& c, const std::string& tensor, std::uint32_t row, std::uint32_t head) {
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

inline void check_all_heads(const Case& c, const Driver& driver, const std::string& tensor, std::uint32_t row,
                     std::uint32_t heads) {
  for (std::uint32_t h = 0; h < heads; ++h) {
    INFO(c.name << " row " << row << " head " << h);
    CHECK(driver.kept(h) == expected_row(c, tensor, row, h));
  }
}

}  // namespace kvroof::test
