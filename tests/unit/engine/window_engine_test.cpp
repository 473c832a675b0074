// Sliding windows in the engine: caches of at most the window's size, and the same logits however a text is fed.
#include "kernels/cpu/fast_ops.hpp"
#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kWindow = 9;
// llama-gqa: 2 layers, 2 KV heads, k and v of 64 floats.
constexpr std::uint64_t kRow = 2 * (64 + 64) * 4;

Model load(std::vector<std::uint32_t> windows) {
  Model model = load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models/llama-gqa", DType::kF32);
  model.config.shape.layer_windows = std::move(windows);
  return model;
}

// A window in the second layer alone.
const Model& window_model() {
  static const Model model = load({0, kWindow});
  return model;
}

std::vector<std::int64_t> some_ids(std::uint32_t count) {
  std::vector<std::int64_t> ids;
  for (std::uint32_t i = 0; i < count; ++i) ids.push_back((31 * i * i + 7 * i + 3) % 224);
  return ids;
}

CpuBackend backend_of(bool fast, const std::string& policy) {
  std::unique_ptr<Ops> ops = fast ? make_fast_ops(2) : std::make_unique<ReferenceOps>();
  return CpuBackend(window_model(), std::move(ops), {parse_policies(policy).front(), 0, DType::kF32});
}

// Logits after each of the last `decoded` tokens, the tokens before them fed as a prompt.
std::vector<float> last_logits(bool fast, const std::string& policy, std::span<const std::int64_t> ids,
                               std::uint32_t decoded) {
  CpuBackend backend = backend_of(fast, policy);
  const std::size_t vocab = window_model().config.shape.vocab;
  const std::size_t prompt = ids.size() - decoded;
  std::vector<float> logits((decoded + 1) * vocab);
  backend.prefill(0, ids.first(prompt), decoded, std::span(logits).first(vocab), {});
  for (std::uint32_t i = 0; i < decoded; ++i) {
    const DecodeEntry entry{0, ids[prompt + i]};
    backend.decode({&entry, 1}, std::span(logits).subspan((i + 1) * vocab, vocab));
  }
  return {logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end()};
}

}  // namespace

TEST_CASE("logits under a window are the same for a prompt, for decoded tokens, and on both back ends") {
  const auto ids = some_ids(40);
  const auto expected = last_logits(false, "full", ids, 0);
  const Model blind = load({});
  CpuBackend without = reference_backend(blind);
  std::vector<float> other(expected.size());
  without.prefill(0, ids, 1, other, {});
  REQUIRE(relative_error(other, expected) > 1e-2);  // the window matters
  for (const bool fast : {false, true}) {
    for (const std::uint32_t decoded : {0U, 1U, 5U, 32U, 39U}) {
      // Policies that keep everything and see the rows, and one that stores k and v for each query head.
      for (const char* policy : {"full", "h2o:budget=100", "scissorhands:budget=100:prompt=stream",
                                 "keyformer:budget=100:group=none"}) {
        INFO(policy << " fast " << fast << " decoded " << decoded);
        CHECK(relative_error(last_logits(fast, policy, ids, decoded), expected) <= 2e-5);
      }
    }
  }
}

TEST_CASE("a layer with a window holds and allocates no more than its window, the others the whole text") {
  for (const bool fast : {false, true}) {
    CpuBackend backend = backend_of(fast, "full");
    constexpr std::uint32_t kPrompt = 30;
    constexpr std::uint32_t kDecoded = 5;
    backend.prefill(0, some_ids(kPrompt), kDecoded, {}, {});
    std::vector<float> logits(window_model().config.shape.vocab);
    for (std::uint32_t i = 0; i <= kDecoded; ++i) {
      CHECK(backend.kv_usage().resident_bytes == (kPrompt + i + kWindow) * kRow);
      CHECK(backend.kv_usage().allocated_bytes == (kPrompt + kDecoded + kWindow) * kRow);
      const DecodeEntry entry{0, i};
      (void)backend.take_counters();
      backend.decode({&entry, 1}, logits);
      const ByteCounters bytes = backend.take_counters();
      CHECK(bytes[Cause::kKvRead] == (kPrompt + i + 1 + kWindow) * kRow);
      CHECK(bytes[Cause::kKvWrite] == 2 * kRow);
      CHECK(bytes[Cause::kCompaction] == 0);
    }
  }
}

TEST_CASE("a budget below the window is not affected by it, and one above it is cut to it") {
  for (const char* policy : {"h2o:budget=5", "h2o:budget=20"}) {
    CpuBackend backend = backend_of(false, policy);
    backend.prefill(0, some_ids(30), 4, {}, {});
    const std::uint64_t budget = parse_policies(policy).front().budget.tokens(30, 30);
    const std::uint64_t in_window = std::min<std::uint64_t>(budget, kWindow);
    CHECK(backend.kv_usage().resident_bytes == (budget + in_window) * kRow);
    CHECK(backend.kv_usage().allocated_bytes == (budget + 1 + std::min<std::uint64_t>(budget + 1, kWindow)) * kRow);
  }
}
