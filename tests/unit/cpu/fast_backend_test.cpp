#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;
namespace fs = std::filesystem;

namespace {

const fs::path kDemo = fs::path(KVROOF_SOURCE_DIR) / "models/demo";
const fs::path kGoldens = fs::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

struct Run {
  std::vector<float> logits;  // of the whole prompt, then of each decoded token
  ByteCounters prompt, decode;
  KvUsage usage;
};

// A prompt and then `fed` tokens, whatever the model would have said.
Run run(const Model& model, std::unique_ptr<Ops> ops, const std::string& policy, DType kv,
        const std::vector<std::int64_t>& prompt, const std::vector<std::int64_t>& fed) {
  CpuBackend backend(model, std::move(ops), {parse_policies(policy).at(0), 0, kv});
  const std::size_t vocab = model.config.shape.vocab;
  Run result;
  result.logits = poisoned((prompt.size() + fed.size()) * vocab);
  const std::span<float> logits(result.logits);
  std::size_t told = 0;
  backend.prefill(0, prompt, static_cast<std::uint32_t>(fed.size()), {}, [&](std::span<const float> rows) {
    std::ranges::copy(rows, logits.begin() + static_cast<std::ptrdiff_t>(told));
    told += rows.size();
  });
  CHECK(told == prompt.size() * vocab);
  result.prompt = backend.take_counters();
  for (std::size_t i = 0; i < fed.size(); ++i) {
    const DecodeEntry entry{0, fed[i]};
    backend.decode({&entry, 1}, logits.subspan((prompt.size() + i) * vocab, vocab));
  }
  result.decode = backend.take_counters();
  result.usage = backend.kv_usage();
  return result;
}

std::vector<std::int64_t> some_ids(std::size_t count, std::uint32_t vocab, std::uint32_t stream) {
  std::vector<std::int64_t> ids;
  for (const float x : numbers(count, stream))
    ids.push_back(static_cast<std::int64_t>((x + 1) / 2 * static_cast<float>(vocab)));
  return ids;
}

double difference(const Run& a, const Run& b) {
  return deviation(a.logits, std::vector<double>(b.logits.begin(), b.logits.end()));
}

std::vector<std::int64_t> demo_document(std::size_t count) {
  auto ids = test::integers(test::open_tensors(kDemo / "reference.safetensors"), "python-tempfile.ids");
  ids.resize(count);
  return ids;
}

}  // namespace

TEST_CASE("logits of the fast back end are within 1e-4 of the reference in float, 2e-2 in bf16 and f16: every family") {
  for (const std::string& name : test::model_folders()) {
    for (const DType type : kTypes) {
      const Model model = load_model(kGoldens / name, type);
      const std::uint32_t longest = model.config.shape.max_positions;
      const auto prompt = some_ids(std::min(90U, longest * 3 / 4), model.config.shape.vocab, 60);
      const auto fed = some_ids(std::min(20U, longest / 4), model.config.shape.vocab, 61);
      const Run reference = run(model, std::make_unique<ReferenceOps>(), "full", type, prompt, fed);
      INFO(name << " " << name_of(type));
      CHECK(difference(run(model, make_fast_ops(2), "full", type, prompt, fed), reference) <=
            (type == DType::kF32 ? 1e-4 : 2e-2));
    }
  }
}

TEST_CASE("the demo model says the same greedy text in the fast back end as PyTorch's float32 values") {
  const Model model = load_model(kDemo, DType::kF32);
  const auto expected =
      test::integers(test::open_tensors(kDemo / "reference.safetensors"), "python-tempfile.greedy_after_512");
  CpuBackend backend(model, make_fast_ops(2), {test::full_policy(), 0, DType::kF32});
  SessionOptions options;
  options.max_new_tokens = static_cast<std::uint32_t>(expected.size());
  options.ignore_eos = true;
  CHECK(run_session(backend, model.config, {demo_document(512)}, options, nullptr).sequences[0].ids == expected);
}

TEST_CASE("a whole run has the same bits for 1, 2 and 16 threads") {
  const Model model = load_model(kDemo, std::nullopt);
  const auto prompt = demo_document(150);
  const std::vector<std::int64_t> fed = {5, 6, 7, 8};
  for (const std::string policy : {"full", "h2o:budget=0.5"}) {
    const Run one = run(model, make_fast_ops(1), policy, DType::kBF16, prompt, fed);
    for (const unsigned threads : {2U, 16U}) {
      CHECK(same_bits(run(model, make_fast_ops(threads), policy, DType::kBF16, prompt, fed).logits, one.logits));
    }
  }
}

TEST_CASE("both back ends count the same bytes, but for the prompt's k and v, which the fast one reads in blocks") {
  const Model model = load_model(kGoldens / "llama-gqa", DType::kBF16);
  const ModelShape& shape = model.config.shape;
  const auto prompt = some_ids(100, shape.vocab, 62);
  const auto fed = some_ids(5, shape.vocab, 63);
  for (const std::string policy : {"full", "h2o:budget=0.5", "streaming:budget=20"}) {
    INFO(policy);
    const Run fast = run(model, make_fast_ops(2), policy, DType::kBF16, prompt, fed);
    Run reference = run(model, std::make_unique<ReferenceOps>(), policy, DType::kBF16, prompt, fed);
    CHECK(fast.decode == reference.decode);
    CHECK(fast.usage.peak_bytes == reference.usage.peak_bytes);
    const std::uint64_t row_bytes =
        std::uint64_t{shape.head_dim + shape.v_head_dim} * 2 * shape.kv_heads * shape.layers;
    CHECK(reference.prompt[Cause::kKvRead] == 100 * 101 / 2 * row_bytes);
    CHECK(fast.prompt[Cause::kKvRead] == (64 + 100) * row_bytes);
    reference.prompt.bytes[static_cast<std::size_t>(Cause::kKvRead)] = fast.prompt[Cause::kKvRead];
    CHECK(fast.prompt == reference.prompt);
  }
}
