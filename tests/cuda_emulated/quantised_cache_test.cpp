#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <vector>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/emulated_queue.hpp"
#include "kernels/cuda/prepare.cuh"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

// A row as the formula has it: whole steps of largest / most, the largest element being ± most.
template <Stored kType>
void check_row(std::uint32_t dim, std::mt19937& random) {
  constexpr int kMost = kType == Stored::kInt8 ? 127 : 7;
  std::normal_distribution<float> normal;
  std::vector<float> row(dim);
  for (float& x : row) x = normal(random);
  std::vector<std::uint32_t> bytes(dim / 4 + 1, 0xffffffffU);
  float scale = -1;
  emulator::run({1}, {32}, [&] {
    store_row<kType>(row.data(), dim, reinterpret_cast<std::byte*>(bytes.data()), &scale);
  });
  float largest = 0;
  for (const float x : row) largest = std::max(largest, std::abs(x));
  REQUIRE(scale == Approx(largest / kMost).epsilon(1e-6));
  for (std::uint32_t i = 0; i < dim; ++i) {
    const unsigned bits = kType == Stored::kInt8 ? 8 : 4;
    const std::uint32_t field = bytes[i * bits / 32] >> (i * bits % 32) & ((1U << bits) - 1);
    const int stored = field >> (bits - 1) != 0 ? static_cast<int>(field) - (1 << bits) : static_cast<int>(field);
    INFO("element " << i << " of " << dim);
    REQUIRE(std::abs(stored) <= kMost);
    REQUIRE(std::abs(static_cast<float>(stored) * scale - row[i]) <= 0.5001F * scale);
  }
}

struct Outcome {
  std::vector<float> logits;
  ByteCounters bytes;
  std::uint64_t resident = 0;
};

Outcome outcome_of(const Model& model, std::optional<Stored> quantised, const char* policy) {
  CudaBackendOptions options{parse_policies(policy).at(0), 7, DType::kF16};
  options.quantised = quantised;
  CudaBackend backend(model, options);
  Outcome out;
  out.logits.resize(model.config.shape.vocab);
  const std::vector<std::int64_t> ids = {3, 14, 15, 92, 65, 35, 89, 79, 32, 38};
  backend.prefill(0, ids, 3, out.logits, {});
  backend.take_counters();
  for (std::int64_t i = 0; i < 3; ++i) {
    const DecodeEntry entry{0, 40 + i};
    backend.decode({&entry, 1}, out.logits);
  }
  out.bytes = backend.take_counters();
  out.resident = backend.kv_usage().resident_bytes;
  return out;
}

double distance(const Outcome& a, const Outcome& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.logits.size(); ++i) {
    REQUIRE(std::isfinite(a.logits[i]));
    difference += std::pow(static_cast<double>(a.logits[i]) - static_cast<double>(b.logits[i]), 2);
    size += std::pow(static_cast<double>(b.logits[i]), 2);
  }
  return std::sqrt(difference / size);
}

Model golden_model() {
  return load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models/llama-gqa", DType::kF16);
}

// What comes to the host while it lives.
class HostCopies final : public emulator::Watcher {
 public:
  HostCopies() { emulator::watcher = this; }
  ~HostCopies() override { emulator::watcher = nullptr; }
  std::uint64_t captured() override { return 0; }
  std::uint64_t cloned(std::uint64_t node) override { return node; }
  void begin_call() override {}
  void ran(std::uint64_t, std::uint64_t, std::uint64_t) override {}
  void copied(bool to_device, std::size_t size, std::uint64_t, std::uint64_t) override {
    if (!to_device) bytes += size;
  }
  std::size_t bytes = 0;
};

std::size_t bytes_to_host(const Model& model, const char* policy, std::uint32_t tokens) {
  CudaBackendOptions options{parse_policies(policy).at(0), 7, DType::kF16};
  options.quantised = Stored::kInt8;
  CudaBackend backend(model, options);
  const HostCopies copies;
  backend.prefill(0, std::vector<std::int64_t>(tokens, 5), 3, {}, {});
  return copies.bytes;
}

}  // namespace

TEST_CASE("an int8 or int4 row is stored in whole steps of its largest element, each rounded to the nearest") {
  std::mt19937 random(3);
  for (const std::uint32_t dim : {8U, 64U, 80U, 128U, 256U}) {
    check_row<Stored::kInt8>(dim, random);
    check_row<Stored::kInt4>(dim, random);
  }
}

TEST_CASE("a quantised cache moves the bytes of its type and of its scales") {
  const Model model = golden_model();
  const std::uint64_t elements = model.config.shape.head_dim + model.config.shape.v_head_dim;
  const Outcome exact = outcome_of(model, std::nullopt, "h2o:budget=8");
  const Outcome rounded = outcome_of(model, Stored::kInt4, "h2o:budget=8");
  const std::uint64_t row = elements / 2 + 2 * sizeof(float);
  CHECK(rounded.bytes[Cause::kKvRead] * 2 * elements == exact.bytes[Cause::kKvRead] * row);
  CHECK(rounded.bytes[Cause::kKvWrite] * 2 * elements == exact.bytes[Cause::kKvWrite] * row);
  CHECK(rounded.resident * 2 * elements == exact.resident * row);
  CHECK(rounded.bytes[Cause::kScores] == exact.bytes[Cause::kScores]);
}

TEST_CASE("of a prompt into a quantised cache the rows come to the host that the policy looks at, and no others") {
  const Model model = golden_model();
  const std::uint32_t tokens = 70;
  const std::size_t row_floats = std::size_t{model.config.shape.layers} * model.config.shape.heads;
  CHECK(bytes_to_host(model, "snapkv:budget=8:window=3", tokens) == 4 * row_floats * (68 + 69 + 70));
  CHECK(bytes_to_host(model, "observed-attention:budget=8", tokens) == 4 * row_floats * tokens * (tokens + 1) / 2);
}

// A step of int4 is 127 / 7 = 18 times as wide as one of int8, and so is what rounding does to the logits, about.
TEST_CASE("a quantised cache bends the logits by its rounding and no more") {
  const Model model = golden_model();
  const Outcome exact = outcome_of(model, std::nullopt, "full");
  const double eight = distance(outcome_of(model, Stored::kInt8, "full"), exact);
  const double four = distance(outcome_of(model, Stored::kInt4, "full"), exact);
  INFO("int8 " << eight << ", int4 " << four);
  CHECK(eight > 0);
  CHECK(eight < 0.02);
  CHECK(four > 6 * eight);
  CHECK(four < 54 * eight);
}
