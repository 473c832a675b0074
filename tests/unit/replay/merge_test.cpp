// d2o in a replay: k and v of evicted tokens live on in those that they were merged into.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "sim/replay/own_rows.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

using Row = std::vector<double>;

constexpr std::uint32_t kPrompt = 12, kTokens = 30, kBudget = 6, kRecent = 3, kWidth = 8;

Row row_of(std::span<const float> x) { return {x.begin(), x.end()}; }
double dot(const Row& a, const Row& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }
double cosine(const Row& a, const Row& b) { return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b)); }

// The method for one head, step by step in double.
class Merging {
 public:
  Merging(const Qkv& x, double threshold, bool adaptive) : x_(x), threshold_(threshold), adaptive_(adaptive) {}

  void admit(std::uint32_t token) {
    held_.push_back(token);
    k_[token] = row_of(x_.k_row(0, 0, token));
    v_[token] = row_of(x_.v_row(0, 0, token));
    scores_[token] = 0;
  }

  // What the query of the newest token reads, and the scores that this makes.
  Row attend(std::uint32_t query) {
    Row weights;
    for (const std::uint32_t token : held_) {
      weights.push_back(std::exp(dot(row_of(x_.q_row(0, 0, query)), k_[token]) / std::sqrt(double{kWidth})));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    Row out(kWidth);
    for (std::size_t i = 0; i < held_.size(); ++i) {
      scores_[held_[i]] += weights[i] / sum;
      for (std::uint32_t c = 0; c < kWidth; ++c) out[c] += weights[i] / sum * v_[held_[i]][c];
    }
    return out;
  }

  void evict() {
    const std::uint32_t newest = held_.back();
    std::vector<std::uint32_t> victims;
    while (held_.size() > kBudget) {
      const auto lowest = std::ranges::min_element(held_, {}, [&](std::uint32_t token) {
        return token + kRecent > newest ? 1e300 : scores_[token];
      });
      victims.push_back(*lowest);
      held_.erase(lowest);
    }
    std::ranges::sort(victims);
    std::vector<std::pair<std::uint32_t, double>> nearest;
    double mean = 0;
    for (const std::uint32_t victim : victims) {
      const auto to = *std::ranges::max_element(held_, {}, [&](std::uint32_t t) { return cosine(k_[victim], k_[t]); });
      nearest.emplace_back(to, cosine(k_[victim], k_[to]));
      mean += nearest.back().second / static_cast<double>(victims.size());
    }
    if (adaptive_) threshold_ = started_ ? 0.7 * mean + 0.3 * threshold_ : mean;
    started_ = true;
    for (const std::uint32_t token : held_) {
      double sum = std::exp(1.0);
      for (const auto& [to, similarity] : nearest) {
        sum += to == token && similarity >= threshold_ ? std::exp(similarity) : 0;
      }
      Row k = k_[token];
      Row v = v_[token];
      for (std::uint32_t c = 0; c < kWidth; ++c) {
        k[c] *= std::exp(1.0) / sum;
        v[c] *= std::exp(1.0) / sum;
        for (std::size_t i = 0; i < victims.size(); ++i) {
          if (nearest[i].first != token || nearest[i].second < threshold_) continue;
          k[c] += std::exp(nearest[i].second) / sum * k_[victims[i]][c];
          v[c] += std::exp(nearest[i].second) / sum * v_[victims[i]][c];
        }
      }
      merges_ += sum > std::exp(1.0) ? 1 : 0;
      k_[token] = k;
      v_[token] = v;
    }
  }

  [[nodiscard]] const std::vector<std::uint32_t>& held() const { return held_; }
  [[nodiscard]] int merges() const { return merges_; }

 private:
  const Qkv& x_;
  double threshold_;
  bool adaptive_, started_ = false;
  int merges_ = 0;
  std::vector<std::uint32_t> held_;  // ascending
  std::map<std::uint32_t, Row> k_, v_;
  std::map<std::uint32_t, double> scores_;
};

struct Seen final : ReplayObserver {
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& s) override {
    auto& set = sets[s.step.value];
    set.clear();
    for (const TokenPos p : s.positions) set.push_back(p.value);
  }
  void quality(const QualityValue& v) override { errors[v.step.value] = v.quality.output_error; }
  std::map<std::uint32_t, std::vector<std::uint32_t>> sets;
  std::map<std::uint32_t, double> errors;
};

Qkv tensors() {
  Qkv shape;
  shape.heads = shape.kv_heads = 1;
  shape.tokens = kTokens;
  shape.d = kWidth;
  return random_qkv(shape, 5, 1.3);
}

Seen replayed(const Qkv& x, const std::string& policy) {
  TraceOptions options;
  options.prompt = kPrompt;
  const TemporaryFolder folder;
  write_trace(folder.path() / "x.kvt", x, options);
  ThreadPool pool(1);
  Seen seen;
  ReplayOptions replay_options;
  replay_options.observer = &seen;
  (void)replay(TraceReader::open(folder.path() / "x.kvt"), parse_policies(policy), replay_options, pool);
  return seen;
}

Row full_output(const Qkv& x, std::uint32_t query) {
  Row out(kWidth);
  double sum = 0;
  for (std::uint32_t j = 0; j <= query; ++j) {
    const double w = std::exp(dot(row_of(x.q_row(0, 0, query)), row_of(x.k_row(0, 0, j))) / std::sqrt(double{kWidth}));
    sum += w;
    for (std::uint32_t c = 0; c < kWidth; ++c) out[c] += w * static_cast<double>(x.v_row(0, 0, j)[c]);
  }
  for (double& value : out) value /= sum;
  return out;
}

}  // namespace

TEST_CASE("d2o keeps and puts out what its method in double does: merged rows are scored, compared and merged again") {
  const Qkv x = tensors();
  for (const char* threshold : {"adaptive", "0", "0.5"}) {
    INFO("threshold " << threshold);
    const bool adaptive = std::string_view(threshold) == "adaptive";
    Merging expected(x, adaptive ? 0 : std::stod(threshold), adaptive);
    const Seen seen = replayed(x, fmt::format("d2o:budget={}:recent={}:threshold={}", kBudget, kRecent, threshold));
    for (std::uint32_t query = 0; query < kTokens; ++query) {
      expected.admit(query);
      const Row out = expected.attend(query);
      if (query + 1 >= kPrompt) expected.evict();
      if (query + 1 < kPrompt) continue;
      const std::uint32_t step = query + 1 - kPrompt;
      CHECK(seen.sets.at(step) == expected.held());
      if (step == 0) continue;
      const Row full = full_output(x, query);
      double difference = 0;
      for (std::uint32_t c = 0; c < kWidth; ++c) difference += (out[c] - full[c]) * (out[c] - full[c]);
      CHECK(seen.errors.at(step) == Approx(std::sqrt(difference / dot(full, full))).margin(1e-4));
    }
    CHECK(expected.merges() > 3);
  }
}

TEST_CASE("d2o that merges nothing is h2o, in its sets and in its outputs") {
  const Qkv x = tensors();
  const Seen merged = replayed(x, "d2o:budget=6:threshold=1");
  const Seen evicted = replayed(x, "h2o:budget=6");
  CHECK(merged.sets == evicted.sets);
  for (const auto& [step, error] : evicted.errors) CHECK(merged.errors.at(step) == Approx(error).margin(1e-5));
}
