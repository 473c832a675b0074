#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/attention/sums.hpp"
#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

// Keys more alike than this make the older ones redundant.
constexpr double kSimilar = 0.5;
// No score is as large: the tokens of the window stay.
constexpr float kInWindow = 2;

struct Options {
  explicit Options(const PolicySpec& spec)
      : window(remembered_rows(spec, "window", 8)),
        kernel(spec.count("kernel", 7, 1)),
        lambda(spec.number("lambda", 0.07, 0, 1)),
        interval(spec.count("when", 128, 1)) {
    if (kernel % 2 == 0) {
      throw usage_error(fmt::format("policy r-kv: kernel={}: expected an odd number, which has a middle", kernel));
    }
  }

  std::uint32_t window;
  std::uint32_t kernel;
  double lambda;
  std::uint32_t interval;
};

// score = λ · attention − (1 − λ) · redundancy, of the tokens outside the window:
//   attention: softmax over these tokens of the group's largest logit, mean over the last rows, maximum over neighbours
//   redundancy: softmax over all tokens of the mean cosine with the other keys, where each key forgets the last one
//               that is like it
// Neighbours and "last" mean the order in which the published code stores the cache: what stayed at the last eviction,
// by falling score, then the window, then what came since. `rank` keeps that order.
class Rkv final : public EvictionPolicy {
 public:
  Rkv(const Options& options, const PolicyContext& context)
      : options_(options), heads_(context.storage_heads, Head(options.window)) {}

  void admit(HeadId head, SlotId slot, TokenPos) override {
    Head& h = heads_[head.value];
    h.logits.admit(slot);
    h.rank.admit(slot);
    h.rank.at(0, slot) = h.next_rank++;
  }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    const std::span<float> row = h.logits.column(rows.query.value % options_.window, rows.slots());
    std::ranges::copy(rows.logits_of(0), row.begin());
    for (std::uint32_t g = 1; g < rows.group; ++g) {
      const std::span<const float> other = rows.logits_of(g);
      for (std::size_t s = 0; s < row.size(); ++s) row[s] = std::max(row[s], other[s]);
    }
    h.walked += row.size_bytes();
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const auto slots = static_cast<std::uint32_t>(request.positions.size());
    const std::uint32_t window = std::min(options_.window, request.budget);
    storage_order(h, slots);
    const std::size_t scored = slots - window;
    if (scored == 0) return;  // a full head that is all window keeps the order it has
    find_attention(h, request.newest, scored);
    find_redundancy(*request.tensors);
    scores_.assign(slots, kInWindow);
    for (std::size_t i = 0; i < scored; ++i) {
      scores_[order_[i].value] =
          static_cast<float>(options_.lambda * attention_[i] - (1 - options_.lambda) * redundancy_[i]);
    }
    h.scores.assign(scores_.begin(), scores_.end());
    lowest(scores_, {request.positions, request.newest, window}, request.excess, victims);
    rank_by_score(h, scored);
    h.walked += slots * (options_.window * sizeof(float) + sizeof(std::uint32_t));
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const std::vector<float>& scores = heads_[head.value].scores;
    return relative_gap(scores[a.value], scores[b.value]);
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.logits.move(moves);
    h.rank.move(moves);
    h.walked += 2 * moves.size() * (h.logits.bytes_per_slot() + h.rank.bytes_per_slot());
  }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    explicit Head(std::uint32_t window) : logits(window), rank(1) {}
    SlotColumns<float> logits;  // of row t in column t mod window: the largest of the group
    SlotColumns<std::uint32_t> rank;
    std::uint32_t next_rank = 0;
    std::vector<float> scores;  // of the last eviction, by slot
    std::uint64_t walked = 0;
  };

  void storage_order(const Head& h, std::uint32_t slots) {
    order_.clear();
    for (std::uint32_t s = 0; s < slots; ++s) order_.emplace_back(s);
    std::ranges::sort(order_, {}, [&](SlotId s) { return h.rank.at(0, s); });
  }

  // Of the first `scored` tokens in storage order; the rows are those of the other tokens.
  void find_attention(const Head& h, TokenPos newest, std::size_t scored) {
    const std::size_t rows = order_.size() - scored;
    row_.resize(scored);
    pooled_.assign(scored, 0.0);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto column = static_cast<std::uint32_t>((newest.value - r) % options_.window);
      for (std::size_t i = 0; i < scored; ++i) row_[i] = h.logits.at(column, order_[i]);
      softmax(row_, row_);
      for (std::size_t i = 0; i < scored; ++i) pooled_[i] += static_cast<double>(row_[i]) / static_cast<double>(rows);
    }
    const std::size_t reach = options_.kernel / 2;
    attention_.resize(scored);
    for (std::size_t i = 0; i < scored; ++i) {
      const auto first = pooled_.begin() + static_cast<std::ptrdiff_t>(i < reach ? 0 : i - reach);
      const auto end = pooled_.begin() + static_cast<std::ptrdiff_t>(std::min(scored, i + reach + 1));
      attention_[i] = *std::max_element(first, end);
    }
  }

  void find_redundancy(HeadTensors& tensors) {
    const std::size_t n = order_.size();
    const std::size_t width = tensors.key_width();
    tensors.read_keys(order_, keys_);
    for (std::size_t i = 0; i < n; ++i) {
      const std::span<float> key = std::span(keys_).subspan(i * width, width);
      const double norm = norm_of(key) + 1e-8;
      for (float& x : key) x = static_cast<float>(static_cast<double>(x) / norm);
    }
    redundancy_.assign(n, 0.0);
    cosines_.resize(n);
    const RowsView rows{reinterpret_cast<const std::byte*>(keys_.data()), DType::kF32, width, width, n};
    for (std::size_t i = 0; i < n; ++i) {
      compute_logits(std::span(keys_).subspan(i * width, width), rows, {}, cosines_);
      cosines_[i] = 0;
      std::size_t last = n - 1;
      while (last > 0 && !(static_cast<double>(cosines_[last]) > kSimilar)) --last;
      cosines_[last] = 0;
      for (std::size_t j = 0; j < n; ++j) redundancy_[j] += static_cast<double>(cosines_[j]);
    }
    double sum = 0;
    for (double& x : redundancy_) sum += x = std::exp(x / static_cast<double>(n));
    for (double& x : redundancy_) x /= sum;
    tensors.count_flops(2.0 * static_cast<double>(n * n * width));
  }

  // As the published code stores what stays; what goes takes no part.
  void rank_by_score(Head& h, std::size_t scored) {
    const auto window = order_.begin() + static_cast<std::ptrdiff_t>(scored);
    std::sort(order_.begin(), window, [&](SlotId a, SlotId b) {
      const float x = scores_[a.value];
      const float y = scores_[b.value];
      return x != y ? x > y : h.rank.at(0, a) < h.rank.at(0, b);
    });
    ranks_.resize(order_.size());
    for (std::uint32_t i = 0; i < order_.size(); ++i) ranks_[order_[i].value] = i;
    for (std::uint32_t s = 0; s < order_.size(); ++s) h.rank.at(0, SlotId(s)) = ranks_[s];
    h.next_rank = static_cast<std::uint32_t>(order_.size());
  }

  Options options_;
  std::vector<Head> heads_;
  std::vector<SlotId> order_;  // slots in storage order
  std::vector<float> row_, keys_, cosines_, scores_;
  std::vector<double> pooled_, attention_, redundancy_;  // in that order
  std::vector<std::uint32_t> ranks_;                     // by slot
};

PolicyTraits traits(const PolicySpec& spec) {
  const Options options(spec);
  PolicyTraits t;
  t.rows = RowNeed::kLast;
  t.last_rows = options.window;
  t.tensors.keys = true;
  t.interval = options.interval;
  t.orders_full_heads = true;
  t.state_written = sizeof(float);
  t.state_bytes = t.evict_read = options.window * sizeof(float) + sizeof(std::uint32_t);
  return t;
}

constexpr ParamInfo kParams[] = {
    {"window", "tokens", "8", "the last rows, which score the others and whose tokens stay"},
    {"kernel", "odd count", "7", "neighbours over which attention takes its maximum"},
    {"lambda", "share", "0.07", "weight of attention; the rest is that of redundancy"},
    {"when", "steps", "128", "evict after the prompt and after every so many steps, which exceed the budget between"},
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  const Options options(spec);
  return full_window_advice(options.window, k, fmt::format("window:when={}", options.interval));
}

}  // namespace

extern const PolicyInfo kRkvPolicy;
constinit const PolicyInfo kRkvPolicy = {
    .name = "r-kv",
    .summary = "Keeps the last tokens, and of the others those with much attention and keys unlike the rest.",
    .source = "R-KV: Cai et al., 2025; as its code evicts",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Rkv>(Options(spec), context);
    },
    .advice = advice,
};

}  // namespace kvroof
