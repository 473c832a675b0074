// Many tokens that go at once, against a plain sort.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/cuda/kernels.hpp"
#include "tests/catch.hpp"

using namespace kvroof::cuda;

namespace {

// Heads of `length` slots, in each of which tokens lie in an order of its own.
struct Heads {
  std::uint32_t length = 0;
  std::vector<std::vector<float>> scores;
  std::vector<std::vector<std::uint32_t>> positions;
};

Heads heads_of(std::uint32_t length, std::uint32_t heads, bool in_order, std::mt19937& random,
               const std::function<float(std::mt19937&)>& score) {
  Heads out{length, {}, {}};
  for (std::uint32_t h = 0; h < heads; ++h) {
    std::vector<float>& scores = out.scores.emplace_back();
    for (std::uint32_t s = 0; s < length; ++s) scores.push_back(score(random));
    std::vector<std::uint32_t>& positions = out.positions.emplace_back(length);
    std::iota(positions.begin(), positions.end(), 5U);
    if (!in_order) std::shuffle(positions.begin(), positions.end(), random);
  }
  return out;
}

// The slots of head h that go: those among [first, end) with the lowest (score, position).
std::set<std::uint32_t> sorted_out(const Heads& heads, std::uint32_t h, const ChooseArguments& a) {
  std::vector<std::tuple<float, std::uint32_t, std::uint32_t>> order;
  for (std::uint32_t s = 0; s < heads.length; ++s) {
    const std::uint32_t position = heads.positions[h][s];
    if (position >= a.first && position < a.end) order.emplace_back(heads.scores[h][s], position, s);
  }
  std::sort(order.begin(), order.end());
  std::set<std::uint32_t> slots;
  for (std::size_t i = 0; i < std::min<std::size_t>(a.count, order.size()); ++i) slots.insert(std::get<2>(order[i]));
  return slots;
}

std::vector<std::set<std::uint32_t>> chosen_by_kernel(const Heads& heads, ChooseArguments a) {
  std::vector<CacheSlots> slots;
  std::vector<std::vector<std::uint32_t>> states, positions = heads.positions;
  for (const std::vector<float>& scores : heads.scores) {
    std::vector<std::uint32_t>& state = states.emplace_back();
    for (const float score : scores) {
      const bool counts = a.kind == ScoreKind::kCounts;
      state.push_back(counts ? static_cast<std::uint32_t>(std::abs(score)) : std::bit_cast<std::uint32_t>(score));
    }
  }
  for (std::size_t h = 0; h < states.size(); ++h) {
    CacheSlots& to = slots.emplace_back();
    to.positions = positions[h].data();
    to.state = states[h].data();
  }
  const std::uint32_t words = (heads.length + 31) / 32;
  std::vector<std::uint32_t> chosen(states.size() * words + 1, 0xdeadbeefU);
  a.slots = slots.data();
  a.heads = static_cast<std::uint32_t>(states.size());
  a.length = heads.length;
  a.chosen = chosen.data();
  Stream stream;
  run_choose_lowest(stream, a);
  CHECK(chosen.back() == 0xdeadbeefU);
  std::vector<std::set<std::uint32_t>> out(states.size());
  for (std::size_t h = 0; h < states.size(); ++h) {
    for (std::uint32_t s = 0; s < words * 32; ++s) {
      if ((chosen[h * words + s / 32] >> s % 32 & 1U) != 0) out[h].insert(s);
    }
  }
  return out;
}

void check_choice(const Heads& heads, const ChooseArguments& a) {
  INFO("length " << heads.length << ", count " << a.count << ", positions " << a.first << " to " << a.end);
  const auto chosen = chosen_by_kernel(heads, a);
  for (std::uint32_t h = 0; h < chosen.size(); ++h) CHECK(chosen[h] == sorted_out(heads, h, a));
}

ChooseArguments of_all(std::uint32_t length, std::uint32_t count) {
  ChooseArguments a;
  a.end = length + 5;
  a.count = count;
  return a;
}

float sum_of_weights(std::mt19937& random) { return std::generate_canonical<float, 24>(random) * 3; }

}  // namespace

TEST_CASE("the tokens with the lowest scores are those of a sort, at every edge of a block and of a word") {
  std::mt19937 random(3);
  for (const std::uint32_t length : {1U, 2U, 31U, 32U, 33U, 511U, 512U, 513U, 1500U, 32768U}) {
    const Heads heads = heads_of(length, length > 2000 ? 1 : 3, length % 2 == 0, random, sum_of_weights);
    for (const std::uint32_t count : std::set{1U, (length + 1) / 2, std::max(1U, length - 1), length, length + 7}) {
      if (length > 2000 && count != length / 2) continue;
      check_choice(heads, of_all(length, count));
    }
  }
}

TEST_CASE("of equal scores the oldest tokens go, wherever they lie") {
  std::mt19937 random(5);
  const Heads same = heads_of(700, 2, false, random, [](std::mt19937&) { return 0.25F; });
  const Heads few = heads_of(700, 2, false, random,
                             [](std::mt19937& r) { return static_cast<float>(static_cast<int>(r() % 5) - 2); });
  for (const std::uint32_t count : {1U, 33U, 350U, 699U}) {
    check_choice(same, of_all(700, count));
    check_choice(few, of_all(700, count));
  }
  Heads zeros = heads_of(40, 1, true, random, [](std::mt19937& r) { return r() % 2 == 0 ? 0.0F : -0.0F; });
  check_choice(zeros, of_all(40, 13));
}

TEST_CASE("scores that differ in their last bit alone are told apart") {
  std::mt19937 random(6);
  std::uint32_t bits = 0x3f800000U;
  const Heads heads = heads_of(600, 1, false, random, [&](std::mt19937&) { return std::bit_cast<float>(bits++); });
  for (const std::uint32_t count : {1U, 255U, 256U, 257U, 599U}) check_choice(heads, of_all(600, count));
}

TEST_CASE("tokens of the recent window and those already hidden stay, however low their scores are") {
  std::mt19937 random(7);
  const Heads heads = heads_of(600, 3, false, random, sum_of_weights);
  ChooseArguments a;
  a.first = 5 + 20;
  a.end = 5 + 500;
  for (const std::uint32_t count : {1U, 200U, 480U, 600U}) {
    a.count = count;
    check_choice(heads, a);
  }
}

TEST_CASE("counts are scores: the largest goes first, or the smallest") {
  std::mt19937 random(8);
  ChooseArguments a = of_all(530, 200);
  a.kind = ScoreKind::kCounts;
  a.counts_low = false;
  check_choice(heads_of(530, 2, false, random, [](std::mt19937& r) { return static_cast<float>(r() % 40); }), a);
  a.counts_low = true;
  check_choice(heads_of(530, 2, false, random, [](std::mt19937& r) { return -static_cast<float>(r() % 40); }), a);
}

TEST_CASE("a score that is no number goes after all that are") {
  std::mt19937 random(9);
  Heads heads = heads_of(100, 1, true, random, sum_of_weights);
  for (const std::uint32_t slot : {0U, 50U, 99U}) heads.scores[0][slot] = std::numeric_limits<float>::quiet_NaN();
  heads.scores[0][7] = std::numeric_limits<float>::infinity();
  std::set<std::uint32_t> numbers;
  for (std::uint32_t s = 0; s < 100; ++s) {
    if (s != 0 && s != 50 && s != 99) numbers.insert(s);
  }
  CHECK(chosen_by_kernel(heads, of_all(100, 97))[0] == numbers);
}
