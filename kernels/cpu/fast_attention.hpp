// Attention of the fast back end; calls of different heads may run on different threads.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/scratch.hpp"
#include "kernels/engine/ops.hpp"
#include "sim/core/thread_pool.hpp"

namespace kvroof::fast {

// Query rows that share one pass over k and v in prefill_attend_one.
inline constexpr std::uint32_t kPrefillBlock = 64;

class DecodeAttention;

// Decode attention of many calls; shows each row to its policy when that wants rows. Few calls that mean much work
// (multi-query, grouped and latent attention) are shared by the threads, with the same bits.
class Attender {
 public:
  Attender();
  ~Attender();
  void attend(std::span<const AttendCall> calls, const AttentionRule& rule, ThreadPool& pool);

 private:
  // What a task does of one call: slots, then query heads.
  struct Task {
    const DecodeAttention* of = nullptr;
    std::size_t first = 0;
    std::size_t count = 0;
  };
  template <class Size>
  void cut(std::size_t most, const Size& size);

  std::vector<DecodeAttention> shared_;
  std::vector<Task> tasks_;
  Scratch scratch_;
};

// All rows of a prompt, in blocks of kPrefillBlock; admits each token and shows its row in order.
void prefill_attend_one(const PrefillCall& call, const AttentionRule& rule);

// Rows of k (and of v) that prefill_attend_one walks for a prompt: every block walks the tokens up to its end, from the
// first that its first row sees through the window (0: none).
std::uint64_t prefill_rows_walked(std::uint64_t prompt, std::uint32_t window);

}  // namespace kvroof::fast
