// Many tokens that go at once, against a plain sort; what greedy decoding takes, against the sampler of the host.
#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "tests/gpu/suite/choice_review.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

constexpr std::uint32_t kHeads = 3;

// Whether each head's bits are those of its `count` lowest (score, position) before `end`. `values`: of the scores.
bool choice_is_exact(std::uint32_t length, std::uint32_t count, std::uint32_t values, std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t end = length - length / 5, words = (length + 31) / 32;
  std::vector<std::uint32_t> states, positions, expected(kHeads * words);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    std::vector<std::uint32_t> places(length);
    std::iota(places.begin(), places.end(), 0U);
    std::shuffle(places.begin(), places.end(), random);
    std::vector<std::pair<std::pair<float, std::uint32_t>, std::uint32_t>> order;
    for (std::uint32_t s = 0; s < length; ++s) {
      const float score = static_cast<float>(random() % values) / 1000.0F;
      states.push_back(std::bit_cast<std::uint32_t>(score));
      positions.push_back(places[s]);
      if (places[s] < end) order.push_back({{score, places[s]}, s});
    }
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < std::min<std::size_t>(count, order.size()); ++i) {
      expected[h * words + order[i].second / 32] |= 1U << order[i].second % 32;
    }
  }
  OpenStream open;
  Stream& stream = open.get();
  const DeviceBuffer device_states = uploaded(stream, states), device_positions = uploaded(stream, positions);
  std::vector<CacheSlots> slots(kHeads);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    slots[h].state = device_states.at<std::uint32_t>(std::size_t{4} * h * length);
    slots[h].positions = device_positions.at<std::uint32_t>(std::size_t{4} * h * length);
  }
  const DeviceBuffer device_slots = uploaded(stream, slots), chosen = poisoned(stream, expected.size() * 4);
  ChooseArguments a;
  a.slots = device_slots.at<CacheSlots>();
  a.heads = kHeads;
  a.length = length;
  a.end = end;
  a.count = count;
  a.chosen = chosen.at<std::uint32_t>();
  run_choose_lowest(stream, a);
  return downloaded<std::uint32_t>(stream, chosen, expected.size()) == expected;
}

// Rows of logits as long as vocabularies: normal ones, of which the largest is there twice in each second row.
ChoiceReview review_of_rows(std::uint32_t rows, std::uint32_t vocab, std::uint64_t seed) {
  Random random(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(std::size_t{rows} * vocab);
  for (float& x : logits) x = normal(random);
  for (std::uint32_t r = 1; r < rows; r += 2) {
    const auto row = std::span(logits).subspan(std::size_t{r} * vocab, vocab);
    row[random() % vocab] = *std::max_element(row.begin(), row.end());
  }
  OpenStream open;
  Stream& stream = open.get();
  const DeviceBuffer device = uploaded(stream, logits), chosen = poisoned(stream, rows * sizeof(DeviceChoice));
  run_choose_token(stream, {device.at<float>(), rows, vocab, chosen.at<DeviceChoice>()});
  const auto got = downloaded<DeviceChoice>(stream, chosen, rows);
  ChoiceReview review;
  for (std::uint32_t r = 0; r < rows; ++r) {
    review.add(got[r].token, got[r].logprob, std::span<const float>(logits).subspan(std::size_t{r} * vocab, vocab));
  }
  return review;
}

void check_greedy(const Options& options, Report& report) {
  std::uint64_t seed = options.seed + 6500;
  for (const std::uint32_t vocab : {1U, 1023U, 16385U, 50257U, 128256U, 262144U}) {
    if (options.small && vocab > 16385) continue;
    for (const std::uint32_t rows : {1U, 3U, 64U}) {
      if (options.small && rows > 3) continue;
      const Json parameters = {{"rows", rows}, {"vocab", vocab}};
      ++seed;
      report.guarded("greedy_choice", parameters, [&] {
        const ChoiceReview review = review_of_rows(rows, vocab, seed);
        Json results = review.results();
        results["seed"] = seed;
        report.check("greedy_choice", parameters, review.agrees(), results);
      });
    }
  }
}

}  // namespace

void check_choice(const Options& options, Report& report) {
  std::uint64_t seed = options.seed + 6000;
  for (const std::uint32_t length : {1U, 2U, 511U, 512U, 513U, 4095U, 32768U}) {
    if (options.small && length > 513) continue;
    for (const std::uint32_t values : {1U, 7U, 1U << 24}) {
      for (const std::uint32_t count : {1U, length / 2, length}) {
        if (count == 0) continue;
        const Json parameters = {{"heads", kHeads}, {"length", length}, {"values", values}, {"count", count}};
        ++seed;
        report.guarded("top_k", parameters, [&] {
          report.check("top_k", parameters, choice_is_exact(length, count, values, seed), {{"seed", seed}});
        });
      }
    }
  }
  check_greedy(options, report);
}

}  // namespace kvroof::suite
