#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/emulator.hpp"
#include "tests/catch.hpp"
#include "tests/cuda_emulated/stored_rows.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

struct Case {
  std::uint32_t kv_heads = 2, group = 1, head_dim = 128, value_dim = 128;
  std::vector<std::uint32_t> lengths;  // of each unit, sequence by sequence
  std::uint32_t item = kItemSlots;     // slots of one item
  float softcap = 0;
  std::uint32_t window = 0;
  bool alibi = false;
  bool sinks = false;
};

// What one launch works on, and its results.
struct Run {
  std::vector<std::uint32_t> items;
  std::vector<AttentionUnit> units;
  std::vector<std::uint64_t> first_row;  // of each unit
  StoredRows keys, values;
  std::vector<std::uint32_t> positions, query;
  std::vector<float> q, alibi, sinks, split_max, split_sum, split_out, logits, log_sums, out;
  std::vector<unsigned> finished;
  AttentionArguments arguments;
};

// Memory that nothing was written to: no number in 16-bit rows, nor in scales.
void spoil_rows(StoredRows& rows, std::uint64_t first, std::uint64_t count) {
  const auto at = rows.bytes.begin() + static_cast<std::ptrdiff_t>(first * rows.row_bytes);
  std::fill_n(at, count * rows.row_bytes, std::byte{0xff});
  if (rows.scales.empty()) return;
  std::fill_n(rows.scales.begin() + static_cast<std::ptrdiff_t>(first), count, std::numeric_limits<float>::quiet_NaN());
}

// The items of all units, for up to `blocks` blocks.
KvSchedule cut(const Case& c, unsigned blocks, Run& run) {
  KvSchedule schedule;
  for (std::uint32_t u = 0; u < run.units.size(); ++u) {
    run.units[u].first_item = static_cast<std::uint32_t>(run.items.size());
    run.items.insert(run.items.end(), (run.units[u].length + c.item - 1) / c.item, u);
  }
  schedule.units = run.units.data();
  schedule.items = run.items.data();
  schedule.item_count = static_cast<std::uint32_t>(run.items.size());
  schedule.item_slots = c.item;
  schedule.block_items = (schedule.item_count + blocks - 1) / blocks;
  schedule.most_splits = blocks_of(schedule);
  return schedule;
}

Run make_run(const Case& c, Stored type, unsigned group, unsigned width, std::uint32_t seed, unsigned blocks = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Run run;
  std::uint64_t rows = 0;
  for (std::uint32_t u = 0; u < c.lengths.size(); ++u) {
    run.first_row.push_back(rows);
    rows += c.lengths[u] + 3;  // capacity beyond the length
    run.units.push_back({{}, u / c.kv_heads, u % c.kv_heads * c.group, c.group, c.lengths[u], 0});
  }
  const auto sequences = static_cast<std::uint32_t>(c.lengths.size()) / c.kv_heads;
  const std::uint32_t heads = c.kv_heads * c.group;
  run.keys = stored_rows(type, rows, c.head_dim, random);
  run.values = stored_rows(type, rows, c.value_dim, random);
  for (std::uint64_t r = 0; r < rows; ++r) run.positions.push_back(static_cast<std::uint32_t>(random() % 1000));
  for (std::uint32_t s = 0; s < sequences; ++s) run.query.push_back(1000 + s);
  for (std::uint32_t i = 0; i < sequences * heads * c.head_dim; ++i) run.q.push_back(normal(random));
  for (std::uint32_t h = 0; h < heads; ++h) run.alibi.push_back(0.01F * static_cast<float>(h + 1));
  for (std::uint32_t h = 0; h < heads; ++h) run.sinks.push_back(1.5F * static_cast<float>(h % 5) - 2);
  const KvSchedule schedule = cut(c, blocks, run);
  const std::size_t splits = c.lengths.size() * schedule.most_splits * group;
  const float poison = std::numeric_limits<float>::quiet_NaN();
  run.split_max.assign(splits, poison);
  run.split_sum.assign(splits, poison);
  run.split_out.assign(splits * width, poison);
  run.logits.assign(rows * group, poison);
  run.log_sums.assign(c.lengths.size() * group, poison);
  run.out.assign(std::size_t{sequences} * heads * c.value_dim, poison);
  run.finished.assign(c.lengths.size(), 0);
  for (std::size_t u = 0; u < run.units.size(); ++u) {
    const std::uint64_t row = run.first_row[u];
    spoil_rows(run.keys, row + c.lengths[u], 3);
    spoil_rows(run.values, row + c.lengths[u], 3);
    run.units[u].slots = {run.keys.bytes.data() + row * run.keys.row_bytes,
                          run.values.bytes.data() + row * run.values.row_bytes,
                          run.keys.scales.data() + row, run.values.scales.data() + row,
                          run.positions.data() + row, run.logits.data() + row * group};
  }
  run.arguments = {schedule, run.keys.row_bytes, run.values.row_bytes, run.q.data(), run.query.data(), heads,
                   c.head_dim, c.value_dim, 0.1F, c.softcap, c.window, c.alibi ? run.alibi.data() : nullptr,
                   c.sinks ? run.sinks.data() : nullptr, group,
                   run.split_max.data(), run.split_sum.data(), run.split_out.data(),
                   run.finished.data(), run.log_sums.data(), run.out.data()};
  return run;
}

// The same in double precision, one query head after the other.
void check_against_twin(const Case& c, const Run& run, unsigned group) {
  for (std::uint32_t u = 0; u < c.lengths.size(); ++u) {
    const AttentionUnit& unit = run.units[u];
    for (std::uint32_t g = 0; g < c.group; ++g) {
      const std::uint32_t head = unit.first_query_head + g;
      const float* q = run.q.data() + (std::size_t{unit.sequence} * c.kv_heads * c.group + head) * c.head_dim;
      std::vector<double> logits(c.lengths[u]);
      double highest = -1e300;
      for (std::uint32_t s = 0; s < c.lengths[u]; ++s) {
        const std::uint64_t row = run.first_row[u] + s;
        double dot = 0;
        for (std::uint32_t i = 0; i < c.head_dim; ++i) {
          dot += static_cast<double>(q[i]) * static_cast<double>(run.keys.values[row * c.head_dim + i]);
        }
        double logit = 0.1 * dot;
        if (c.softcap > 0) logit = c.softcap * std::tanh(logit / c.softcap);
        const double distance = static_cast<double>(run.positions[row]) - run.query[unit.sequence];
        if (c.alibi) logit += static_cast<double>(run.alibi[head]) * distance;
        if (c.window > 0 && run.positions[row] + c.window <= run.query[unit.sequence]) logit = -1e30;
        CHECK(run.logits[row * group + g] == Approx(logit).epsilon(1e-5).margin(1e-4));
        logits[s] = logit;
        highest = std::max(highest, logit);
      }
      const double sink = static_cast<double>(run.sinks[head]);
      if (c.sinks) highest = std::max(highest, sink);
      double total = c.sinks ? std::exp(sink - highest) : 0;
      for (double& logit : logits) total += logit = logit <= -1e29 ? 0 : std::exp(logit - highest);
      CHECK(run.log_sums[u * group + g] == Approx(highest + std::log(total)).epsilon(1e-5).margin(1e-4));
      for (std::uint32_t i = 0; i < c.value_dim; ++i) {
        double sum = 0;
        for (std::uint32_t s = 0; s < c.lengths[u]; ++s) {
          sum += logits[s] / total * static_cast<double>(run.values.values[(run.first_row[u] + s) * c.value_dim + i]);
        }
        const std::size_t at = (std::size_t{unit.sequence} * c.kv_heads * c.group + head) * c.value_dim + i;
        CHECK(run.out[at] == Approx(sum).epsilon(1e-4).margin(1e-4));
      }
    }
    CHECK(run.finished[u] == 0);
  }
}

template <Stored kType, unsigned kWidth>
void check_case(const Case& c, unsigned blocks) {
  Run run = make_run(c, kType, c.group, kWidth, 7, blocks);
  emulator::run({blocks_of(run.arguments)}, {kAttentionThreads},
                [&] { decode_attention<kType, kWidth>(run.arguments); });
  check_against_twin(c, run, c.group);
}

}  // namespace

TEST_CASE("decode attention equals attention in double precision for ragged units, however they are split") {
  const std::vector<std::uint32_t> ragged = {1, 2, 31, 300};
  check_case<Stored::kBF16, 128>({.kv_heads = 2, .lengths = ragged}, 1);
  check_case<Stored::kBF16, 128>({.kv_heads = 2, .lengths = ragged, .item = 7}, 5);
  check_case<Stored::kF16, 64>({.group = 4, .head_dim = 64, .value_dim = 64, .lengths = ragged, .item = 64}, 3);
  check_case<Stored::kBF16, 256>({.group = 2, .head_dim = 256, .value_dim = 256, .lengths = ragged}, 2);
}

TEST_CASE("a sink has its share of the attention of its head, once, whatever splits a unit is cut into") {
  const std::vector<std::uint32_t> ragged = {1, 2, 31, 300};
  check_case<Stored::kBF16, 128>({.kv_heads = 2, .lengths = ragged, .sinks = true}, 1);
  check_case<Stored::kBF16, 128>({.kv_heads = 2, .group = 3, .lengths = ragged, .item = 7, .sinks = true}, 5);
  check_case<Stored::kF16, 64>(
      {.group = 8, .head_dim = 64, .value_dim = 64, .lengths = ragged, .item = 64, .window = 900, .sinks = true}, 3);
  check_case<Stored::kInt8, 128>({.group = 4, .lengths = ragged, .item = 16, .sinks = true}, 4);
  check_case<Stored::kInt4, 128>({.group = 2, .lengths = ragged, .sinks = true}, 2);
}

TEST_CASE("what is brought ahead of its use ends with the rows, though units are longer") {
  constexpr std::uint32_t kPlanned = 300, kLength = 70;
  Run run = make_run({.kv_heads = 2, .lengths = {kPlanned, kPlanned}}, Stored::kBF16, 1, 128, 7, 10);
  REQUIRE(run.arguments.block_items == 1);
  const std::vector<StepRow> rows = {{.length = kLength}};
  std::vector<const std::byte*> lines;
  const auto lines_of = [&](const StepRow* of) {
    lines.clear();
    run.arguments.rows = of;
    emulator::prefetched = &lines;
    emulator::run({blocks_of(run.arguments)}, {kAttentionThreads},
                  [&] { decode_attention<Stored::kBF16, 128>(run.arguments); });
    emulator::prefetched = nullptr;
    return lines.size();
  };
  // Rows of 256 bytes are two lines of 128; a block of four warps has all 64 slots of its item brought.
  CHECK(lines_of(nullptr) == 2 * 2 * 2 * kPlanned);
  CHECK(lines_of(rows.data()) == 2 * 2 * 2 * kLength);
  for (const std::byte* line : lines) {
    bool within = false;
    for (const AttentionUnit& unit : run.units) {
      for (const std::byte* first : {unit.slots.keys, unit.slots.values}) {
        within = within || (line >= first && line < first + std::size_t{kLength} * run.keys.row_bytes);
      }
    }
    CHECK(within);
  }
}

TEST_CASE("each query head of a group has a running softmax of its own, over as many tiles as a warp meets") {
  check_case<Stored::kBF16, 128>({.kv_heads = 1, .group = 8, .lengths = {300}}, 1);
  check_case<Stored::kF16, 64>({.kv_heads = 1, .group = 5, .head_dim = 64, .value_dim = 64, .lengths = {400}}, 1);
  check_case<Stored::kInt8, 128>({.kv_heads = 1, .group = 8, .lengths = {300}}, 1);
  check_case<Stored::kInt4, 64>({.kv_heads = 1, .group = 6, .head_dim = 64, .value_dim = 64, .lengths = {400}}, 1);
}

TEST_CASE("many tokens far below the highest are not lost in f16, whose numbers end at 2^-25 of it") {
  const Case c{.kv_heads = 1, .head_dim = 64, .value_dim = 64, .lengths = {1000}};
  Run run = make_run(c, Stored::kF16, 1, 64, 7);
  std::fill(run.q.begin(), run.q.end(), 0.0F);
  run.q[0] = 1;
  const auto fill = [](StoredRows& rows, float first, float others) {
    for (std::size_t i = 0; i < rows.values.size(); ++i) rows.values[i] = i < 64 ? first : others;
    for (std::size_t r = 0; r < rows.values.size() / 64; ++r) {
      const auto row = std::span(rows.values).subspan(r * 64, 64);
      convert_from_float(DType::kF16, row, rows.bytes.data() + r * rows.row_bytes);
    }
  };
  fill(run.keys, 0, -180);    // logits of 0 and -18 with the scale of 0.1
  fill(run.values, 0, 1000);
  emulator::run({1}, {kAttentionThreads}, [&] { decode_attention<Stored::kF16, 64>(run.arguments); });
  CHECK(run.out[5] == Approx(999e3 * std::exp(-18.0)).epsilon(1e-3));
}

TEST_CASE("head sizes between the widths and groups that are no power of two are padded, not read") {
  check_case<Stored::kBF16, 128>({.head_dim = 80, .value_dim = 80, .lengths = {17, 65}}, 2);
  check_case<Stored::kF16, 128>({.group = 3, .head_dim = 96, .value_dim = 64, .lengths = {33, 64}}, 2);
  check_case<Stored::kBF16, 128>({.group = 7, .lengths = {9, 40}}, 2);
  check_case<Stored::kInt8, 128>({.group = 2, .head_dim = 72, .value_dim = 88, .lengths = {33, 64}}, 2);
  check_case<Stored::kInt4, 128>({.group = 2, .head_dim = 72, .value_dim = 104, .lengths = {33, 64}}, 2);
  check_case<Stored::kInt4, 256>({.head_dim = 136, .value_dim = 8, .lengths = {17, 65}}, 2);
}

TEST_CASE("a query that is rounded as the keys are is not rounded again before it meets them") {
  const Case c = {.kv_heads = 1, .head_dim = 8, .value_dim = 8, .lengths = {33}};
  Run run = make_run(c, Stored::kBF16, 1, 64, 11);
  // A product alone, so that its digits are all that a logit has: 1 + 1/128 is a bf16, a tenth of it has more digits.
  std::fill(run.q.begin(), run.q.end(), 0.0F);
  run.q[5] = 1.0078125F;
  emulator::run({1}, {kAttentionThreads}, [&] { decode_attention<Stored::kBF16, 64>(run.arguments); });
  for (std::uint32_t s = 0; s < c.lengths[0]; ++s) {
    CHECK(run.logits[s] == run.arguments.scale * (run.q[5] * run.keys.values[s * c.head_dim + 5]));
  }
}

TEST_CASE("int8 and int4 rows are read with the scale of their row") {
  check_case<Stored::kInt8, 128>({.group = 2, .lengths = {5, 130}}, 2);
  check_case<Stored::kInt4, 64>({.group = 4, .head_dim = 64, .value_dim = 64, .lengths = {5, 130}}, 2);
  check_case<Stored::kInt4, 256>({.head_dim = 256, .value_dim = 256, .lengths = {3, 70}}, 1);
}

// Values of which the largest is `largest`.
template <Stored kType>
void check_large_values(float largest) {
  const Case c{.kv_heads = 1, .group = 2, .lengths = {200}};
  Run run = make_run(c, kType, 2, 128, 7);
  float by_now = 0;
  for (const float x : run.values.values) by_now = std::max(by_now, std::abs(x));
  const float factor = largest / by_now;
  for (float& x : run.values.values) x *= factor;
  for (float& x : run.values.scales) x *= factor;
  emulator::run({1}, {kAttentionThreads}, [&] { decode_attention<kType, 128>(run.arguments); });
  check_against_twin(c, run, 2);
}

TEST_CASE("int8 and int4 rows of values hold elements up to 1,700") {
  check_large_values<Stored::kInt8>(1700);
  check_large_values<Stored::kInt4>(1700);
}

TEST_CASE("soft-cap, ALiBi and window act on the scaled logit in that order") {
  check_case<Stored::kBF16, 128>({.group = 2, .lengths = {50, 90}, .softcap = 1.5F}, 2);
  check_case<Stored::kBF16, 128>({.group = 2, .lengths = {50, 90}, .alibi = true}, 2);
  check_case<Stored::kBF16, 128>({.group = 2, .lengths = {50, 90}, .item = 16, .softcap = 2, .window = 500,
      .alibi = true},
                                    2);
}

TEST_CASE("rows beyond those that are there are not met where units are as long as rows to come") {
  const Case c{.kv_heads = 2, .lengths = {300, 300, 200, 200}, .item = 16};
  for (const unsigned blocks : {1U, 3U, 7U}) {
    using Lengths = std::array<std::uint32_t, 2>;
    for (const Lengths lengths : {Lengths{300, 200}, Lengths{17, 199}, Lengths{1, 1}}) {
      Run run = make_run(c, Stored::kBF16, 1, 128, 7, blocks);
      const std::vector<StepRow> rows = {{lengths[0]}, {lengths[1]}};
      run.arguments.rows = rows.data();
      emulator::run({blocks_of(run.arguments)}, {kAttentionThreads},
                    [&] { decode_attention<Stored::kBF16, 128>(run.arguments); });
      Case shorter = c;
      shorter.lengths = {lengths[0], lengths[0], lengths[1], lengths[1]};
      check_against_twin(shorter, run, 1);
    }
  }
}

TEST_CASE("blocks take as many items to one, and none is so short that a split's sums outweigh an eighth of its rows") {
  struct Cut {
    KvSchedule schedule, thirds;
    std::uint64_t splits;  // of all units, at most
  };
  const auto cut = [](const std::vector<std::uint32_t>& lengths, std::uint32_t group, unsigned width,
                      std::uint64_t slot_bytes, std::uint32_t unit_heads = kMostGroup) {
    AttentionPlan plan(1, group, unit_heads);
    const CacheSlots slots;
    for (const std::uint32_t length : lengths) plan.add({&slots, 1}, 0, {&length, 1});
    plan.cut(100, width, slot_bytes);
    return Cut{plan.schedule(), plan.schedule(3), plan.splits()};
  };
  CHECK(cut({4096}, 1, 128, 512).schedule.item_slots == 64);
  CHECK(blocks_of(cut({4096}, 1, 128, 512).schedule) == 64);        // a block each
  CHECK(cut({4096}, 8, 128, 512).schedule.item_slots == 64);      // 4 KiB of sums, 512 bytes of a slot
  CHECK(cut({4096}, 8, 128, 136).schedule.item_slots == 256);     // int4
  CHECK(cut({4096}, 16, 512, 1152, kLatentHeads).schedule.item_slots == 256);
  CHECK(cut({64 * 250}, 1, 128, 512).schedule.block_items == 3);    // 84 blocks, the last takes one
  CHECK(cut({64 * 250}, 1, 128, 512).splits == 84);
  CHECK(cut({1 << 20}, 1, 128, 512).schedule.item_slots == 256);  // no more than 64 for each block
  CHECK(cut({1 << 20}, 1, 128, 512).schedule.block_items == 41);
  // 4,910 items, of which a block takes 50: the first 4,895 are those of 98.
  const Cut ragged = cut({64 * 9790, 640, 640, 640}, 1, 128, 512);
  CHECK(ragged.schedule.item_slots == 128);
  CHECK(ragged.schedule.block_items == 50);
  CHECK(ragged.schedule.most_splits == 98);
  // A third of 3 items is one, of 50 are 17: the first 4,895 are in 288 of those.
  CHECK(blocks_of(cut({64 * 250}, 1, 128, 512).thirds) == 250);
  CHECK(ragged.thirds.block_items == 17);
  CHECK(ragged.thirds.most_splits == 288);
}
