// Drives a LayerPolicy through a sequence as an engine would: rows of attention in, kept positions out.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/gumbel.hpp"
#include "sim/policy/future_attention.hpp"
#include "sim/policy/layer_policy.hpp"
#include "sim/policy/token_scores.hpp"

namespace kvroof::test {

// The logit of query head h, query position t and key position j ≤ t.
using LogitFunction = std::function<float(std::uint32_t h, std::uint32_t t, std::uint32_t j)>;

struct Shape {
  std::uint32_t query_heads = 1;
  std::uint32_t kv_heads = 1;
  std::uint32_t prompt = 0;
  std::uint32_t decode = 0;
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  std::uint32_t window = 0;
  const RotaryRule* rotary = nullptr;  // how the tensors' q and k were turned; null: they were not
  std::uint32_t width = 8;             // of a row of k, v and q
  std::uint32_t first_head = 0;  // the tensors of query head h are those of (h + first_head) mod query_heads
  std::uint32_t layers = 1;
  std::uint32_t copies = 1;      // each KV head with its query heads comes so many times, side by side
  RowsView projection = {};      // W_O; empty: one that depends on the head
};

using Positions = std::vector<std::uint32_t>;

// Rows of k, v and q that depend on head and token alone, for policies that score by them; or those of a test.
class DriverRows final : public HeadRowsSource {
 public:
  // k and v [kv_heads, tokens, width] and q [query_heads, tokens, width]; the prompt's queries are shown.
  DriverRows(std::vector<float> q, std::vector<float> k, std::vector<float> v, std::uint32_t query_heads,
             std::uint32_t kv_heads, std::uint32_t tokens, std::uint32_t prompt)
      : k_(std::move(k)), v_(std::move(v)), query_heads_(query_heads), kv_heads_(kv_heads), tokens_(tokens),
        prompt_(prompt), width_(k_.size() / kv_heads / tokens), queries_(std::size_t{tokens} * query_heads * width_) {
    for (std::size_t h = 0; h < query_heads; ++h) {
      for (std::size_t t = 0; t < tokens; ++t) {
        std::copy_n(q.data() + (h * tokens + t) * width_, width_, queries_.data() + (t * query_heads + h) * width_);
      }
    }
  }
  static DriverRows random(const Shape& shape) {
    const std::uint32_t tokens = shape.prompt + shape.decode;
    const auto draw = [&](std::uint32_t heads, std::uint32_t first, std::uint32_t kind) {
      const std::uint32_t group = heads / shape.kv_heads;
      std::vector<float> rows;
      for (std::uint32_t h = 0; h < heads; ++h) {
        for (std::uint32_t t = 0; t < tokens; ++t) {
          for (std::uint32_t i = 0; i < shape.width; ++i) {
            const std::uint32_t head = (h / (group * shape.copies) * group + h % group + first) % heads;
            rows.push_back(uniform_draw({.seed = kind, .layer = head, .query_head = i, .position = t}) - 0.4F);
          }
        }
      }
      return rows;
    };
    const std::uint32_t first_kv = shape.first_head / (shape.query_heads / shape.kv_heads);
    return {draw(shape.query_heads, shape.first_head, 1), draw(shape.kv_heads, first_kv, 2),
            draw(shape.kv_heads, first_kv, 3), shape.query_heads, shape.kv_heads, tokens, shape.prompt};
  }

  // The policy that is driven decides what a storage head is.
  void serve(std::uint32_t storage_heads) { storage_heads_ = storage_heads; }
  [[nodiscard]] HeadRows rows(HeadId head) const override {
    const std::size_t kv_head = head.value / (storage_heads_ / kv_heads_);
    const std::size_t group = query_heads_ / storage_heads_;
    const auto view = [&](const std::vector<float>& data) {
      const auto* first = reinterpret_cast<const std::byte*>(data.data() + kv_head * tokens_ * width_);
      return RowsView{first, DType::kF32, width_, width_, tokens_};
    };
    const auto* queries = reinterpret_cast<const std::byte*>(queries_.data() + head.value * group * width_);
    return {view(k_), view(v_), true,
            {queries, DType::kF32, query_heads_ * width_, group * width_, prompt_}};
  }
  // Those of one token, from query head `head` on.
  [[nodiscard]] const float* query(std::uint32_t t, std::uint32_t head) const {
    return queries_.data() + (std::size_t{t} * query_heads_ + head) * width_;
  }

 private:
  std::vector<float> k_, v_;
  std::uint32_t query_heads_, kv_heads_, storage_heads_ = 1;
  std::size_t tokens_, prompt_, width_;
  std::vector<float> queries_;  // [tokens, query heads, width]
};

// [12, query heads · width]: the columns of a query head are the same wherever the head lies.
inline RowsView projection_of(const Shape& shape) {
  if (shape.projection.data != nullptr) return shape.projection;
  constexpr std::uint32_t kRows = 12;
  struct Made {
    std::uint32_t heads, width, first_head, copies;
    std::vector<float> matrix;
  };
  static std::vector<Made> all;
  const std::uint32_t cols = shape.query_heads * shape.width;
  auto made = std::ranges::find_if(all, [&](const Made& m) {
    return m.heads == shape.query_heads && m.width == shape.width && m.first_head == shape.first_head &&
           m.copies == shape.copies;
  });
  if (made == all.end()) made = all.insert(made, {shape.query_heads, shape.width, shape.first_head, shape.copies, {}});
  std::vector<float>& matrix = made->matrix;
  for (std::uint32_t row = 0; row < kRows && matrix.size() < kRows * cols; ++row) {
    for (std::uint32_t h = 0; h < shape.query_heads; ++h) {
      const std::uint32_t group = shape.query_heads / shape.kv_heads;
      const std::uint32_t original = h / (group * shape.copies) * group + h % group;
      const std::uint32_t head = (original + shape.first_head) % shape.query_heads;
      for (std::uint32_t i = 0; i < shape.width; ++i) {
        matrix.push_back(uniform_draw({.seed = 4, .layer = head, .query_head = i, .position = row}) - 0.5F);
      }
    }
  }
  return {reinterpret_cast<const std::byte*>(matrix.data()), DType::kF32, cols, cols, kRows};
}

// The first token is special, every seventh one punctuation.
inline const std::vector<TokenKind>& driver_kinds() {
  static const auto kinds = [] {
    std::vector<TokenKind> all(4096, TokenKind::kOther);
    for (std::size_t i = 0; i < all.size(); i += 7) all[i] = TokenKind::kPunctuation;
    all[0] = TokenKind::kSpecial;
    return all;
  }();
  return kinds;
}

inline PolicyContext context_of(const Shape& shape) {
  PolicyContext context;
  context.head_dim = shape.width;
  context.prompt = shape.prompt;
  context.requested_new_tokens = shape.decode;
  context.seed = shape.seed;
  context.layer = LayerId(shape.layer);
  context.layers = shape.layers;
  context.window = shape.window;
  context.rotation = {shape.rotary, 0, false};
  context.scale = 1 / std::sqrt(static_cast<float>(shape.width));
  context.output_projection = projection_of(shape);
  context.token_kinds = &driver_kinds();
  return context;
}

// What the decoded queries pay to each token.
inline FutureAttention future_of(const Shape& shape, const LogitFunction& logit) {
  FutureAttention future(shape.query_heads, shape.prompt, shape.prompt + shape.decode);
  for (std::uint32_t h = 0; h < shape.query_heads; ++h) {
    for (std::uint32_t t = shape.prompt; t < shape.prompt + shape.decode; ++t) {
      const std::uint32_t first = shape.window > 0 && t >= shape.window ? t + 1 - shape.window : 0;
      std::vector<float> row(t + 1);
      for (std::uint32_t j = first; j <= t; ++j) row[j] = logit(h, t, j);
      softmax(std::span(row).subspan(first), std::span(row).subspan(first));
      future.set_row(h, TokenPos(t), row);
    }
    future.finish(h);
  }
  return future;
}

// Policies that take scores, without a file, with scores that each storage head draws for itself, alike in all layers;
// others as they are.
inline PolicySpec with_scores_drawn(PolicySpec spec, const Shape& shape) {
  const bool takes_scores = spec.name == "scores" || spec.name == "kvzip";
  if (!takes_scores || spec.token_scores != nullptr) return spec;
  const bool by_query_head = spec.find("group") == "none";
  const std::uint32_t heads = by_query_head ? shape.query_heads : shape.kv_heads;
  const std::uint32_t group = heads / shape.kv_heads;
  const std::uint32_t first = by_query_head ? shape.first_head
                                            : shape.first_head / (shape.query_heads / shape.kv_heads);
  TokenScores drawn{shape.layers, heads, {}};
  std::vector<float>& scores = drawn.sequences[0];
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t h = 0; h < heads; ++h) {
      const std::uint32_t head = (h / (group * shape.copies) * group + h % group + first) % heads;
      for (std::uint32_t t = 0; t < shape.prompt; ++t) {
        scores.push_back(uniform_draw({.seed = 7, .query_head = head, .position = t}));
      }
    }
  }
  std::erase_if(spec.params, [](const auto& param) { return param.first == "file"; });
  spec.params.emplace_back("file", "drawn");
  spec.token_scores = std::make_shared<TokenScores>(std::move(drawn));
  return spec;
}

class Driver {
 public:
  Driver(const PolicySpec& spec, const Shape& shape, LogitFunction logit)
      : Driver(policy_info(spec.name), spec, shape, std::move(logit)) {}
  Driver(const PolicyInfo& info, const PolicySpec& spec, const Shape& shape, LogitFunction logit)
      : shape_(shape),
        logit_(std::move(logit)),
        future_(info.traits(spec).needs.has(HostNeed::kFuture)
                    ? std::make_unique<FutureAttention>(future_of(shape, logit_))
                    : nullptr),
        policy_(info, with_scores_drawn(spec, shape), context(), shape.query_heads, shape.kv_heads),
        rows_(DriverRows::random(shape)) {
    rows_.serve(policy_.storage_heads());
  }
  // The same over tensors of a test.
  Driver(const PolicySpec& spec, const Shape& shape, LogitFunction logit, DriverRows rows)
      : Driver(policy_info(spec.name), spec, shape, std::move(logit), std::move(rows)) {}
  Driver(const PolicyInfo& info, const PolicySpec& spec, const Shape& shape, LogitFunction logit, DriverRows rows)
      : Driver(info, spec, shape, std::move(logit)) {
    rows_ = std::move(rows);
    rows_.serve(policy_.storage_heads());
  }

  // From now on a policy that selects is shown −∞ for what it does not read, as an engine shows it.
  void hide_unread() { hides_unread_ = true; }
  // Runs the row of one query position: admit, select, observe, finish.
  void row(std::uint32_t t) {
    for (std::uint32_t h = 0; h < policy_.storage_heads(); ++h) observe(HeadId(h), t);
    policy_.finish_row(TokenPos(t), &rows_);
  }
  // The whole prompt. Policies that do not stream it see all rows before the one finish.
  void prompt() {
    if (policy_.traits().streams_prompt) {
      for (std::uint32_t t = 0; t < shape_.prompt; ++t) row(t);
      return;
    }
    for (std::uint32_t h = 0; h < policy_.storage_heads(); ++h) {
      for (std::uint32_t t = 0; t < shape_.prompt; ++t) observe(HeadId(h), t);
    }
    policy_.finish_row(TokenPos(shape_.prompt - 1), &rows_);
  }

  // Ascending positions that the head holds.
  [[nodiscard]] Positions kept(std::uint32_t head) const {
    Positions kept;
    for (const TokenPos p : policy_.positions(HeadId(head))) kept.push_back(p.value);
    std::sort(kept.begin(), kept.end());
    return kept;
  }
  // What query head g of storage head h read in the last row (policies that select), ascending.
  [[nodiscard]] const Positions& read(std::uint32_t query_head) const { return read_[query_head]; }
  [[nodiscard]] const DriverRows& rows() const { return rows_; }
  [[nodiscard]] LayerPolicy& policy() { return policy_; }
  [[nodiscard]] PolicyContext context() const {
    PolicyContext context = context_of(shape_);
    context.future = future_.get();
    return context;
  }
  [[nodiscard]] const Shape& shape() const { return shape_; }

 private:
  void observe(HeadId head, std::uint32_t t) {
    policy_.admit(head, TokenPos(t));
    const auto positions = policy_.positions(head);
    const std::uint32_t group = policy_.group();
    const std::size_t slots = positions.size();
    logits_.resize(group * slots);
    weights_.resize(group * slots);
    read_.resize(shape_.query_heads);
    AttentionRows rows{policy_.step_of(TokenPos(t)), TokenPos(t), positions, group, logits_.data(), weights_.data()};
    rows.queries = rows_.query(t, head.value * group);
    for (std::uint32_t g = 0; g < group; ++g) {
      for (std::size_t s = 0; s < slots; ++s)
        logits_[g * slots + s] = logit_(head.value * group + g, t, positions[s].value);
      softmax(rows.logits_of(g), std::span(weights_).subspan(g * slots, slots));
      if (policy_.traits().selects) select(head, g, rows);
    }
    policy_.observe(head, rows);
  }
  void select(HeadId head, std::uint32_t g, const AttentionRows& rows) {
    slots_.clear();
    policy_.select(head, g, rows, slots_, &rows_);
    Positions& read = read_[head.value * rows.group + g];
    read.clear();
    for (const SlotId s : slots_) read.push_back(rows.positions[s.value].value);
    if (hides_unread_) {
      const std::span<float> logits = std::span(logits_).subspan(std::size_t{g} * rows.slots(), rows.slots());
      const std::vector<float> all(logits.begin(), logits.end());
      std::ranges::fill(logits, -std::numeric_limits<float>::infinity());
      for (const SlotId s : slots_) logits[s.value] = all[s.value];
    }
    std::sort(read.begin(), read.end());
  }

  Shape shape_;
  LogitFunction logit_;
  std::unique_ptr<FutureAttention> future_;
  LayerPolicy policy_;
  DriverRows rows_;
  std::vector<float> logits_, weights_;
  std::vector<SlotId> slots_;
  std::vector<Positions> read_;
  bool hides_unread_ = false;
};

inline PolicySpec spec_of(std::string_view text) { return parse_policies(text).front(); }

// Kept positions of head 0: after the prompt, then after each decoded token.
inline std::vector<Positions> kept_each_step(Driver& driver, std::uint32_t head = 0) {
  driver.prompt();
  std::vector<Positions> steps = {driver.kept(head)};
  for (std::uint32_t i = 0; i < driver.shape().decode; ++i) {
    driver.row(driver.shape().prompt + i);
    steps.push_back(driver.kept(head));
  }
  return steps;
}

}  // namespace kvroof::test
