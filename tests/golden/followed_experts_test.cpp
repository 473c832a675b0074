// The rule by which a back end may take other experts than the reference: between scores that nearly tie, and then
// everything after must follow from it.
#include "tests/support/followed_experts.hpp"

#include <filesystem>
#include <random>

#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::size_t kSteps = 3;
constexpr double kTolerance = 4.8e-2, kGap = 2.4e-2;  // of bf16

Model model_named(const std::string& name) {
  return load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name, DType::kBF16);
}

std::vector<std::int64_t> random_ids(const Model& model, std::size_t count, std::mt19937& random) {
  std::vector<std::int64_t> ids(count);
  for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % model.config.shape.vocab);
  return ids;
}

// A model, two prompts and the tokens after them.
struct Case {
  explicit Case(const std::string& name, std::uint32_t seed = 1) : model(model_named(name)) {
    std::mt19937 random(seed);
    prompts = {random_ids(model, 3, random), random_ids(model, 30, random)};
    fed = random_ids(model, kSteps * prompts.size(), random);
  }
  [[nodiscard]] FedRun run() const { return {model, prompts, fed}; }
  [[nodiscard]] std::size_t vocab() const { return model.config.shape.vocab; }

  Model model;
  Prompts prompts;
  std::vector<std::int64_t> fed;
};

// What another back end says of a case: the batch as it is, with operators and a router of its own.
std::vector<float> logits_of(const Case& c, std::unique_ptr<Ops> ops, RouteReviewer* router) {
  CpuBackend backend(c.model, std::move(ops), {parse_policies("full").at(0), 0, c.model.type});
  backend.set_route_reviewer(router);
  std::vector<float> all, logits(c.prompts.size() * c.vocab());
  for (std::uint32_t s = 0; s < c.prompts.size(); ++s) {
    backend.prefill(s, c.prompts[s], kSteps, {},
                    [&](std::span<const float> rows) { all.insert(all.end(), rows.begin(), rows.end()); });
  }
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<DecodeEntry> batch;
    for (std::uint32_t s = 0; s < c.prompts.size(); ++s) batch.push_back({s, c.fed[step * c.prompts.size() + s]});
    backend.decode(batch, logits);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

std::vector<float> logits_of(const Case& c) { return logits_of(c, std::make_unique<ReferenceOps>(), nullptr); }

// The reference with one choice as given.
std::vector<float> with_choice(const Case& c, const RouterPlace& place, const Experts& experts) {
  std::vector<float> logits = logits_of(c);
  const ReferenceRun run(c.run(), place.sequence, {{place, experts}});
  for (std::size_t p = 0; p < run.logits.size() / c.vocab(); ++p) {
    std::copy_n(run.logits.begin() + static_cast<std::ptrdiff_t>(p * c.vocab()), c.vocab(),
                logits.begin() + static_cast<std::ptrdiff_t>(c.run().row(place.sequence, p) * c.vocab()));
  }
  return logits;
}

std::size_t rows_apart(const Case& c, std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  float largest = 0;
  for (const float x : b) largest = std::max(largest, std::abs(x));
  std::size_t apart = 0;
  for (std::size_t at = 0; at < b.size(); at += c.vocab()) {
    float worst = 0;
    for (std::size_t i = at; i < at + c.vocab(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
    if (!(worst <= static_cast<float>(kTolerance) * largest)) ++apart;
  }
  return apart;
}

Followed follow(const Case& c, std::span<const float> got) {
  return ExpertFollower(c.run(), got, kTolerance, kGap).followed();
}

// Other choices of the long prompt's tokens in its first layer of experts, by the gaps that the rule would find.
std::vector<OtherChoice> exchanges_of(const Case& c) {
  const std::vector<ReferenceRun> own = {{c.run(), 0, {}}, {c.run(), 1, {}}};
  const std::uint32_t layer = own[0].scores.begin()->first.layer;
  double largest = 0;
  for (const ReferenceRun& run : own) {
    for (const auto& [place, scores] : run.scores) {
      if (place.layer != layer) continue;
      for (const float x : scores) largest = std::max(largest, std::abs(static_cast<double>(x)));
    }
  }
  std::vector<OtherChoice> found;
  for (std::uint32_t p = 0; p < c.prompts[1].size(); ++p) {
    for (OtherChoice& o : near_choices(own[1], {1, p, layer}, c.model.config.options.routing, INFINITY)) {
      o.gap /= largest;
      found.push_back(std::move(o));
    }
  }
  std::ranges::stable_sort(found, {}, &OtherChoice::gap);
  return found;
}

// The first that moves at least so many rows of logits beyond the tolerance.
OtherChoice first_to_move(const Case& c, const std::vector<OtherChoice>& choices, std::size_t rows) {
  const std::vector<float> own = logits_of(c);
  for (const OtherChoice& other : choices) {
    if (rows_apart(c, with_choice(c, other.place, other.experts), own) >= rows) return other;
  }
  throw std::runtime_error("no choice moves so many rows");
}
OtherChoice nearest_of(const Case& c, std::size_t rows = 1) { return first_to_move(c, exchanges_of(c), rows); }
OtherChoice widest_of(const Case& c) {
  std::vector<OtherChoice> choices = exchanges_of(c);
  std::ranges::reverse(choices);
  return first_to_move(c, choices, 1);
}

}  // namespace

TEST_CASE("A sequence of the reference by itself is what it is in a batch, to the bit") {
  const Case c("olmoe");
  const std::vector<float> batch = logits_of(c);
  const Followed followed = follow(c, batch);
  CHECK(followed.others.empty());
  CHECK(followed.logits == batch);
  CHECK(followed.apart == 0);
}

TEST_CASE("Another expert whose score nearly ties is followed, and all that comes of it") {
  for (const char* name : {"qwen3-moe", "olmoe"}) {
    INFO(name);
    const Case c(name);
    const OtherChoice other = nearest_of(c);
    REQUIRE(other.gap <= kGap);
    const std::vector<float> got = with_choice(c, other.place, other.experts);
    const Followed followed = follow(c, got);
    REQUIRE(followed.others.size() == 1);
    CHECK(followed.others[0].place == other.place);
    CHECK(followed.others[0].experts == other.experts);
    CHECK(followed.others[0].gap == other.gap);
    CHECK(followed.logits == got);
    CHECK(followed.apart == 0);
    CHECK(followed.rounded == 0);
  }
}

TEST_CASE("Another expert whose score is not near is not followed") {
  for (const char* name : {"qwen3-moe", "olmoe", "deepseek-v2-groups", "glm4_moe", "gpt_oss"}) {
    INFO(name);
    const Case c(name);
    const OtherChoice other = widest_of(c);
    REQUIRE(other.gap > kGap);
    const std::vector<float> got = with_choice(c, other.place, other.experts);
    const Followed followed = follow(c, got);
    CHECK(rows_apart(c, got, followed.logits) > 0);
    CHECK(followed.apart > 0);
  }
}

TEST_CASE("A row that no choice of experts makes is not excused by scores that nearly tie") {
  const Case c("qwen3-moe");
  const OtherChoice other = nearest_of(c);
  std::vector<float> got = logits_of(c);
  const std::size_t row = c.run().row(other.place.sequence, other.place.position);
  for (std::size_t i = 0; i < c.vocab(); ++i) got[row * c.vocab() + i] *= 0.7F;
  const Followed followed = follow(c, got);
  CHECK(followed.others.empty());
  CHECK(followed.apart == 1);
  CHECK(followed.rounded == 0);
  got = logits_of(c);
  got[row * c.vocab()] = NAN;
  CHECK(follow(c, got).apart == 1);
}

TEST_CASE("Later rows must follow from the choice that explains an earlier one") {
  const Case c("qwen3-moe");
  const OtherChoice other = nearest_of(c, 2);
  const std::vector<float> own = logits_of(c);
  std::vector<float> got = with_choice(c, other.place, other.experts);
  const std::size_t after = rows_apart(c, got, own);
  // The later rows are those of the reference's own choice: what its token left in the cache was not another's.
  for (std::size_t p = other.place.position + 1; p < c.prompts[1].size() + kSteps; ++p) {
    const auto at = static_cast<std::ptrdiff_t>(c.run().row(1, p) * c.vocab());
    std::copy_n(own.begin() + at, c.vocab(), got.begin() + at);
  }
  CHECK(follow(c, got).apart == after - 1);
}

TEST_CASE("A back end that rounds vectors takes other experts where scores nearly tie, and is explained by them") {
  std::size_t moved = 0;
  for (const char* name : {"qwen3-moe", "olmoe", "mixtral", "qwen2-moe", "deepseek-v2", "deepseek-v2-groups",
                           "deepseek_v3", "glm4_moe", "gpt_oss"}) {
    for (std::uint32_t seed = 1; seed <= 4; ++seed) {
      INFO(name << ", seed " << seed);
      const Case c(name, seed);
      const std::vector<float> got = logits_of(c, std::make_unique<RoundedOps>(DType::kBF16), nullptr);
      moved += rows_apart(c, got, logits_of(c));
      CHECK(follow(c, got).apart == 0);
    }
  }
  CHECK(moved > 0);
}

TEST_CASE("Weights that are not those of the experts taken are found") {
  struct WrongWeights final : RouteReviewer {
    void review(std::uint32_t, std::size_t, std::span<const float>, std::span<Route> chosen) override {
      std::swap(chosen.front().weight, chosen.back().weight);
    }
  } wrong;
  const Case c("qwen3-moe");
  const std::vector<float> got = logits_of(c, std::make_unique<ReferenceOps>(), &wrong);
  CHECK(follow(c, got).apart > 0);
}

TEST_CASE("A row beyond the tolerance is explained by rounding alone as far as rounding moves it") {
  // The reference with rounded vectors is held to a tolerance that many of its rows miss, and then to rows that are
  // three times as far from the reference as those.
  const Case c("olmoe");
  const std::vector<float> own = logits_of(c);
  std::vector<float> got = logits_of(c, std::make_unique<RoundedOps>(DType::kBF16), nullptr);
  const auto explained = [&] { return ExpertFollower(c.run(), got, 1e-3, 0).followed(); };
  const Followed rounded = explained();
  CHECK(rounded.rounded > 20);
  CHECK(rounded.apart == 0);
  for (std::size_t i = 0; i < got.size(); ++i) got[i] = own[i] + 3 * (got[i] - own[i]);
  CHECK(explained().apart > 20);
}
