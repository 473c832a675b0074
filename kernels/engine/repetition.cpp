#include "kernels/engine/repetition.hpp"

#include <algorithm>
#include <utility>

#include "kernels/engine/ops.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kSinks = 4;  // first tokens that take their share of every row, wherever the part lies

using Ids = std::vector<std::int64_t>;

void append(Ids& ids, std::span<const std::int64_t> more) { ids.insert(ids.end(), more.begin(), more.end()); }

// What the rows of a repetition are scored over, in the order of positions.
struct ScoredTokens {
  std::vector<TokenPos> positions;  // of sinks, part and repetition
  std::uint32_t part = 0;           // where it begins among them
  std::uint32_t repetition = 0;

  ScoredTokens(std::uint32_t prompt, const RepeatedPart& repeated) {
    const auto add = [this](std::uint32_t from, std::uint32_t to) {
      for (std::uint32_t t = from; t < to; ++t) positions.emplace_back(t);
      return static_cast<std::uint32_t>(positions.size());
    };
    part = add(0, std::min(kSinks, repeated.from));
    repetition = add(repeated.from, repeated.to);
    add(prompt, prompt + static_cast<std::uint32_t>(repeated.ids.size()));
  }
  // positions.size() where the token is none of them.
  [[nodiscard]] std::size_t find(TokenPos position) const {
    const auto at = std::ranges::lower_bound(positions, position);
    const bool found = at != positions.end() && *at == position;
    return found ? static_cast<std::size_t>(at - positions.begin()) : positions.size();
  }
};

// Scores the tokens of a part as the layers of a pass over prompt and repetition go by.
class Scorer final : public Recorder {
 public:
  Scorer(const Model& model, DType kv, std::uint32_t prompt, const RepeatedPart& part, ThreadPool& threads)
      : shape_(model.config.shape), rules_(attention_rules(model)), kv_(kv), tokens_(prompt, part),
        last_(tokens_.positions.back()), threads_(threads),
        scores_(std::size_t{shape_.layers} * shape_.kv_heads * (part.to - part.from)),
        keys_(tokens_.positions.size() * shape_.kv_heads * shape_.head_dim),
        queries_(part.ids.size() * shape_.heads * shape_.head_dim) {}

  void rows(std::uint32_t, LayerId layer, std::uint32_t first, std::uint32_t count, std::span<const std::byte> q,
            std::span<const std::byte> k, std::span<const std::byte>) override {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::size_t at = tokens_.find(TokenPos(first + i));
      if (at == tokens_.positions.size()) continue;
      take_row(k, i, at, shape_.kv_heads, keys_);
      if (at >= tokens_.repetition) take_row(q, i, at - tokens_.repetition, shape_.heads, queries_);
    }
    if (first + count != last_.value + 1) return;
    threads_.parallel_for(shape_.kv_heads, [&](std::size_t head) { score(layer, static_cast<std::uint32_t>(head)); });
  }
  void eviction(const EvictionRecord&) override {}

  [[nodiscard]] std::vector<float> take() { return std::move(scores_); }

 private:
  void take_row(std::span<const std::byte> rows, std::size_t from, std::size_t to, std::uint32_t heads,
                std::vector<float>& floats) const {
    const std::size_t width = std::size_t{heads} * shape_.head_dim;
    convert_to_float(kv_, rows.data() + from * width * size_of(kv_), std::span(floats).subspan(to * width, width));
  }

  void score(LayerId layer, std::uint32_t head) {
    const std::uint32_t group = shape_.heads / shape_.kv_heads, part = tokens_.repetition - tokens_.part;
    const std::size_t width = shape_.head_dim;
    const AttentionRule& rule = rules_[layer.value];
    const RowsView keys{reinterpret_cast<const std::byte*>(keys_.data() + head * width), DType::kF32,
                        shape_.kv_heads * width, width, tokens_.positions.size()};
    const std::span<float> scores =
        std::span(scores_).subspan((std::size_t{layer.value} * shape_.kv_heads + head) * part, part);
    std::vector<float> row(keys.count);
    for (std::size_t seen = tokens_.repetition + 1; seen <= keys.count; ++seen) {
      const std::span<float> weights = std::span(row).first(seen);
      for (std::uint32_t h = head * group; h < (head + 1) * group; ++h) {
        const std::size_t query = (seen - 1 - tokens_.repetition) * shape_.heads + h;
        compute_logits(std::span(queries_).subspan(query * width, width), keys.slice(0, seen), rule.logits, weights);
        if (!rule.alibi.empty()) {
          add_alibi(std::span(tokens_.positions).first(seen), tokens_.positions[seen - 1], rule.alibi_of(h), weights);
        }
        softmax(weights, weights, rule.sink(h));
        for (std::uint32_t t = 0; t < part; ++t) scores[t] = std::max(scores[t], weights[tokens_.part + t]);
      }
    }
  }

  const ModelShape& shape_;
  std::vector<AttentionRule> rules_;
  DType kv_;
  ScoredTokens tokens_;
  TokenPos last_;
  ThreadPool& threads_;
  std::vector<float> scores_;   // [layers, KV heads, part]
  std::vector<float> keys_;     // of the layer at hand, [positions, KV heads, head_dim]
  std::vector<float> queries_;  // [repetition, heads, head_dim]
};

}  // namespace

std::vector<RepeatedPart> repeated_parts(std::span<const std::int64_t> prompt, const RepetitionRequest& request,
                                         std::uint32_t tokens) {
  std::vector<RepeatedPart> parts;
  const auto length = static_cast<std::uint32_t>(prompt.size());
  for (std::uint32_t from = 0; from < length; from += std::min(tokens, length - from)) {
    RepeatedPart& part = parts.emplace_back();
    part.from = from;
    part.to = from + std::min(tokens, length - from);
    append(part.ids, from == 0 ? request.first : request.again);
    if (from > 0) {
      const std::size_t shown = std::min<std::size_t>(RepetitionRequest::kShownBefore, tokens);
      append(part.ids, prompt.subspan(from - shown, shown));
    }
    append(part.ids, request.suffix);
    append(part.ids, prompt.subspan(from, part.to - from));
  }
  return parts;
}

std::vector<float> repetition_scores(Backend& full, DType kv, const Model& model, std::span<const std::int64_t> prompt,
                                     const RepeatedPart& part, ThreadPool& threads) {
  Ids ids(prompt.begin(), prompt.end());
  append(ids, part.ids);
  Scorer scorer(model, kv, static_cast<std::uint32_t>(prompt.size()), part, threads);
  full.set_recorder(&scorer);
  try {
    full.prefill(0, ids, 0, {}, {});
  } catch (...) {
    full.set_recorder(nullptr);
    throw;
  }
  full.set_recorder(nullptr);
  full.release(0);
  return scorer.take();
}

RepeatingBackend::RepeatingBackend(const Model& model, Parts parts, RepetitionRequest request, std::uint32_t tokens,
                                   unsigned threads, Sink sink)
    : model_(model), parts_(std::move(parts)), request_(std::move(request)), tokens_(tokens), threads_(threads),
      sink_(std::move(sink)) {
  const ModelShape& shape = model.config.shape;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    if (shape.window(layer) == 0) continue;
    throw usage_error(fmt::format("a model that repeats its prompt must see all of it, and layer {} of {} has a window "
                                  "of {} tokens", layer, shape.name, shape.window(layer)));
  }
  parts_.scores->layers = shape.layers;
  parts_.scores->heads = shape.kv_heads;
}

std::vector<float> RepeatingBackend::score(std::uint32_t sequence, std::span<const std::int64_t> ids) {
  const ModelShape& shape = model_.config.shape;
  const auto length = static_cast<std::uint32_t>(ids.size());
  std::vector<float> scores(std::size_t{shape.layers} * shape.kv_heads * length);
  if (!sink_ && parts_.budget.tokens(length, length) >= length) return scores;
  const std::vector<RepeatedPart> parts = repeated_parts(ids, request_, tokens_);
  for (const RepeatedPart& part : parts) {
    const std::size_t all = ids.size() + part.ids.size();
    if (all <= shape.max_positions) continue;
    throw usage_error(fmt::format("prompt {} has {} tokens, with a repetition behind it {}, but the context of the "
                                  "model is {}", sequence, ids.size(), all, shape.max_positions))
        .note("repeat=256 repeats fewer tokens of the prompt at a time");
  }
  for (const RepeatedPart& part : parts) {
    const std::vector<float> of_part = repetition_scores(*parts_.full, parts_.kv, model_, ids, part, threads_);
    const std::size_t count = part.to - part.from;
    for (std::size_t head = 0; head * count < of_part.size(); ++head) {
      std::copy_n(of_part.begin() + static_cast<std::ptrdiff_t>(head * count), count,
                  scores.begin() + static_cast<std::ptrdiff_t>(head * ids.size() + part.from));
    }
  }
  return scores;
}

void RepeatingBackend::prefill(std::uint32_t sequence, std::span<const std::int64_t> ids,
                               std::uint32_t requested_new_tokens, std::span<float> last, const LogitsSink& all) {
  std::vector<float>& scores = parts_.scores->sequences[sequence];
  try {
    scores = score(sequence, ids);
    const KvUsage held = parts_.inner->kv_usage(), passes = parts_.full->kv_usage();
    peaks_.peak_bytes = std::max(peaks_.peak_bytes, held.allocated_bytes + passes.peak_bytes);
    peaks_.peak_resident_bytes =
        std::max(peaks_.peak_resident_bytes, held.resident_bytes + passes.peak_resident_bytes);
    if (sink_) sink_(sequence, scores);
    parts_.inner->prefill(sequence, ids, requested_new_tokens, last, all);
  } catch (...) {
    parts_.scores->sequences.erase(sequence);
    throw;
  }
}

void RepeatingBackend::release(std::uint32_t sequence) {
  parts_.inner->release(sequence);
  parts_.scores->sequences.erase(sequence);
}

KvUsage RepeatingBackend::kv_usage() const {
  KvUsage usage = parts_.inner->kv_usage();
  usage.peak_bytes = std::max(usage.peak_bytes, peaks_.peak_bytes);
  usage.peak_resident_bytes = std::max(usage.peak_resident_bytes, peaks_.peak_resident_bytes);
  return usage;
}

void RepeatingBackend::set_interrupt(const std::atomic<bool>* asked) {
  parts_.full->set_interrupt(asked);
  parts_.inner->set_interrupt(asked);
}

}  // namespace kvroof
