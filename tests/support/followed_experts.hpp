// The reference back end under the choices of experts that another back end made.
//
// Where a token scores two experts nearly alike, rounding decides which it takes, and its logits are then others, as
// are those of later tokens that attend to it. Such rows need no excuse: the reference is run again with the two
// experts exchanged, and the row must be what that makes of it. Everything after it is held to the same choice. How far
// rounding moves a row whose experts stay is found likewise: by the reference with rounded vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "tests/support/recorded_run.hpp"

namespace kvroof::test {

// Prompts, and the tokens [steps, prompts] that are fed to them afterwards as a batch. Rows of logits are those of all
// tokens of all prompts, then those of each step.
struct FedRun {
  const Model& model;
  const Prompts& prompts;
  std::span<const std::int64_t> fed;

  [[nodiscard]] std::size_t steps() const { return fed.size() / prompts.size(); }
  [[nodiscard]] std::size_t row(std::size_t sequence, std::size_t position) const {
    const std::size_t tokens = prompts[sequence].size();
    std::size_t first = 0;
    for (std::size_t s = 0; s < (position < tokens ? sequence : prompts.size()); ++s) first += prompts[s].size();
    return position < tokens ? first + position : first + (position - tokens) * prompts.size() + sequence;
  }
};

// A token and a layer.
struct RouterPlace {
  std::uint32_t sequence = 0, position = 0, layer = 0;
  auto operator<=>(const RouterPlace&) const = default;
};

using Experts = std::vector<std::uint32_t>;  // ascending
using ExpertChoices = std::map<RouterPlace, Experts>;

// The reference with vectors rounded before each product, as tensor cores take them: to nearest, or with a seed at
// random to one of the neighbours, which shows another of the results that rounding might have.
class RoundedOps final : public ReferenceOps {
 public:
  explicit RoundedOps(DType type, std::optional<std::uint32_t> seed = {})
      : type_(type), at_random_(seed.has_value()), random_(seed.value_or(0)) {}
  void linear(std::span<const float> x, const Weight& w, const Weight* bias, std::span<float> out) override {
    ReferenceOps::linear(rounded(x), w, bias, out);
  }
  void linear_heads(std::span<const float> x, const Weight& w, std::uint32_t heads, std::span<float> out) override {
    ReferenceOps::linear_heads(rounded(x), w, heads, out);
  }

 private:
  std::span<const float> rounded(std::span<const float> x) {
    const int digits = type_ == DType::kBF16 ? 8 : 11;
    values_.assign(x.begin(), x.end());
    bytes_.resize(x.size() * size_of(type_));
    for (std::size_t i = 0; at_random_ && i < x.size(); ++i) {
      int exponent = 0;
      std::frexp(x[i], &exponent);
      const double share = static_cast<double>(random_()) / 0x1p32 - 0.5;  // of the distance between neighbours
      values_[i] += static_cast<float>(std::ldexp(share, exponent - digits));
    }
    convert_from_float(type_, values_, bytes_.data());
    convert_to_float(type_, bytes_.data(), values_);
    return values_;
  }

  DType type_;
  bool at_random_;
  std::mt19937 random_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

// One sequence on the reference: choices that are given are made, all others are its own.
class ReferenceRun final : private RouteReviewer {
 public:
  ReferenceRun(const FedRun& run, std::uint32_t sequence, ExpertChoices given,
               std::unique_ptr<Ops> ops = std::make_unique<ReferenceOps>())
      : choices(std::move(given)), model(&run.model), routing_(&run.model.config.options.routing), sequence_(sequence) {
    const PolicySpec full = parse_policies("full").at(0);
    CpuBackend backend(run.model, std::move(ops), {full, 0, run.model.type});
    backend.set_route_reviewer(this);
    const std::size_t vocab = run.model.config.shape.vocab;
    backend.prefill(sequence, run.prompts[sequence], static_cast<std::uint32_t>(run.steps()), {},
                    [&](std::span<const float> rows) { logits.insert(logits.end(), rows.begin(), rows.end()); });
    std::vector<float> row(vocab);
    for (std::size_t step = 0; step < run.steps(); ++step) {
      first_ = static_cast<std::uint32_t>(run.prompts[sequence].size() + step);
      const DecodeEntry entry{sequence, run.fed[step * run.prompts.size() + sequence]};
      backend.decode({&entry, 1}, row);
      logits.insert(logits.end(), row.begin(), row.end());
    }
  }

  ExpertChoices choices;                             // that were given
  const Model* model;
  std::vector<float> logits;                         // [positions, vocab]
  std::map<RouterPlace, std::vector<float>> scores;  // router logits
  ExpertChoices taken;

 private:
  void review(std::uint32_t layer, std::size_t row, std::span<const float> scored, std::span<Route> chosen) override {
    const RouterPlace place{sequence_, first_ + static_cast<std::uint32_t>(row), layer};
    if (const auto given = choices.find(place); given != choices.end()) {
      for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i].expert = given->second[i];
      router_.weigh(scored, *routing_, chosen);
    }
    scores[place].assign(scored.begin(), scored.end());
    for (const Route& route : chosen) taken[place].push_back(route.expert);
    std::ranges::sort(taken[place]);
  }

  const RoutingRule* routing_;
  Router router_;
  std::uint32_t sequence_;
  std::uint32_t first_ = 0;  // position of the first row of the pass
};

// Another choice than the reference's own; `gap` lies between the scores of the two experts that were exchanged,
// relative to the largest score of the layer.
struct OtherChoice {
  RouterPlace place;
  Experts experts;
  double gap = 0;
};

// A router's choice after two experts, or two groups that are ranked by sums, changed places: of experts without a bias
// their logits do; else another bias makes it so.
class Exchange {
 public:
  Exchange(std::span<const float> logits, const RoutingRule& rule, std::span<const float> bias)
      : logits_(logits.begin(), logits.end()), rule_(rule), bias_(bias.begin(), bias.end()) {}

  // Calls body(gap) for each pair, with its choice in `chosen`: how far one of the logits must move at least. The slope
  // of a sigmoid is a quarter at most, and a sum has two of them.
  template <class Body>
  void for_pairs(std::span<Route> chosen, const Body& body) {
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      for (std::size_t j = i + 1; j < logits_.size(); ++j) {
        if (bias_.empty()) {
          std::swap(logits_[i], logits_[j]);
          router_.route(logits_, rule_, chosen);
          std::swap(logits_[i], logits_[j]);
          body(std::abs(static_cast<double>(logits_[i]) - static_cast<double>(logits_[j])));
        } else {
          exchange(i, i + 1, j, j + 1, rank(j) - rank(i), chosen);
          body(4 * std::abs(static_cast<double>(rank(i)) - static_cast<double>(rank(j))));
        }
      }
    }
    if (rule_.group_best < 2) return;
    const std::size_t size = logits_.size() / rule_.groups;
    for (std::size_t g = 0; g < rule_.groups; ++g) {
      for (std::size_t h = g + 1; h < rule_.groups; ++h) {
        const float apart = group_rank(h, size) - group_rank(g, size);
        exchange(g * size, (g + 1) * size, h * size, (h + 1) * size, apart / 2, chosen);
        body(2 * std::abs(static_cast<double>(apart)));
      }
    }
  }

 private:
  [[nodiscard]] float rank(std::size_t i) const { return 1.0F / (1.0F + std::exp(-logits_[i])) + bias_[i]; }
  [[nodiscard]] float group_rank(std::size_t group, std::size_t size) const {
    float best = -INFINITY, second = -INFINITY;
    for (std::size_t i = group * size; i < (group + 1) * size; ++i) {
      second = std::max(second, std::min(best, rank(i)));
      best = std::max(best, rank(i));
    }
    return best + second;
  }
  // The choice if experts [first, end) ranked `by` higher, and [other_first, other_end) as much lower.
  void exchange(std::size_t first, std::size_t end, std::size_t other_first, std::size_t other_end, float by,
                std::span<Route> chosen) {
    std::vector<float> bias = bias_;
    for (std::size_t i = first; i < end; ++i) bias[i] += by;
    for (std::size_t i = other_first; i < other_end; ++i) bias[i] -= by;
    router_.route(logits_, rule_, chosen, bias);
  }

  std::vector<float> logits_;
  const RoutingRule& rule_;
  std::vector<float> bias_;
  Router router_;
};

// The choices that a router would make if two scores that are at most `most` apart were exchanged. Where experts
// compete in groups, other groups may win by it.
inline std::vector<OtherChoice> near_choices(const ReferenceRun& run, const RouterPlace& place,
                                             const RoutingRule& rule, double most) {
  std::vector<OtherChoice> near;
  Exchange exchange(run.scores.at(place), rule, router_bias_of(run.model->weights.layers[place.layer].experts));
  const Experts& own = run.taken.at(place);
  std::vector<Route> chosen(own.size());
  exchange.for_pairs(chosen, [&](double gap) {
    if (!(gap <= most)) return;
    OtherChoice other{place, {}, gap};
    for (const Route& route : chosen) other.experts.push_back(route.expert);
    std::ranges::sort(other.experts);
    const auto same = std::ranges::find(near, other.experts, &OtherChoice::experts);
    if (other.experts == own || (same != near.end() && same->gap <= gap)) return;
    if (same != near.end()) near.erase(same);
    near.push_back(std::move(other));
  });
  return near;
}

struct Followed {
  std::vector<float> logits;       // of the reference, rows as of FedRun
  std::vector<OtherChoice> others;
  std::size_t apart = 0;    // rows that nothing explains
  std::size_t rounded = 0;  // rows beyond the tolerance that rounding moves as far
};

// Follows the choices of the back end whose logits are `got`, rows as of FedRun. A row that is more than `tolerance`
// from the reference's is run with other choices of its own token, of scores at most `gap` apart; both are relative to
// the largest number, of all logits and of a layer's scores. The choice that comes nearest is followed if the row is
// then within the tolerance, or no farther than kRoundings times what rounding moves it while all experts stay: to
// nearest, or at random (root mean square).
class ExpertFollower {
 public:
  ExpertFollower(FedRun run, std::span<const float> got, double tolerance, double gap)
      : run_(run), got_(got), gap_(gap) {
    std::vector<ReferenceRun> own;
    double largest = 0;
    for (std::uint32_t s = 0; s < run.prompts.size(); ++s) {
      own.emplace_back(run, s, ExpertChoices{});
      for (const float x : own[s].logits) largest = std::max(largest, std::abs(static_cast<double>(x)));
      for (const auto& [place, scores] : own[s].scores) {
        for (const float x : scores) largest_[place.layer] = std::max(largest_[place.layer], std::abs(double{x}));
      }
    }
    allowed_ = tolerance * largest;
    followed_.logits.resize(got.size());
    for (std::uint32_t s = 0; s < own.size(); ++s) follow(std::move(own[s]), s);
  }
  [[nodiscard]] const Followed& followed() const { return followed_; }

 private:
  struct Variant {
    ReferenceRun run;
    std::vector<OtherChoice> others;  // of the row in question
  };
  static constexpr std::size_t kMostVariants = 256;  // of a row, so that a wrong back end fails in time
  static constexpr double kRoundings = 2;
  static constexpr std::uint32_t kDraws = 16;

  void follow(ReferenceRun run, std::uint32_t sequence) {
    const std::size_t vocab = run_.model.config.shape.vocab;
    const auto positions = static_cast<std::uint32_t>(run.logits.size() / vocab);
    for (std::uint32_t p = 0; p < positions; ++p) {
      if (distance(run, sequence, p) <= allowed_) continue;
      Variant best = nearest(run, sequence, p);
      const double apart = distance(best.run, sequence, p);
      const bool within = apart <= allowed_;
      if (!within && !(std::isfinite(apart) && apart <= kRoundings * rounding(best.run, sequence, p))) {
        ++followed_.apart;
        continue;
      }
      if (!within) ++followed_.rounded;
      followed_.others.insert(followed_.others.end(), best.others.begin(), best.others.end());
      run = std::move(best.run);
    }
    for (std::uint32_t p = 0; p < positions; ++p) {
      std::copy_n(run.logits.begin() + static_cast<std::ptrdiff_t>(p * vocab), vocab,
                  followed_.logits.begin() + static_cast<std::ptrdiff_t>(run_.row(sequence, p) * vocab));
    }
  }

  // Of the runs with any near choices of a token in any of its layers, the one that comes nearest to its row.
  [[nodiscard]] Variant nearest(const ReferenceRun& run, std::uint32_t sequence, std::uint32_t position) const {
    std::vector<Variant> variants{{run, {}}};
    for (const auto& [layer, largest] : largest_) {
      const RouterPlace place{sequence, position, layer};
      for (std::size_t v = 0, before = variants.size(); v < before; ++v) {
        for (OtherChoice& other :
             near_choices(variants[v].run, place, run_.model.config.options.routing, gap_ * largest)) {
          if (variants.size() == kMostVariants) break;
          ExpertChoices choices = variants[v].run.choices;
          choices[place] = other.experts;
          other.gap /= largest;
          std::vector<OtherChoice> others = variants[v].others;
          others.push_back(std::move(other));
          variants.push_back({ReferenceRun(run_, sequence, std::move(choices)), std::move(others)});
        }
      }
    }
    return std::move(*std::ranges::min_element(
        variants, {}, [&](const Variant& v) { return distance(v.run, sequence, position); }));
  }

  // How far a row moves when vectors are rounded and every token keeps its experts.
  [[nodiscard]] double rounding(const ReferenceRun& run, std::uint32_t sequence, std::uint32_t position) const {
    const auto moved = [&](std::optional<std::uint32_t> seed) {
      const ReferenceRun other(run_, sequence, run.taken, std::make_unique<RoundedOps>(run_.model.type, seed));
      return distance(row_of(other, position), row_of(run, position));
    };
    double squares = 0;
    for (std::uint32_t seed = 0; seed < kDraws; ++seed) squares += std::pow(moved(seed), 2) / kDraws;
    return std::max(moved({}), std::sqrt(squares));
  }

  [[nodiscard]] std::span<const float> row_of(const ReferenceRun& run, std::uint32_t position) const {
    const std::size_t vocab = run_.model.config.shape.vocab;
    return std::span(run.logits).subspan(position * vocab, vocab);
  }
  [[nodiscard]] double distance(const ReferenceRun& run, std::uint32_t sequence, std::uint32_t position) const {
    const std::span<const float> row = row_of(run, position);
    return distance(got_.subspan(run_.row(sequence, position) * row.size(), row.size()), row);
  }
  static double distance(std::span<const float> a, std::span<const float> b) {
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      worst = std::max(worst, std::isfinite(apart) ? apart : std::numeric_limits<double>::infinity());
    }
    return worst;
  }

  FedRun run_;
  std::span<const float> got_;
  double gap_;
  double allowed_ = 0;                       // between two logits
  std::map<std::uint32_t, double> largest_;  // score of each layer with experts
  Followed followed_;
};

}  // namespace kvroof::test
