// ExactRows: the attention of a block of query rows over all recorded tokens before them that the layer's window shows;
// shared by all points of a replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/attention/sums.hpp"
#include "sim/core/error.hpp"
#include "sim/core/ids.hpp"
#include "sim/core/thread_pool.hpp"
#include "sim/replay/interleaved_rows.hpp"
#include "traces/manifest.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// What the rows are needed for.
struct RowsWanted {
  bool weights = false;       // softmax of the logits
  bool exponentials = false;  // instead of the weights, and interleaved: of rows whose points hold slots of their own
  bool masses = false;        // sums of the weights or exponentials; without them exponentials are interleaved alone
  bool outputs = false;       // weighted sums of the values; with masses
};

// A logit is no number: compute() throws it, and place_of_logit() (finite_values.hpp) says of which trace.
struct InfiniteLogit : Error {
  InfiniteLogit(std::uint32_t query_head, std::uint32_t token, bool is_of_query);
  std::uint32_t head, position;
  bool of_query;  // the query itself holds NaN or infinity; else a product is beyond the range of float
};

class ExactRows {
 public:
  explicit ExactRows(ThreadPool& pool) : pool_(pool) {}

  // The layer whose rows follow; all three stay alive until the next call. Rows may be up to max_rows a block.
  void start_layer(const TraceLayer& layer, DType type, const LayerKeysValues& keys_values, std::uint32_t max_rows);
  // Rows [first, first + count) of the sequence; q is [count, query_heads, k_width] in the trace's type.
  void compute(std::uint32_t first, std::uint32_t count, std::span<const std::byte> q, RowsWanted wanted);

  // The same from logits that are there already: rows of `stride` elements, each [query_heads][position + 1], finite.
  // They stay alive as long as the rows are asked for.
  void compute_from_logits(std::uint32_t first, std::uint32_t count, std::span<const float> logits, std::size_t stride,
                           RowsWanted wanted);
  // What compute() does with q, for whoever has the logits: query() then knows the next rows' queries.
  void take_queries(std::uint32_t count, std::span<const std::byte> q);

  [[nodiscard]] std::uint32_t first() const { return first_; }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  // Tokens that the query at `position` sees.
  [[nodiscard]] std::uint32_t visible(std::uint32_t position) const { return position + 1 - first_visible(position); }
  [[nodiscard]] std::uint32_t first_visible(std::uint32_t position) const {
    const std::uint32_t window = layer_->window;
    return window > 0 && position >= window ? position + 1 - window : 0;
  }
  // Of the query at `position` in the block: [query_heads][position + 1], from query head `head` on. What a window
  // hides has the logit −∞ and the weight 0.
  [[nodiscard]] const float* logits(std::uint32_t position, std::uint32_t head) const {
    return logits_at_ + offset(position, head);
  }
  [[nodiscard]] const float* weights(std::uint32_t position, std::uint32_t head) const {
    return weights_.data() + offset(position, head);
  }
  // The same up to a factor: the exponentials of the row, where those and masses were wanted.
  [[nodiscard]] const float* exponentials(std::uint32_t position, std::uint32_t head) const {
    return weights(position, head);
  }
  // The exponentials of all rows, where they were wanted.
  [[nodiscard]] const InterleavedRows& interleaved() const { return interleaved_; }
  // Sum of the weights (or exponentials) of one row's tokens: of weights, 1 up to rounding where there is no sink.
  [[nodiscard]] double mass(std::uint32_t position, std::uint32_t head) const { return masses_[cell(position, head)]; }
  // The weight (or exponential) of the row's sink beside them, 0 where there is none.
  [[nodiscard]] float sink(std::uint32_t position, std::uint32_t head) const { return sinks_[cell(position, head)]; }
  // Weighted sum of the values, divided by mass and sink: [v_width]; and its Euclidean norm.
  [[nodiscard]] const float* output(std::uint32_t position, std::uint32_t head) const {
    return outputs_.data() + cell(position, head) * layer_->v_width;
  }
  [[nodiscard]] double output_norm(std::uint32_t position, std::uint32_t head) const {
    return norms_[cell(position, head)];
  }
  // Keys and values of the KV head that the query head reads, of all tokens of the sequence.
  [[nodiscard]] RowsView keys_of(std::uint32_t query_head) const;
  [[nodiscard]] RowsView values_of(std::uint32_t query_head) const;
  // [k_width].
  [[nodiscard]] std::span<const float> query(std::uint32_t position, std::uint32_t head) const {
    return std::span(q_).subspan(cell(position, head) * layer_->k_width, layer_->k_width);
  }
  [[nodiscard]] const TraceLayer& layer() const { return *layer_; }

  // Bytes of scratch that one row of a sequence of `tokens` tokens takes.
  static std::uint64_t bytes_per_row(const TraceLayer& layer, std::uint32_t tokens);

 private:
  [[nodiscard]] std::size_t cell(std::uint32_t position, std::uint32_t head) const {
    return static_cast<std::size_t>(position - first_) * layer_->query_heads + head;
  }
  [[nodiscard]] std::size_t offset(std::uint32_t position, std::uint32_t head) const {
    return static_cast<std::size_t>(position - first_) * row_stride_ + static_cast<std::size_t>(head) * (position + 1);
  }
  // Of the query's row, [position + 1], the part that it sees; what is before it is set to `hidden`.
  std::span<float> visible_part(std::vector<float>& rows, std::uint32_t position, std::uint32_t head, float hidden);
  [[nodiscard]] std::uint32_t rows_of_task(std::uint32_t count) const;
  template <class MakeLogits>
  void for_each_task(std::uint32_t first, std::uint32_t count, RowsWanted wanted, const MakeLogits& make_logits);
  void logits_of(std::uint32_t kv_head, std::uint32_t first, std::uint32_t last);
  void finish_logits(std::uint32_t kv_head, std::uint32_t position);  // ALiBi, and what a window hides
  void weights_of(std::uint32_t kv_head, std::uint32_t position, RowsWanted wanted);
  void interleave_rows(std::uint32_t kv_head, std::uint32_t first, std::uint32_t last);
  void interleave_exponentials(std::uint32_t kv_head, std::uint32_t first, std::uint32_t last);
  void outputs_of(std::uint32_t kv_head, std::uint32_t first, std::uint32_t last);

  ThreadPool& pool_;
  const TraceLayer* layer_ = nullptr;
  const LayerKeysValues* keys_values_ = nullptr;
  DType type_ = DType::kF32;
  std::size_t row_stride_ = 0;  // elements from one row's logits to the next
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
  std::vector<TokenPos> positions_;     // 0, 1, 2, …
  std::vector<float> q_;                // [rows, query_heads, k_width]
  std::vector<float> logits_;           // [rows][query_heads][position + 1]
  const float* logits_at_ = nullptr;    // these, or the caller's
  std::vector<float> weights_;          // likewise
  InterleavedRows interleaved_;
  std::vector<float> outputs_;          // [rows, query_heads, v_width]
  std::vector<double> masses_, norms_;  // [rows, query_heads]
  std::vector<float> sinks_;            // likewise
};

// Rows that are computed at once: their logits and weights take at most a fifth of k and v, or 4 MiB.
std::uint32_t rows_of_block(const TraceLayer& layer, const LayerKeysValues& keys_values);

}  // namespace kvroof
