#include "kernels/cuda/latent.cuh"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/catch.hpp"
#include "tests/cuda_emulated/stored_rows.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::uint32_t heads = 16, k_width = 576, v_width = 512;
  std::vector<std::uint32_t> lengths;  // of each sequence; of a prompt: its tokens alone
  std::uint32_t item = kItemSlots;
  std::uint32_t window = 0;
  float softcap = 0;
  float row_size = 1;  // of quantised rows; logits stay as large as they are
};

// Rows, queries and positions of one launch, and what it gives.
struct Run {
  StoredRows rows;
  std::vector<std::uint32_t> positions;
  std::vector<float> q, out, log_sums, logits;
  LatentArguments arguments;
};

Run make_run(const Case& c, Stored type, std::uint32_t queries, std::uint32_t slots) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  Run run;
  run.rows = stored_rows(type, slots, c.k_width, random);
  for (float& x : run.rows.values) x *= c.row_size;
  for (float& x : run.rows.scales) x *= c.row_size;
  run.q.resize(std::size_t{queries} * c.heads * c.k_width);
  // As a prompt's queries of such a cache come: rounded to 16 bits.
  for (float& x : run.q) {
    const DType as = type == Stored::kBF16 ? DType::kBF16 : DType::kF16;
    std::byte bits[2];
    x = normal(random);
    convert_from_float(as, {&x, 1}, bits);
    convert_to_float(as, bits, {&x, 1});
  }
  run.out.assign(std::size_t{queries} * c.heads * c.v_width, kPoison);
  LatentArguments& a = run.arguments;
  a.key_row_bytes = run.rows.row_bytes;
  a.q = run.q.data();
  a.heads = c.heads;
  a.head_dim = c.k_width;
  a.value_dim = c.v_width;
  a.scale = 0.05F / c.row_size;
  a.softcap = c.softcap;
  a.window = c.window;
  a.out = run.out.data();
  return run;
}

struct Twin {
  std::vector<double> logits, out;
  double log_sum = 0;
};

// One query head over rows [first, first + count), in double precision.
Twin twin_of(const Case& c, const Run& run, std::size_t q_row, std::size_t first, std::uint32_t count,
             std::uint32_t query) {
  Twin twin;
  twin.out.assign(c.v_width, 0);
  const float* q = run.q.data() + q_row * c.k_width;
  double highest = -1e300;
  for (std::size_t s = first; s < first + count; ++s) {
    double dot = 0;
    for (std::uint32_t i = 0; i < c.k_width; ++i) {
      dot += static_cast<double>(q[i]) * static_cast<double>(run.rows.values[s * c.k_width + i]);
    }
    double logit = static_cast<double>(run.arguments.scale) * dot;
    const auto cap = static_cast<double>(c.softcap);
    if (cap > 0) logit = cap * std::tanh(logit / cap);
    if (c.window > 0 && run.positions[s] + c.window <= query) logit = -1e30;
    twin.logits.push_back(logit);
    highest = std::max(highest, logit);
  }
  double total = 0;
  for (const double logit : twin.logits) total += std::exp(logit - highest);
  for (std::size_t s = 0; s < count; ++s) {
    const double weight = std::exp(twin.logits[s] - highest) / total;
    for (std::uint32_t i = 0; i < c.v_width; ++i) {
      twin.out[i] += weight * static_cast<double>(run.rows.values[(first + s) * c.k_width + i]);
    }
  }
  twin.log_sum = highest + std::log(total);
  return twin;
}

// Weights are rounded to 16 bits before they meet v; logits are not.
void check_row(const Case& c, const Run& run, const Twin& twin, std::size_t q_row, float log_sum, double rounding) {
  double largest = 0;
  for (const double x : twin.out) largest = std::max(largest, std::abs(x));
  for (std::uint32_t i = 0; i < c.v_width; ++i) {
    const double got = run.out[q_row * c.v_width + i];
    REQUIRE(std::isfinite(got));
    CHECK(std::abs(got - twin.out[i]) <= rounding * largest);
  }
  CHECK(log_sum == Approx(twin.log_sum).epsilon(1e-4).margin(1e-3));
}

constexpr double rounding_of(Stored type) { return type == Stored::kBF16 ? 1e-2 : 2e-3; }

template <Stored kType>
void check_items(const Case& c, unsigned blocks) {
  std::uint32_t slots = 0;
  for (const std::uint32_t length : c.lengths) slots += length + 3;
  const auto sequences = static_cast<std::uint32_t>(c.lengths.size());
  Run run = make_run(c, kType, sequences, slots);
  for (std::uint32_t s = 0; s < slots; ++s) run.positions.push_back((s * 37) % 997);
  const std::uint32_t passes = (c.heads + kLatentHeads - 1) / kLatentHeads;
  run.logits.assign(std::size_t{passes} * slots * kLatentHeads, kPoison);
  std::vector<AttentionUnit> units;
  std::vector<std::uint32_t> items, query;
  std::uint32_t first = 0;
  for (std::uint32_t s = 0; s < sequences; ++s) {
    query.push_back(1000 + s);
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
      const std::uint32_t heads = std::min(kLatentHeads, c.heads - pass * kLatentHeads);
      AttentionUnit unit{{}, s, pass * kLatentHeads, heads, c.lengths[s], static_cast<std::uint32_t>(items.size())};
      unit.slots.keys = run.rows.bytes.data() + std::size_t{first} * run.rows.row_bytes;
      unit.slots.key_scales = run.rows.scales.data() + first;
      unit.slots.positions = run.positions.data() + first;
      unit.slots.logits = run.logits.data() + (std::size_t{pass} * slots + first) * kLatentHeads;
      items.insert(items.end(), (c.lengths[s] + c.item - 1) / c.item, static_cast<std::uint32_t>(units.size()));
      units.push_back(unit);
    }
    first += c.lengths[s] + 3;
  }
  LatentArguments& a = run.arguments;
  a.units = units.data();
  a.items = items.data();
  a.item_count = static_cast<std::uint32_t>(items.size());
  a.item_slots = c.item;
  a.block_items = (a.item_count + blocks - 1) / blocks;
  a.most_splits = blocks_of(a);
  const std::size_t splits = units.size() * a.most_splits * kLatentHeads;
  std::vector<float> split_max(splits, kPoison), split_sum(splits, kPoison), split_out(splits * kLatentValue, kPoison);
  std::vector<unsigned> finished(units.size(), 0);
  run.log_sums.assign(units.size() * kLatentHeads, kPoison);
  a.query = query.data();
  a.unit_heads = kLatentHeads;
  a.split_max = split_max.data();
  a.split_sum = split_sum.data();
  a.split_out = split_out.data();
  a.finished = finished.data();
  a.log_sums = run.log_sums.data();
  emulator::run({blocks_of(a)}, {kAttentionThreads}, [&] { latent_attention<kType>(a); });
  for (std::size_t u = 0; u < units.size(); ++u) {
    CHECK(finished[u] == 0);
    const std::uint32_t sequence = units[u].sequence;
    const auto row = static_cast<std::size_t>(units[u].slots.positions - run.positions.data());
    for (std::uint32_t g = 0; g < units[u].query_heads; ++g) {
      const std::size_t q_row = std::size_t{sequence} * c.heads + units[u].first_query_head + g;
      const Twin twin = twin_of(c, run, q_row, row, c.lengths[sequence], query[sequence]);
      check_row(c, run, twin, q_row, run.log_sums[u * kLatentHeads + g], rounding_of(kType));
      for (std::uint32_t s = 0; s < c.lengths[sequence]; ++s) {
        CHECK(units[u].slots.logits[s * kLatentHeads + g] == Approx(twin.logits[s]).epsilon(1e-4).margin(1e-3));
      }
    }
  }
}

template <Stored kType>
void check_prompt(const Case& c, std::uint32_t storage_heads) {
  const std::uint32_t tokens = c.lengths[0];
  Run run = make_run(c, kType, tokens, storage_heads * tokens);
  std::vector<CacheSlots> slots(storage_heads);
  for (std::uint32_t s = 0; s < storage_heads * tokens; ++s) run.positions.push_back(s % tokens);
  for (std::uint32_t s = 0; s < storage_heads; ++s) {
    slots[s].keys = run.rows.bytes.data() + std::size_t{s} * tokens * run.rows.row_bytes;
    slots[s].key_scales = run.rows.scales.data() + s * tokens;
    slots[s].positions = run.positions.data() + s * tokens;
  }
  run.log_sums.assign(std::size_t{c.heads} * tokens, kPoison);
  LatentArguments& a = run.arguments;
  a.prompt = slots.data();
  a.tokens = tokens;
  a.group = c.heads / storage_heads;
  a.log_sums = run.log_sums.data();
  const unsigned passes = (a.group + kLatentHeads - 1) / kLatentHeads;
  emulator::run({tokens * storage_heads * passes}, {kAttentionThreads}, [&] { latent_attention<kType>(a); });
  for (std::uint32_t t = 0; t < tokens; ++t) {
    for (std::uint32_t h = 0; h < c.heads; ++h) {
      const std::size_t q_row = std::size_t{t} * c.heads + h;
      const Twin twin = twin_of(c, run, q_row, std::size_t{h / a.group} * tokens, t + 1, t);
      check_row(c, run, twin, q_row, run.log_sums[std::size_t{h} * tokens + t], rounding_of(kType));
    }
  }
}

}  // namespace

TEST_CASE("latent decode attention equals attention in double precision, however rows are cut and heads shared out") {
  check_items<Stored::kBF16>({.lengths = {1, 70}}, 2);
  check_items<Stored::kF16>({.heads = 20, .k_width = 72, .v_width = 56, .lengths = {2, 33, 130}, .item = 32}, 3);
  check_items<Stored::kF16>({.heads = 3, .k_width = 200, .v_width = 136, .lengths = {90}, .item = 7, .window = 500}, 1);
}

TEST_CASE("latent rows of int8 and int4 have one scale, which k and v share") {
  check_items<Stored::kInt8>({.heads = 4, .k_width = 96, .v_width = 64, .lengths = {5, 66}}, 2);
  check_items<Stored::kInt4>({.heads = 4, .k_width = 96, .v_width = 64, .lengths = {35}, .softcap = 2}, 2);
}

TEST_CASE("quantised latent rows weigh what they weigh, however small or large their elements are") {
  for (const float size : {1e-4F, 1e-2F, 300.0F}) {
    check_items<Stored::kInt8>({.heads = 2, .k_width = 96, .v_width = 64, .lengths = {66}, .row_size = size}, 1);
    check_items<Stored::kInt4>({.heads = 2, .k_width = 96, .v_width = 64, .lengths = {66}, .row_size = size}, 1);
    check_prompt<Stored::kInt8>({.heads = 2, .k_width = 72, .v_width = 56, .lengths = {9}, .row_size = size}, 1);
  }
}

TEST_CASE("a prompt's tokens meet the latent rows before them, whatever the heads share") {
  check_prompt<Stored::kF16>({.heads = 2, .k_width = 96, .v_width = 64, .lengths = {40}}, 1);
  check_prompt<Stored::kBF16>({.heads = 18, .k_width = 72, .v_width = 56, .lengths = {5}}, 1);
  check_prompt<Stored::kF16>({.heads = 4, .k_width = 72, .v_width = 56, .lengths = {21}, .window = 6}, 2);
  check_prompt<Stored::kInt8>({.heads = 2, .k_width = 72, .v_width = 56, .lengths = {9}}, 1);
}
