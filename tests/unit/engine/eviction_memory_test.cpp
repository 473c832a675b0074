// A policy really evicts: what the back end holds and owns while decoding.
#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kPrompt = 60;
constexpr std::uint32_t kDecoded = 40;
// llama-gqa: 2 layers, 2 KV heads, 4 query heads, k and v of 64 floats.
constexpr std::uint64_t kRow = (64 + 64) * 4;
constexpr std::uint64_t kHeads = 2;
constexpr std::uint64_t kLayers = 2;

const Model& gqa_model() {
  static const Model model =
      load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models/llama-gqa", DType::kF32);
  return model;
}

std::vector<std::int64_t> prompt_ids() {
  std::vector<std::int64_t> ids;
  for (std::uint32_t i = 0; i < kPrompt; ++i) ids.push_back((7 * i + 3) % 224);
  return ids;
}

// KV usage after the prompt and after each decoded token.
std::vector<KvUsage> usage_of(const std::string& policy) {
  CpuBackend backend = reference_backend(gqa_model(), parse_policies(policy).front());
  backend.prefill(0, prompt_ids(), kDecoded, {}, {});
  std::vector<KvUsage> usage = {backend.kv_usage()};
  std::vector<float> logits(gqa_model().config.shape.vocab);
  for (std::uint32_t i = 0; i < kDecoded; ++i) {
    const DecodeEntry entry{0, static_cast<std::int64_t>(i)};
    backend.decode({&entry, 1}, logits);
    usage.push_back(backend.kv_usage());
  }
  return usage;
}

}  // namespace

TEST_CASE("full attention holds a row more for every token") {
  const auto usage = usage_of("full");
  for (std::uint64_t i = 0; i <= kDecoded; ++i) {
    CHECK(usage[i].resident_bytes == (kPrompt + i) * kRow * kHeads * kLayers);
  }
}

TEST_CASE("under a budget of k, k rows are resident and k + 1 slots allocated, at every step") {
  for (const char* name : {"window", "streaming", "h2o", "keyformer", "random"}) {
    INFO(name);
    const auto usage = usage_of(std::string(name) + ":budget=20");
    for (const KvUsage& u : usage) {
      CHECK(u.resident_bytes == 20 * kRow * kHeads * kLayers);
      CHECK(u.allocated_bytes == 21 * kRow * kHeads * kLayers);
    }
  }
}

TEST_CASE("scissorhands holds between k - drop and k rows in k + 1 slots") {
  const auto usage = usage_of("scissorhands:budget=20");
  bool full = false;
  for (const KvUsage& u : usage) {
    const std::uint64_t rows = u.resident_bytes / (kRow * kHeads * kLayers);
    CHECK(rows >= 10);
    CHECK(rows <= 20);
    full = full || rows == 20;
    CHECK(u.allocated_bytes == 21 * kRow * kHeads * kLayers);
  }
  CHECK(full);
}

TEST_CASE("the peak of a prompt that is compacted layer by layer is one layer's prompt and the caches of all") {
  const auto usage = usage_of("h2o:budget=20");
  CHECK(usage.back().peak_bytes == (kPrompt + 21 * kLayers) * kRow * kHeads);
}

TEST_CASE("the peak of a prompt counts what the other sequences hold meanwhile") {
  CpuBackend backend = reference_backend(gqa_model(), parse_policies("h2o:budget=20").front());
  backend.prefill(0, prompt_ids(), kDecoded, {}, {});
  backend.prefill(1, prompt_ids(), kDecoded, {}, {});
  const KvUsage usage = backend.kv_usage();
  CHECK(usage.peak_bytes == (21 * kLayers + kPrompt + 21 * kLayers) * kRow * kHeads);
  CHECK(usage.peak_resident_bytes == (20 * kLayers + kPrompt + 20 * (kLayers - 1)) * kRow * kHeads);
}

TEST_CASE("a policy that streams the prompt never owns more than k + 1 slots") {
  const auto usage = usage_of("scissorhands:budget=20:prompt=stream");
  CHECK(usage.back().peak_bytes == 21 * kRow * kHeads * kLayers);
}

TEST_CASE("a budget relative to the current length grows with it") {
  const auto usage = usage_of("h2o:budget=0.5@current");
  for (std::uint64_t i = 0; i <= kDecoded; ++i) {
    CHECK(usage[i].resident_bytes == (kPrompt + i) / 2 * kRow * kHeads * kLayers);
    CHECK(usage[i].allocated_bytes == usage[0].allocated_bytes);
  }
}

TEST_CASE("a layer whose share of the budget is the whole prompt owns its rows and a slot more, as any layer does") {
  // Of 2 · 53 slots beside one each the first layer would get 103, which the prompt's other 59 tokens cap.
  const auto usage = usage_of("h2o:budget=0.9:layers=pyramid");
  for (const KvUsage& u : usage) {
    CHECK(u.resident_bytes == (60 + 48) * kRow * kHeads);
    CHECK(u.allocated_bytes == (61 + 49) * kRow * kHeads);
  }
}

TEST_CASE("where a budget grows with the text, each layer has room for what it will hold at the end") {
  for (const char* policy : {"h2o:budget=0.5@current:layers=pyramid", "streaming:budget=0.5@current:prompt=16"}) {
    INFO(policy);
    const auto usage = usage_of(policy);
    constexpr std::uint64_t kMost = (kPrompt + kDecoded) / 2 + 1;  // a layer, in the mean
    for (const KvUsage& u : usage) CHECK(u.allocated_bytes == kMost * kRow * kHeads * kLayers);
  }
}

TEST_CASE("sets for each query head store the rows of a group as often as it has heads") {
  const auto shared = usage_of("h2o:budget=20");
  const auto own = usage_of("h2o:budget=20:group=none");
  CHECK(own.back().resident_bytes == 2 * shared.back().resident_bytes);
}

TEST_CASE("a released sequence gives its memory back") {
  CpuBackend backend = reference_backend(gqa_model());
  const std::vector<std::int64_t> ids = {1, 2, 3};
  backend.prefill(4, ids, 10, {}, {});
  CHECK(backend.kv_usage().allocated_bytes > 0);
  backend.release(4);
  CHECK(backend.kv_usage().allocated_bytes == 0);
  CHECK(backend.kv_usage().resident_bytes == 0);
}

TEST_CASE("policies that only a replay can follow are refused in one sentence") {
  CHECK_THROWS_WITH(reference_backend(gqa_model(), parse_policies("oracle:budget=0.5").front()),
                    ContainsSubstring("policy oracle looks ahead"));
}
