#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

struct Options {
  explicit Options(const PolicySpec& spec)
      : page(spec.count("page", 16, 1)),
        window(window_rule(spec, {.kernel = 7}).window),
        kernel(window_rule(spec, {.kernel = 7}).kernel) {}

  std::uint32_t page, window, kernel;
};

// The metric of a token is the squared attention that rows paid to it, summed over the query heads of its group and
// over rows: the prompt's last ones, then every decoded one. Its lowest tokens leave a head in lots, each of which
// empties a page of memory once the others have moved together; the lots of all heads of a layer compete.
class KvCompress final : public EvictionPolicy {
 public:
  KvCompress(const PolicySpec& spec, const PolicyContext& context)
      : options_(spec), context_(context), heads_(context.storage_heads) {}

  void admit(HeadId head, SlotId slot, TokenPos) override { heads_[head.value].metrics.admit(slot); }

  void observe(HeadId head, const AttentionRows& rows) override {
    Head& h = heads_[head.value];
    h.positions.assign(rows.positions.begin(), rows.positions.end());
    const std::span<float> metrics = h.metrics.column(0, rows.slots());
    for (std::uint32_t g = 0; g < rows.group; ++g) {
      const std::span<const float> weights = rows.weights_of(g);
      for (std::size_t s = 0; s < metrics.size(); ++s) metrics[s] += weights[s] * weights[s];
    }
    h.walked += 2 * metrics.size_bytes();
    if (rows.query.value + 1 == context_.prompt) pool(h, rows.query);
  }

  void capacities(TokenPos newest, std::uint32_t budget, std::span<std::uint32_t> slots) override {
    std::uint64_t held = 0;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      slots[h] = static_cast<std::uint32_t>(heads_[h].positions.size());
      held += slots[h];
    }
    const std::uint64_t target = std::uint64_t{budget} * heads_.size();
    if (held <= target) return;
    lots_.clear();
    for (std::uint32_t h = 0; h < heads_.size(); ++h) list_lots(h, newest);
    std::ranges::sort(lots_, [](const Lot& a, const Lot& b) {
      if (a.metric != b.metric) return a.metric < b.metric;
      return a.number != b.number ? a.number < b.number : a.head < b.head;
    });
    for (auto lot = lots_.begin(); lot != lots_.end() && held > target; ++lot) {
      slots[lot->head] -= lot->tokens;
      held -= lot->tokens;
    }
  }

  void evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) override {
    Head& h = heads_[head.value];
    const std::span<float> metrics = h.metrics.column(0, static_cast<std::uint32_t>(request.positions.size()));
    lowest(metrics, {request.positions, request.newest, options_.window}, request.excess, victims);
    h.walked += metrics.size_bytes();
  }

  [[nodiscard]] double score_gap(HeadId head, SlotId a, SlotId b) const override {
    const Head& h = heads_[head.value];
    return relative_gap(h.metrics.at(0, a), h.metrics.at(0, b));
  }

  void move(HeadId head, std::span<const SlotMove> moves) override {
    Head& h = heads_[head.value];
    h.metrics.move(moves);
    h.walked += moves.size() * 2 * h.metrics.bytes_per_slot();
  }

  [[nodiscard]] std::uint64_t walked_state_bytes(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    SlotColumns<float> metrics{1};
    std::uint64_t walked = 0;
    std::vector<TokenPos> positions;  // by slot, at the last row
  };
  struct Lot {
    std::uint32_t head, number, tokens;
    float metric;  // the largest of its tokens'
  };

  // Each metric of a token older than the window becomes the largest of its neighbours'.
  void pool(Head& head, TokenPos newest) {
    std::vector<SlotId> by_age;
    slots_by_age(head.positions, by_age);
    const Candidates candidates{head.positions, newest, options_.window};
    std::vector<float> metrics;
    for (const SlotId slot : by_age) {
      if (candidates.has(slot.value)) metrics.push_back(head.metrics.at(0, slot));
    }
    const std::size_t reach = options_.kernel / 2;
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      const std::size_t first = i < reach ? 0 : i - reach;
      const std::span<const float> near =
          std::span(metrics).subspan(first, std::min(metrics.size(), i + reach + 1) - first);
      head.metrics.at(0, by_age[i]) = *std::ranges::max_element(near);
    }
  }

  // Tokens older than the window, the lowest metric and of equals the oldest first: as many as lie in the head's last
  // page, then pages.
  void list_lots(std::uint32_t h, TokenPos newest) {
    Head& head = heads_[h];
    const Candidates candidates{head.positions, newest, options_.window};
    ascending_.clear();
    for (std::uint32_t s = 0; s < head.positions.size(); ++s) {
      if (candidates.has(s)) ascending_.emplace_back(head.metrics.at(0, SlotId(s)), head.positions[s].value);
    }
    std::ranges::sort(ascending_);
    const auto in_last = static_cast<std::uint32_t>(head.positions.size() % options_.page);
    std::uint32_t tokens = in_last > 0 ? in_last : options_.page;
    std::uint32_t number = 0;
    for (std::size_t end = tokens; end <= ascending_.size(); end += options_.page) {
      lots_.push_back({h, number++, tokens, ascending_[end - 1].first});
      tokens = options_.page;
    }
  }

  Options options_;
  PolicyContext context_;
  std::vector<Head> heads_;
  std::vector<Lot> lots_;
  std::vector<std::pair<float, std::uint32_t>> ascending_;  // metric and position
};

PolicyTraits traits(const PolicySpec& spec) {
  const Options options(spec);
  PolicyTraits t;
  t.rows = RowNeed::kLast;
  t.last_rows = options.window;
  t.needs_weights = true;
  t.evict_unit = options.page;
  read_schedule(spec, t);
  t.capacities = Capacities::kByHead;
  t.state_bytes = t.state_read = t.state_written = t.evict_read = sizeof(float);
  t.flops_per_slot = 2;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"page", "tokens", "16", "tokens that leave a head together, so that a page of memory is free"},
    {"window", "tokens", "32", "the prompt's last rows, which score the others; so many of the newest tokens stay"},
    {"kernel", "odd count", "7", "neighbours over which the prompt's metrics take their maximum"},
    kWhenParam,
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  const std::uint32_t window = Options(spec).window;
  if (k >= window) return {};
  return fmt::format("the {} newest tokens of a head stay, so that heads hold more than a budget of {}; window= takes "
                     "fewer", window, k);
}

}  // namespace

extern const PolicyInfo kKvCompressPolicy;
constinit const PolicyInfo kKvCompressPolicy = {
    .name = "kv-compress",
    .summary = "Frees pages of memory in whichever heads of a layer the tokens with the least squared attention fill "
               "them: k is the mean of the heads.",
    .source = "KV-Compress: Rehg, 2024; its rule within a layer",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<KvCompress>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
