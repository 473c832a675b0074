#include <algorithm>

#include "sim/policy/page_bounds.hpp"
#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {
namespace {

struct Options {
  explicit Options(const PolicySpec& spec)
      : page(spec.count("page", 16, 1)),
        dense(spec.count("dense", 2)),
        repository(spec.choice("rule", {"paper", "repository"}, "paper") == "repository"),
        current(yes_or_no(spec, "current", !repository)) {}

  // How many pages a query reads of the `tokens` tokens that it sees under a budget of k.
  [[nodiscard]] std::uint32_t pages_read(std::uint32_t k, std::uint32_t tokens) const {
    if (repository) return std::max(3U, std::min(k, tokens) / page);
    return k >= tokens ? tokens : std::max(1U, k / page);
  }

  std::uint32_t page, dense;
  bool repository;
  bool current;
};

// Keeps all tokens. A query reads the pages whose keys may have the largest product with it.
class Quest final : public StatelessPolicy {
 public:
  Quest(const PolicySpec& spec, const PolicyContext& context)
      : options_(spec),
        budget_(spec.budget),
        context_(context),
        heads_(context.storage_heads, Head(PageBounds(options_.page, context.head_dim))) {}

  void add_keys(HeadId head, std::span<const TokenPos> positions, HeadTensors& tensors) override {
    Head& h = heads_[head.value];
    std::vector<SlotId>& fresh = h.fresh;
    fresh.clear();
    for (std::uint32_t s = 0; s < positions.size(); ++s) {
      if (positions[s].value >= h.tokens) fresh.emplace_back(s);
    }
    std::ranges::sort(fresh, {}, [&](SlotId slot) { return positions[slot.value]; });
    h.bounds.drop_before(h.bounds.page_of(*std::ranges::min_element(positions)));
    tensors.read_keys(fresh, h.keys);
    const std::size_t width = context_.head_dim;
    std::uint32_t written = 0;
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      const TokenPos position = positions[fresh[i].value];
      written += i == 0 || h.bounds.page_of(position) == h.bounds.end() ? 1 : 0;
      h.bounds.add(position, std::span(h.keys).subspan(i * width, width));
      h.tokens = position.value + 1;
    }
    h.walked += std::uint64_t{written} * 2 * width;
    tensors.count_flops(2.0 * static_cast<double>(h.keys.size()));
  }

  void select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read) override {
    if (rows.step.value == 0 || context_.layer.value < options_.dense) {
      return EvictionPolicy::select(head, g, rows, read);
    }
    Head& h = heads_[head.value];
    if (g == 0) h.walked += std::uint64_t{h.bounds.pages()} * 2 * context_.head_dim;
    const std::uint32_t k = budget_.tokens(context_.prompt, rows.query.value + 1);
    choose_pages(h, h.bounds.products({rows.queries + std::size_t{g} * context_.head_dim, context_.head_dim}),
                 options_.pages_read(k, rows.slots()));
    for (std::uint32_t s = 0; s < rows.slots(); ++s) {
      if (h.is_chosen[h.bounds.page_of(rows.positions[s]) - h.bounds.first()] != 0) read.emplace_back(s);
    }
  }

  void evict(HeadId, const EvictRequest&, std::vector<SlotId>&) override {
    check(false, "quest is never asked to evict");
  }

  [[nodiscard]] std::uint64_t walked_page_elements(HeadId head) const override { return heads_[head.value].walked; }

 private:
  struct Head {
    explicit Head(PageBounds empty) : bounds(std::move(empty)) {}
    PageBounds bounds;
    std::uint32_t tokens = 0;   // whose keys joined
    std::uint64_t walked = 0;
    // Of one call.
    std::vector<SlotId> fresh;
    std::vector<float> keys;
    std::vector<std::uint32_t> order;
    std::vector<std::uint8_t> is_chosen;  // by page
  };

  // The `count` best pages, of equals the youngest; the page of the newest token before all others where it always is
  // one of them.
  void choose_pages(Head& head, std::span<const float> scores, std::uint32_t count) const {
    const auto pages = static_cast<std::uint32_t>(scores.size());
    head.order.resize(pages);
    for (std::uint32_t p = 0; p < pages; ++p) head.order[p] = p;
    const auto better = [&](std::uint32_t a, std::uint32_t b) {
      if (options_.current && (a + 1 == pages) != (b + 1 == pages)) return a + 1 == pages;
      return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
    };
    const std::uint32_t chosen = std::min(count, pages);
    std::ranges::nth_element(head.order, head.order.begin() + chosen, better);
    head.is_chosen.resize(pages);
    std::ranges::fill(head.is_chosen, std::uint8_t{0});
    for (std::uint32_t i = 0; i < chosen; ++i) head.is_chosen[head.order[i]] = 1;
  }

  Options options_;
  Budget budget_;
  PolicyContext context_;
  std::vector<Head> heads_;
};

PolicyTraits traits(const PolicySpec& spec) {
  const Options options(spec);
  PolicyTraits t;
  t.selects = true;
  t.page = options.page;
  t.dense_layers = options.dense;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"page", "tokens", "16", "neighbours that are read together"},
    {"dense", "layers | 0", "2", "first layers, in which every token is read"},
    {"rule", "paper | repository", "paper",
     "how many pages: k / page, or max(3, min(k, length) / page) as the code that measures accuracy has it"},
    {"current", "yes | no", "yes",
     "the page of the newest token is always one of them, no: it competes; with rule=repository no", true},
};

}  // namespace

extern const PolicyInfo kQuestPolicy;
constinit const PolicyInfo kQuestPolicy = {
    .name = "quest",
    .summary = "Evicts nothing and reads, for each query, the k tokens in the pages whose keys may match it best.",
    .source = "Quest: Tang et al., ICML 2024; as its kernels or its code for accuracy read",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Quest>(spec, context);
    },
};

}  // namespace kvroof
