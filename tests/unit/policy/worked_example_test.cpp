// The 20-token example: x[t][j] = 2·sin(0.7·t + 1.3·j) + cos(0.11·j·t) + (4 if j = 13), prompt 0 … 11, decode 12 … 19.
#include <cmath>

#include "sim/policy/noise.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

float example_logit(std::uint32_t, std::uint32_t t, std::uint32_t j) {
  return static_cast<float>(2 * std::sin(0.7 * t + 1.3 * j) + std::cos(0.11 * j * t) + (j == 13 ? 4 : 0));
}

constexpr Shape kShape = {.prompt = 12, .decode = 8};

std::vector<Positions> run(std::string_view policy) {
  Driver driver(spec_of(policy), kShape, example_logit);
  return kept_each_step(driver);
}

// ζ_j = −ln(−ln u_j) with u_j = (((37·j + 11) mod 101) + 0.5) / 101.
void example_noise(NoiseKey, std::span<const TokenPos> positions, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double u = (((37 * positions[i].value + 11) % 101) + 0.5) / 101;
    out[i] = static_cast<float>(-std::log(-std::log(u)));
  }
}

std::vector<Positions> run_with_noise(std::string_view policy) {
  PolicyInfo info = policy_info("keyformer");
  info.make = [](const PolicySpec& spec, const PolicyContext& context) {
    return make_keyformer(spec, context, example_noise);
  };
  Driver driver(info, spec_of(policy), kShape, example_logit);
  return kept_each_step(driver);
}

// What each decoded query sees under the masks of Keyformer's published code, its own token included.
std::vector<Positions> seen_by_refcompat(std::string_view noise) {
  PolicyInfo info = policy_info("keyformer-refcompat");
  if (noise != "none") {
    info.make = [](const PolicySpec& spec, const PolicyContext& context) {
      return make_keyformer_refcompat(spec, context, example_noise);
    };
  }
  const auto spec = spec_of(fmt::format("keyformer-refcompat:budget=6:recent=2:noise={}:tau=1..2", noise));
  Driver driver(info, spec, kShape, example_logit);
  driver.prompt();
  std::vector<Positions> seen;
  for (std::uint32_t t = 12; t < 20; ++t) {
    driver.row(t);
    seen.push_back(driver.read(0));
  }
  return seen;
}

const std::vector<Positions> kH2o = {
    {0, 1, 3, 9, 10, 11},   {0, 1, 3, 10, 11, 12},  {0, 1, 3, 11, 12, 13},
    {0, 1, 3, 12, 13, 14},  {0, 1, 3, 13, 14, 15},  {0, 1, 13, 14, 15, 16},
    {0, 1, 13, 15, 16, 17}, {0, 1, 13, 16, 17, 18}, {0, 1, 13, 17, 18, 19},
};

}  // namespace

TEST_CASE("keyformer without noise keeps the sets of the 20-token example at every step") {
  CHECK(run("keyformer:budget=6:recent=2:noise=none:tau=1..2") == std::vector<Positions>{{0, 1, 3, 7, 10, 11},
                                                                                         {0, 1, 3, 7, 11, 12},
                                                                                         {0, 1, 3, 7, 12, 13},
                                                                                         {0, 1, 3, 7, 13, 14},
                                                                                         {0, 1, 3, 13, 14, 15},
                                                                                         {0, 1, 3, 13, 15, 16},
                                                                                         {0, 1, 3, 13, 16, 17},
                                                                                         {0, 1, 3, 13, 17, 18},
                                                                                         {0, 1, 3, 13, 18, 19}});
}

TEST_CASE("keyformer with one given draw a token keeps the sets of the 20-token example at every step") {
  CHECK(run_with_noise("keyformer:budget=6:recent=2:noise=token:tau=1..2") ==
        std::vector<Positions>{{0, 1, 2, 5, 10, 11},
                               {0, 1, 2, 5, 11, 12},
                               {0, 1, 2, 5, 12, 13},
                               {0, 1, 2, 5, 13, 14},
                               {0, 2, 5, 13, 14, 15},
                               {0, 2, 5, 13, 15, 16},
                               {0, 2, 5, 13, 16, 17},
                               {0, 2, 5, 13, 17, 18},
                               {0, 2, 5, 13, 18, 19}});
}

TEST_CASE("the masks of keyformer's code lose token 13 of the 20-token example: their key tokens never change") {
  const auto plain = seen_by_refcompat("none");
  const auto noisy = seen_by_refcompat("token");
  for (std::uint32_t i = 0; i < 8; ++i) {
    const std::uint32_t t = 12 + i;
    CHECK(plain[i] == Positions{0, 1, 3, 7, t - 1, t});
    CHECK(noisy[i] == Positions{0, 1, 2, 5, t - 1, t});
  }
}

TEST_CASE("keyformer without noise at temperature 1 equals h2o with the same recent part") {
  CHECK(run("keyformer:budget=6:recent=3:noise=none:tau=1..1") == kH2o);
}

TEST_CASE("scissorhands drops the tokens of the 20-token example, token by token from the first") {
  for (const char* reading : {"A", "B"}) {
    Driver driver(
        spec_of(fmt::format("scissorhands:budget=8:history=4:recent=2:drop=3:reading={}:prompt=stream", reading)),
        {.prompt = 20}, example_logit);
    const std::vector<std::pair<std::uint32_t, Positions>> expected = {
        {8, {0, 1, 5}}, {11, {3, 4, 8}}, {14, {2, 6, 7}}, {17, {9, 10, 11}}};
    std::vector<std::pair<std::uint32_t, Positions>> dropped;
    for (std::uint32_t t = 0; t < 20; ++t) {
      driver.row(t);
      Positions gone;
      for (const TokenPos p : driver.policy().eviction(HeadId(0)).evicted) gone.push_back(p.value);
      if (!gone.empty()) dropped.emplace_back(t, gone);
    }
    INFO("reading " << reading);
    CHECK(dropped == expected);
    CHECK(driver.kept(0) == Positions{12, 13, 14, 15, 16, 17, 18, 19});
  }
}

TEST_CASE("window and streaming keep the last tokens and the first ones in the 20-token example") {
  const auto window = run("window:budget=6");
  const auto streaming = run("streaming:budget=6:sinks=2");
  for (std::uint32_t i = 0; i <= 8; ++i) {
    const std::uint32_t t = 11 + i;
    CHECK(window[i] == Positions{t - 5, t - 4, t - 3, t - 2, t - 1, t});
    CHECK(streaming[i] == Positions{0, 1, t - 3, t - 2, t - 1, t});
  }
}

TEST_CASE("h2o keeps the sets of the 20-token example at every step") { CHECK(run("h2o:budget=6:recent=3") == kH2o); }

TEST_CASE("tova keeps the sets of the 20-token example, where the newest token may go at once") {
  CHECK(run("tova:budget=6") == std::vector<Positions>{{0, 1, 5, 6, 9, 10},
                                                       {0, 1, 5, 6, 9, 10},
                                                       {0, 1, 5, 9, 10, 13},
                                                       {0, 1, 5, 9, 13, 14},
                                                       {0, 1, 9, 13, 14, 15},
                                                       {0, 1, 13, 14, 15, 16},
                                                       {0, 1, 13, 15, 16, 17},
                                                       {0, 1, 13, 15, 16, 17},
                                                       {0, 1, 13, 15, 16, 19}});
}

TEST_CASE("snapkv keeps the sets of the 20-token example's prompt") {
  CHECK(run("snapkv:budget=6:window=2:kernel=3").front() == Positions{0, 1, 5, 6, 10, 11});
  CHECK(run("snapkv:budget=8:window=3:kernel=5").front() == Positions{2, 4, 5, 6, 7, 9, 10, 11});
}
