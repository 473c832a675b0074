#include "sim/traffic/accounting.hpp"

#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

using namespace kvroof;
using namespace kvroof::synthetic;

namespace {

const TrafficTypes kBf16{DType::kBF16, DType::kBF16};

// One layer of one KV head that two query heads share; rows of 8 bytes. Keeps 4 of 6 tokens, then 4, with 3 bytes of
// state a row, which each of the 3 steps reads and writes.
ResidencySummary half() {
  Residency r = fraction({6, 3}, 4.0 / 6, 1, 1);
  r.state_bytes_per_row = 3;
  r.needs_probabilities = r.observes_steps = true;
  r.at(0, 0).policy_flops = {42, 0, 6};
  for (std::uint32_t step = 1; step <= 3; ++step) {
    LayerCounts& c = r.at(step, 0);
    c.moved = step == 2 ? 3 : 0;
    c.state_read = c.state_written = 15;
    c.scored = 7;
    c.policy_flops = {10, 2, 5};
  }
  return summarise(r);
}

}  // namespace

TEST_CASE("the accounting of a batch is what its rows, its state and its arithmetic come to by hand") {
  const Accounting a = account(small_llama(), kBf16, half(), 2);
  CHECK(a.kept_tokens == 4);
  CHECK(a.kv_resident == 2 * 4 * 8);
  CHECK(a.kv_allocated == 2 * 5 * 8);
  CHECK(a.kv_read == 2 * 5 * 8);
  CHECK(a.kv_written == 2 * 8);
  CHECK(a.kv_moved == 2 * 2 * 8);  // three rows in three steps, read and written
  CHECK(a.policy_state == 2 * 5 * 3);
  CHECK(a.state_read == 2 * 15);
  CHECK(a.state_written == 2 * 15);
  CHECK(a.scored == 2 * 7 * 2);
  CHECK(a.attention_flops == 2 * 2.0 * 5 * 2 * 4);  // rows of 2 + 2 elements for each of two query heads
  CHECK(a.policy_flops == PolicyFlops{20, 4, 10});
  CHECK(a.prompt_kv_moved == 2 * 2 * 4 * 8);
  CHECK(a.prompt_policy_flops == PolicyFlops{84, 0, 12});
}

TEST_CASE("a policy that looks at all attention of the prompt has q · k computed a second time, others do not") {
  ResidencySummary summary = half();
  const Accounting looks = account(small_llama(), kBf16, summary, 1);
  CHECK_FALSE(looks.fused_prompt);
  CHECK(looks.second_pass_flops == 21 * 2 * 2 * 2);  // 21 pairs, two query heads, 2 channels
  CHECK(looks.probability_bytes == 4 * 2 * 6 * 6);
  summary.needs_probabilities = false;
  const Accounting does_not = account(small_llama(), kBf16, summary, 1);
  CHECK(does_not.fused_prompt);
  CHECK(does_not.second_pass_flops == 0);
  CHECK(does_not.probability_bytes == 0);
}

TEST_CASE("probabilities that are written out are those of each prompt, not of a prompt of the mean length") {
  SummarySum sum;
  for (const std::uint32_t prompt : {2U, 6U}) {
    Residency r = fraction({prompt, 3}, 1, 1, 1);
    r.needs_probabilities = r.observes_steps = true;
    sum.add(summarise(r));
    sum.end_sequence(prompt, 3, 1);
  }
  const Accounting a = account(small_llama(), kBf16, sum.mean(), 2);
  CHECK(a.probability_bytes == 4 * 2 * (2 * 2 + 6 * 6));  // of two query heads
}

TEST_CASE("beams multiply: four beams hold, read, move and compute four times what one sequence does") {
  const Accounting one = account(small_llama(), kBf16, half(), 1);
  const Accounting four = account(small_llama(), kBf16, half(), 4);
  for (std::uint64_t Accounting::* field :
       {&Accounting::kv_resident, &Accounting::kv_allocated, &Accounting::kv_read, &Accounting::kv_written,
        &Accounting::kv_moved, &Accounting::policy_state, &Accounting::state_read, &Accounting::state_written,
        &Accounting::scored, &Accounting::probability_bytes, &Accounting::prompt_kv_moved}) {
    CHECK(one.*field > 0);
    CHECK(four.*field == 4 * (one.*field));
  }
  CHECK(four.policy_flops == 4.0 * one.policy_flops);
}
