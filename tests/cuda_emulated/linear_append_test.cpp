// q, k and v of a decode step by one launch, against the product and the append of two, which have twins of their own.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/kernels.hpp"
#include "tests/catch.hpp"
#include "tests/cuda_emulated/stored_rows.hpp"

using namespace kvroof::cuda;

namespace {

struct Case {
  std::uint32_t tokens = 1, heads = 4, kv_heads = 2, dim = 64, value_dim = 64, copies = 1, cols = 72;
  Stored weights = Stored::kBF16, cache = Stored::kF16;
  HeadNorm norm = HeadNorm::kNone;
  float clip = 0;
  bool norm_last = false;
  kvroof::QueryScale query_scale = {};
  std::uint32_t splits = 1;  // of the columns
  unsigned multiprocessors = 0;  // of a device with room for two blocks on each; 0: any number
};

// Everything that a launch writes, from memory full of NaN.
class Outcome {
 public:
  Outcome(const Case& c, bool at_once) : c_(c), random_(17) {
    const std::uint32_t storage = c.kv_heads * c.copies;
    const std::uint32_t rows = c.heads * c.dim + c.kv_heads * (c.dim + c.value_dim);
    const StoredRows w = stored_rows(c.weights, rows, c.cols, random_), bias = stored_rows(c.weights, 1, rows, random_);
    const StoredRows scale = stored_rows(c.weights, 1, c.cols, random_);
    const StoredRows q_norm = stored_rows(c.weights, 1, c.dim, random_), k_norm = q_norm;
    const std::vector<float> x = numbers(c.tokens * c.cols), cos_sin = numbers(c.tokens * c.dim);
    products_.assign(c.tokens * rows, std::numeric_limits<float>::quiet_NaN());
    queries_.assign(c.tokens * c.heads * c.dim, std::numeric_limits<float>::quiet_NaN());
    const std::uint32_t bits = c.cache == Stored::kInt8 ? 8 : c.cache == Stored::kInt4 ? 4 : 16;
    PrepareArguments p;
    p.key_row_bytes = (c.dim * bits + 127) / 128 * 16;
    p.value_row_bytes = (c.value_dim * bits + 127) / 128 * 16;
    const std::size_t slots = std::size_t{c.tokens} * storage * kSlots;
    keys_.assign(slots * p.key_row_bytes, std::byte{0xff});
    values_.assign(slots * p.value_row_bytes, std::byte{0xff});
    for (auto* scales : {&key_scales_, &value_scales_}) scales->assign(slots, -1);
    positions_.assign(slots, 0xffffffffU);
    std::vector<CacheSlots> table;
    std::vector<std::uint32_t> next(c.tokens * storage);
    for (std::size_t i = 0; i < next.size(); ++i) {
      next[i] = static_cast<std::uint32_t>((3 * i + 1) % kSlots);
      table.push_back({keys_.data() + i * kSlots * p.key_row_bytes, values_.data() + i * kSlots * p.value_row_bytes,
                       key_scales_.data() + i * kSlots, value_scales_.data() + i * kSlots,
                       positions_.data() + i * kSlots, nullptr, nullptr, 0, &next[i]});
    }
    std::vector<StepRow> step_rows(c.tokens);
    std::vector<std::uint32_t> query_positions;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      if (t % 2 == 0) step_rows[t].slot = t % kSlots;  // else: of the head's last victim
      query_positions.push_back(90 + 3 * t);
    }
    LinearArguments a;
    a.x = x.data();
    a.tokens = c.tokens;
    a.norm = NormMode::kRms;
    a.norm_scale = scale.bytes.data();
    a.w = {w.bytes.data(), rows, c.cols};
    a.bias = bias.bytes.data();
    a.out = products_.data();
    p.tokens = c.tokens;
    const float* k = products_.data() + c.heads * c.dim;
    const std::byte* q_scale = c.norm == HeadNorm::kNone ? nullptr : q_norm.bytes.data();
    const std::byte* k_scale = c.norm == HeadNorm::kNone ? nullptr : k_norm.bytes.data();
    p.q = {{products_.data(), rows, c.dim}, c.heads, c.dim, q_scale, nullptr, true};
    p.k = {{k, rows, c.dim}, c.kv_heads, c.dim, k_scale, nullptr, true};
    p.v = {{k + c.kv_heads * c.dim, rows, c.value_dim}, c.kv_heads, c.value_dim, nullptr, nullptr, false};
    p.clip = c.clip;
    p.norm = c.norm;
    p.norm_eps = 1e-5F;
    p.norm_last = c.norm_last;
    p.query_scale = c.query_scale;
    p.rotary_pairs = c.dim / 2;
    p.cos_sin = cos_sin.data();
    p.positions = query_positions.data();
    p.slots = table.data();
    p.rows = step_rows.data();
    p.copies = c.copies;
    p.q_out = queries_.data();
    finished_.assign(c.heads + 2 * c.kv_heads, 0);
    const std::size_t row_blocks = (rows + kSplitRows - 1) / kSplitRows;
    sums_.assign(row_blocks * c.splits * kSplitFloats, std::numeric_limits<float>::quiet_NaN());
    joined_.assign(row_blocks, 0);
    a.split_k = {c.splits, sums_.data(), joined_.data()};
    if (c.weights == Stored::kF16 && c.tokens > 4) a.norms = norms_.data();
    Stream stream;
    stream.multiprocessors = c.multiprocessors;
    if (at_once) {
      run_linear_append(stream, c.weights, {a, p, c.cache, finished_.data()});
    } else {
      run_linear(stream, c.weights, a);
      run_prepare(stream, c.weights, c.cache, p);
    }
  }

  void check_as(const Outcome& other) const {
    CHECK(products_ == other.products_);
    CHECK(queries_ == other.queries_);
    CHECK(keys_ == other.keys_);
    CHECK(values_ == other.values_);
    CHECK(key_scales_ == other.key_scales_);
    CHECK(value_scales_ == other.value_scales_);
    CHECK(positions_ == other.positions_);
    for (const unsigned done : finished_) CHECK(done == 0);
    for (const unsigned done : joined_) CHECK(done == 0);
  }

 private:
  static constexpr std::uint32_t kSlots = 5;
  std::vector<float> numbers(std::size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> out(count);
    for (float& v : out) v = normal(random_);
    return out;
  }

  const Case& c_;
  std::mt19937 random_;
  std::vector<float> products_, queries_, key_scales_, value_scales_;
  std::vector<std::byte> keys_, values_;
  std::vector<std::uint32_t> positions_;
  std::vector<unsigned> finished_, joined_;
  std::vector<float> sums_, norms_ = std::vector<float>(2 * kLargeTile, std::numeric_limits<float>::quiet_NaN());
};

void check_alike(const Case& c) {
  INFO("tokens " << c.tokens << ", head size " << c.dim << " and " << c.value_dim);
  Outcome(c, true).check_as(Outcome(c, false));
}

}  // namespace

TEST_CASE("the heads of q, k and v made and appended by one launch are those of a product and an append, bit for bit") {
  check_alike({});
  for (const std::uint32_t dim : {80U, 96U, 128U, 256U}) check_alike({.dim = dim, .value_dim = dim});
  for (const Stored cache : {Stored::kBF16, Stored::kInt8, Stored::kInt4}) {
    check_alike({.tokens = 2, .dim = 96, .value_dim = 64, .weights = Stored::kF16, .cache = cache});
  }
  check_alike({.tokens = 4, .heads = 3, .kv_heads = 1, .dim = 40, .value_dim = 24, .copies = 3, .clip = 2.5F});
  check_alike({.tokens = 3, .kv_heads = 4, .dim = 128, .value_dim = 128, .norm = HeadNorm::kHead});
  check_alike({.tokens = 3, .norm = HeadNorm::kHead, .norm_last = true, .query_scale = {0.3F, 24}});
}

TEST_CASE("blocks that make several rounds of rows append the heads that end within them, bit for bit") {
  check_alike({.heads = 5, .dim = 80, .value_dim = 40, .multiprocessors = 1});
  check_alike({.tokens = 3, .heads = 3, .kv_heads = 3, .dim = 24, .value_dim = 24, .copies = 2, .cols = 4104,
               .multiprocessors = 2});
}

TEST_CASE("a batch's q, k and v by the tensor cores are appended by the same launch, bit for bit") {
  check_alike({.tokens = 5, .dim = 80, .value_dim = 80});
  check_alike({.tokens = 16, .dim = 256, .value_dim = 128, .cache = Stored::kInt8, .norm = HeadNorm::kHead});
  check_alike({.tokens = 17, .heads = 6, .kv_heads = 3, .dim = 64, .value_dim = 64, .copies = 2, .clip = 1});
  check_alike({.tokens = 64, .dim = 128, .value_dim = 128, .weights = Stored::kF16, .cache = Stored::kBF16});
  check_alike({.tokens = 9, .cols = 296, .weights = Stored::kF16});
}

TEST_CASE("of blocks that share columns the one that finishes the rows goes on with their heads, bit for bit") {
  check_alike({.tokens = 17, .heads = 6, .kv_heads = 3, .copies = 2, .cols = 520, .clip = 1, .splits = 2});
  check_alike({.tokens = 64, .dim = 96, .value_dim = 96, .cols = 776, .cache = Stored::kInt8, .splits = 3});
}
