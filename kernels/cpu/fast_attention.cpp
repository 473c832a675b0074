#include "kernels/cpu/fast_attention.hpp"

#include <cblas.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/fast_kernels.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/engine/selected_rows.hpp"
#include "sim/core/error.hpp"
#include "sim/policy/slot_positions.hpp"

namespace kvroof::fast {
namespace {

// Rows of k or v that are converted to float at a time in prefill: 128 KiB at a width of 128.
constexpr std::size_t kKeyTile = 256;

// Attention of few storage heads is cut into tasks where it is worth the threads' meeting twice more.
constexpr std::size_t kLeastSharedWork = std::size_t{1} << 20;  // multiplications
constexpr std::size_t kSlotsOfTask = 128;
constexpr std::size_t kHeadsOfTask = 2;

thread_local Scratch logits_scratch;
thread_local Scratch weights_scratch;
thread_local Scratch tile_scratch;
thread_local std::vector<TokenPos> token_scratch;  // 0, 1, 2, …

std::span<const TokenPos> tokens_up_to(std::size_t count) {
  while (token_scratch.size() < count) token_scratch.emplace_back(static_cast<std::uint32_t>(token_scratch.size()));
  return std::span(token_scratch).first(count);
}

// Dot products, scaled already, become logits of query head `g` of the group.
void finish_logits(std::span<float> logits, const AttentionRule& rule, std::span<const TokenPos> positions,
                   TokenPos query, std::uint32_t query_head) {
  if (rule.logits.softcap > 0) soft_cap(logits, rule.logits.softcap);
  if (!rule.alibi.empty()) add_alibi(positions, query, rule.alibi_of(query_head), logits);
}

void show(LayerPolicy& policy, HeadId head, TokenPos query, std::uint32_t group, const float* logits,
          const float* weights) {
  AttentionRows rows;
  rows.step = policy.step_of(query);
  rows.query = query;
  rows.positions = policy.positions(head);
  rows.group = group;
  rows.logits = logits;
  rows.weights = policy.traits().needs_weights ? weights : nullptr;
  policy.observe(head, rows);
}

// A view of float rows as BLAS takes it.
struct FloatRows {
  const float* data;
  int stride;
};

FloatRows float_tile(const RowsView& rows) {
  if (rows.type == DType::kF32) return {reinterpret_cast<const float*>(rows.data), static_cast<int>(rows.stride)};
  float* tile = tile_scratch.floats(kKeyTile * rows.width);
  convert_rows(rows, tile);
  return {tile, static_cast<int>(rows.width)};
}

// The first token that the query sees.
std::size_t first_seen(std::size_t query, std::uint32_t window) {
  return window > 0 && query >= window ? query + 1 - window : 0;
}

// One block of query rows [first, last) of a prompt, over the tokens [begin, last) that any of them sees. Row i of
// query head g has its logits, then its weights, at scores + ((i − first) · group + g) · (last − begin).
class PrefillBlock {
 public:
  PrefillBlock(const PrefillCall& call, const AttentionRule& rule, std::size_t first, std::size_t last)
      : call_(call), rule_(rule), first_(first), last_(last), begin_(first_seen(first, call.policy->window())),
        group_(call.policy->group()), scores_(logits_scratch.floats((last - first) * group_ * (last - begin_))) {}

  void run() {
    multiply_keys();
    for (std::size_t i = first_; i < last_; ++i) finish_row(i);
    multiply_values();
  }

 private:
  [[nodiscard]] int queries() const { return static_cast<int>(last_ - first_); }
  [[nodiscard]] int scores_stride() const { return static_cast<int>(group_ * (last_ - begin_)); }
  [[nodiscard]] float* row_scores(std::size_t i, std::size_t g, std::size_t token) const {
    return scores_ + ((i - first_) * group_ + g) * (last_ - begin_) + (token - begin_);
  }

  void multiply_keys() {
    const auto width = static_cast<int>(call_.keys.width);
    for (std::size_t key = begin_; key < last_; key += kKeyTile) {
      const std::size_t count = std::min(kKeyTile, last_ - key);
      const FloatRows keys = float_tile(call_.keys.slice(key, count));
      for (std::size_t g = 0; g < group_; ++g) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, queries(), static_cast<int>(count), width,
                    rule_.logits.scale, call_.q + first_ * call_.q_stride + g * call_.keys.width,
                    static_cast<int>(call_.q_stride), keys.data, keys.stride, 0.0F, row_scores(first_, g, key),
                    scores_stride());
      }
    }
  }

  // Logits of one row become weights, zero for tokens that it does not see; the policy sees both, by slot.
  void finish_row(std::size_t i) {
    LayerPolicy& policy = *call_.policy;
    const TokenPos query(static_cast<std::uint32_t>(i));
    policy.admit(call_.head, query);
    const PromptRows seen = prompt_rows(policy, call_.head, query);
    const bool shown = policy.observes(query);
    float* logits = shown ? weights_scratch.floats(2 * group_ * seen.count) : nullptr;
    float* weights = shown ? logits + group_ * seen.count : nullptr;
    const auto copy_by_slot = [&](std::span<const float> scores, float* to, std::size_t g) {
      if (!shown) return;
      const auto newest = scores.end() - static_cast<std::ptrdiff_t>(seen.oldest);
      std::rotate_copy(scores.begin(), newest, scores.end(), to + g * seen.count);
    };
    for (std::size_t g = 0; g < group_; ++g) {
      const std::span<float> scores(row_scores(i, g, seen.first), seen.count);
      finish_logits(scores, rule_, tokens_up_to(last_).subspan(seen.first, seen.count), query,
                    call_.first_query_head + static_cast<std::uint32_t>(g));
      copy_by_slot(scores, logits, g);
      softmax_row(scores, scores, rule_.sink(call_.first_query_head + g));
      copy_by_slot(scores, weights, g);
      std::fill(row_scores(i, g, begin_), row_scores(i, g, seen.first), 0.0F);
      std::fill(row_scores(i, g, i + 1), row_scores(i, g, last_), 0.0F);
    }
    if (shown) show(policy, call_.head, query, static_cast<std::uint32_t>(group_), logits, weights);
  }

  void multiply_values() {
    const auto width = static_cast<int>(call_.values.width);
    for (std::size_t token = begin_; token < last_; token += kKeyTile) {
      const std::size_t count = std::min(kKeyTile, last_ - token);
      const FloatRows values = float_tile(call_.values.slice(token, count));
      for (std::size_t g = 0; g < group_; ++g) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, queries(), width, static_cast<int>(count), 1.0F,
                    row_scores(first_, g, token), scores_stride(), values.data, values.stride,
                    token == begin_ ? 0.0F : 1.0F, call_.out + first_ * call_.out_stride + g * call_.values.width,
                    static_cast<int>(call_.out_stride));
      }
    }
  }

  const PrefillCall& call_;
  const AttentionRule& rule_;
  std::size_t first_, last_, begin_, group_;
  float* scores_;
};

}  // namespace

// One query position of one storage head. Dot products may be cut by slots, what follows by query heads: neither cut
// changes a bit.
class DecodeAttention {
 public:
  DecodeAttention(const AttendCall& call, const AttentionRule& rule) : call_(&call), rule_(&rule) {
    check(slots() > 0 && call.policy->positions(call.head).size() == call.keys.count,
          "attention runs over the slots that the policy holds");
  }

  // That are read.
  [[nodiscard]] std::size_t slots() const { return call_->rows(); }
  [[nodiscard]] std::size_t group() const { return call_->q.size() / call_->keys.width; }
  // Multiplications of k and v.
  [[nodiscard]] std::size_t work() const { return group() * slots() * (call_->keys.width + call_->values.width); }
  [[nodiscard]] std::size_t scratch_floats() const {
    return group() * (packed_size(call_->keys.width) + 2 * slots() + call_->values.width);
  }

  void prepare(float* scratch) {
    packed_ = scratch;
    logits_ = packed_ + group() * packed_size(call_->keys.width);
    weights_ = logits_ + group() * slots();
    run_out_ = weights_ + group() * slots();
    pack_vectors(call_->keys.type, call_->q.data(), call_->keys.width, group(), call_->keys.width, packed_);
  }

  void multiply_keys(std::size_t first, std::size_t count) const {
    for_each_run(*call_, [&](const SlotRun& run, std::size_t at) {
      const std::size_t from = std::max(first, at);
      const std::size_t to = std::min(first + count, at + run.count);
      if (from >= to) return;
      dot_rows(call_->keys.slice(run.first + from - at, to - from), packed_, group(), logits_ + from, slots());
    });
    for (std::size_t g = 0; g < group(); ++g) {
      for (float& x : std::span(logits_ + g * slots() + first, count)) x *= rule_->logits.scale;
    }
  }

  void finish_heads(std::size_t first, std::size_t count) const {
    const std::span<const TokenPos> positions = call_->positions();
    for (std::size_t g = first; g < first + count; ++g) {
      const std::span<float> logits(logits_ + g * slots(), slots());
      const std::uint32_t query_head = call_->first_query_head + static_cast<std::uint32_t>(g);
      finish_logits(logits, *rule_, positions, call_->query, query_head);
      if (call_->policy->relocates(call_->query)) {
        relocate_logits({call_->policy->rotation(), positions, call_->query,
                         call_->q.subspan(g * call_->keys.width, call_->keys.width), call_->keys, false, rule_->logits,
                         rule_->alibi_of(query_head)},
                        logits);
      }
      hide_rows(*call_, g, logits);
      softmax_row(logits, {weights_ + g * slots(), slots()}, rule_->sink(query_head));
    }
    add_values(first, count);
  }

  void add_values(std::size_t first, std::size_t count) const {
    const std::size_t width = call_->values.width;
    float* out = call_->out.data() + first * width;
    for_each_run(*call_, [&](const SlotRun& run, std::size_t at) {
      float* sum = at == 0 ? out : run_out_ + first * width;
      weighted_rows(weights_ + first * slots() + at, slots(), count, call_->values.slice(run.first, run.count), sum,
                    width);
      for (std::size_t i = 0; at > 0 && i < count * width; ++i) out[i] += sum[i];
    });
  }

  void show_row() const {
    if (call_->selected != nullptr) return show_selected(*call_, *rule_, {logits_, group() * slots()});
    if (!call_->policy->observes(call_->query)) return;
    show(*call_->policy, call_->head, call_->query, static_cast<std::uint32_t>(group()), logits_, weights_);
  }

 private:
  const AttendCall* call_;
  const AttentionRule* rule_;
  float* packed_ = nullptr;   // [group, packed width]
  float* logits_ = nullptr;   // [group, slots]
  float* weights_ = nullptr;  // [group, slots]
  float* run_out_ = nullptr;  // [group, v_width]: of one run of slots
};

namespace {

void attend_one(const AttendCall& call, const AttentionRule& rule) {
  DecodeAttention attention(call, rule);
  attention.prepare(logits_scratch.floats(attention.scratch_floats()));
  attention.multiply_keys(0, attention.slots());
  attention.finish_heads(0, attention.group());
  attention.show_row();
}

}  // namespace

Attender::Attender() = default;
Attender::~Attender() = default;

void Attender::attend(std::span<const AttendCall> calls, const AttentionRule& rule, ThreadPool& pool) {
  std::size_t work = 0;
  std::size_t floats = 0;
  shared_.clear();
  for (const AttendCall& call : calls) {
    work += shared_.emplace_back(call, rule).work();
    floats += shared_.back().scratch_floats();
  }
  const bool even = calls.size() % pool.threads() == 0 || calls.size() >= 2 * pool.threads();
  if (even || work < kLeastSharedWork) {
    pool.parallel_for(calls.size(), [&](std::size_t i) { attend_one(calls[i], rule); });
    return;
  }
  float* scratch = scratch_.floats(floats);
  for (DecodeAttention& attention : shared_) {
    attention.prepare(scratch);
    scratch += attention.scratch_floats();
  }
  const auto run_tasks = [&](const auto& body) {
    pool.parallel_for(tasks_.size(), [&](std::size_t i) { body(*tasks_[i].of, tasks_[i].first, tasks_[i].count); });
  };
  cut(kSlotsOfTask, [](const DecodeAttention& a) { return a.slots(); });
  run_tasks([](const DecodeAttention& a, std::size_t first, std::size_t count) { a.multiply_keys(first, count); });
  cut(kHeadsOfTask, [](const DecodeAttention& a) { return a.group(); });
  run_tasks([](const DecodeAttention& a, std::size_t first, std::size_t count) { a.finish_heads(first, count); });
  pool.parallel_for(shared_.size(), [&](std::size_t i) { shared_[i].show_row(); });
}

template <class Size>
void Attender::cut(std::size_t most, const Size& size) {
  tasks_.clear();
  for (const DecodeAttention& attention : shared_) {
    const std::size_t all = size(attention);
    for (std::size_t first = 0; first < all; first += most) {
      tasks_.push_back({&attention, first, std::min(most, all - first)});
    }
  }
}

void prefill_attend_one(const PrefillCall& call, const AttentionRule& rule) {
  const std::size_t rows = call.keys.count;
  for (std::size_t first = 0; first < rows; first += kPrefillBlock) {
    PrefillBlock(call, rule, first, std::min<std::size_t>(first + kPrefillBlock, rows)).run();
  }
}

std::uint64_t prefill_rows_walked(std::uint64_t prompt, std::uint32_t window) {
  std::uint64_t rows = 0;
  for (std::uint64_t first = 0; first < prompt; first += kPrefillBlock) {
    rows += std::min<std::uint64_t>(first + kPrefillBlock, prompt) - first_seen(first, window);
  }
  return rows;
}

}  // namespace kvroof::fast
