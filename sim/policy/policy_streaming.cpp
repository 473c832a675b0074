#include <algorithm>
#include <limits>

#include "sim/core/text.hpp"
#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultSinks = 4;

// How a prompt comes: at once, token by token, or in chunks of these lengths, the last of which repeats.
struct Feed {
  explicit Feed(const PolicySpec& spec) {
    const std::string_view text = spec.find("prompt").value_or("once");
    streams = text != "once";
    if (!streams || text == "stream") return;
    for (const std::string_view word : split(text, '/')) {
      const std::uint32_t length = parse_number<std::uint32_t>(word).value_or(0);
      if (length == 0) {
        throw usage_error(fmt::format(
            "policy streaming: prompt=`{}`: expected once, stream, or lengths of chunks in tokens, as in 16 or 100/16",
            shown(text)));
      }
      chunks.push_back(length);
    }
  }

  bool streams = false;
  std::vector<std::uint32_t> chunks;  // empty: no room is made before tokens come
};

// With a budget that is only known when the prompt is, the newest token stays and the sinks give way.
class Streaming final : public StatelessPolicy {
 public:
  Streaming(const PolicySpec& spec, const PolicyContext& context)
      : sinks_(spec.count("sinks", kDefaultSinks)),
        prompt_(context.prompt),
        budget_(spec.budget),
        chunks_(Feed(spec).chunks) {
    if (!chunks_.empty()) chunk_end_ = chunks_.front();
  }

  // In chunks of a prompt: after the last row of one there is to be room for the next, before that nothing goes.
  void capacities(TokenPos newest, std::uint32_t, std::span<std::uint32_t> slots) override {
    const std::uint32_t tokens = newest.value + 1;
    making_room_ = !chunks_.empty() && tokens < prompt_;
    if (!making_room_) return;
    if (tokens < chunk_end_) {
      std::ranges::fill(slots, std::numeric_limits<std::uint32_t>::max());
      return;
    }
    chunk_ = std::min(chunk_ + 1, chunks_.size() - 1);
    const std::uint32_t coming = std::min(chunks_[chunk_], prompt_ - tokens);
    chunk_end_ = tokens + coming;
    // A budget that follows the length is that of the chunk's last token.
    const std::uint32_t grown = budget_.tokens(prompt_, chunk_end_) - budget_.tokens(prompt_, tokens);
    for (std::uint32_t& slot : slots) {
      const std::uint32_t k = slot + grown;
      slot = k > coming + sinks_ ? k - coming : std::min(k, sinks_);
    }
  }

  void evict(HeadId, const EvictRequest& request, std::vector<SlotId>& victims) override {
    evict_oldest(request, std::min(sinks_, making_room_ ? request.budget : request.budget - 1), victims);
  }

 private:
  std::uint32_t sinks_, prompt_;
  Budget budget_;
  std::vector<std::uint32_t> chunks_;
  std::size_t chunk_ = 0;        // the one that is coming in
  std::uint32_t chunk_end_ = 0;  // tokens when it is in
  bool making_room_ = false;
};

PolicyTraits traits(const PolicySpec& spec) {
  const std::uint32_t sinks = spec.count("sinks", kDefaultSinks);
  if (spec.budget.kind == Budget::Kind::kTokens && spec.budget.value <= sinks) {
    throw usage_error(fmt::format("policy streaming: a budget of {} leaves no recent token beside {} sinks",
                                  spec.budget.describe(), sinks))
        .note("raise the budget or lower sinks");
  }
  const Feed feed(spec);
  PolicyTraits t;
  read_schedule(spec, t);
  read_layers(spec, t);
  t.streams_prompt = feed.streams;
  if (!feed.chunks.empty()) t.capacities = Capacities::kByLayer;
  t.needs.add(HostNeed::kSlotPositions, reads_slot_positions(spec));
  return t;
}

constexpr ParamInfo kParams[] = {
    {"sinks", "tokens", "4",
     "first tokens that always stay; a budget too small for them keeps the newest and fewer sinks"},
    kPositionsParam,
    {"prompt", "once | stream | 16/8", "once",
     "evict after the whole prompt, after each of its tokens, or before chunks of so many tokens, the last length "
     "repeating: room is made for each"},
    kWhenParam,
    kLayersParam,
};

}  // namespace

extern const PolicyInfo kStreamingPolicy;
constinit const PolicyInfo kStreamingPolicy = {
    .name = "streaming",
    .summary = "Keeps the first tokens (attention sinks) and the most recent ones.",
    .source = "StreamingLLM: Xiao et al., ICLR 2024",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Streaming>(spec, context);
    },
    .recipe =
        [](const PolicySpec& spec) {
          return ScoreRecipe{.complete = Feed(spec).chunks.empty(), .sinks = spec.count("sinks", kDefaultSinks)};
        },
};

}  // namespace kvroof
