// A device whose memory is full: what is said of it, and what goes on.
#include <filesystem>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/emulated_queue.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using cuda::emulator::memory_limit;

namespace {

// No more memory than now and `more` bytes, until the end of the scope.
class Limit {
 public:
  explicit Limit(std::size_t more) {
    memory_limit = std::size_t{1} << 40;
    cuda::DeviceFacts facts;
    cuda::find_device(facts);
    memory_limit += more - facts.free_bytes;
  }
  ~Limit() { memory_limit = 0; }
};

const Model& model() {
  static const Model loaded =
      load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models/llama-gqa", DType::kF16);
  return loaded;
}

template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error("");
}

bool says(const Error& error, const char* words) { return std::string(error.what()).find(words) != std::string::npos; }

std::vector<std::int64_t> tokens(std::size_t count) { return std::vector<std::int64_t>(count, 7); }

}  // namespace

TEST_CASE("weights that do not fit are refused with their size, the memory that is free, and that no batch fits") {
  const Limit limit(20 << 10);
  const Error error = error_of([] { cuda::CudaBackend(model(), {parse_policies("full").at(0)}); });
  CHECK(says(error, "the weights take"));
  CHECK(says(error, "20.00 KiB of"));
  CHECK(error.code() == ExitCode::kFailure);
  REQUIRE(error.notes().size() == 1);
  CHECK(error.notes()[0].starts_with("no batch fits"));
}

TEST_CASE("a back end leaves no stream open, whether its weights fit or not") {
  const int before = cuda::emulator::open_streams;
  { const cuda::CudaBackend fits(model(), {parse_policies("full").at(0)}); }
  CHECK(cuda::emulator::open_streams == before);
  const Limit limit(20 << 10);
  CHECK_THROWS(cuda::CudaBackend(model(), {parse_policies("full").at(0)}));
  CHECK(cuda::emulator::open_streams == before);
}

TEST_CASE("however little memory is left beside the weights, what is refused is said, and that no batch fits") {
  const auto load = [](std::size_t more) {
    const Limit limit(more);
    return error_of([] { cuda::CudaBackend(model(), {parse_policies("full").at(0)}); });
  };
  const std::string least = load(1).what();
  const std::string words = "the weights take ";
  const double kib = std::stod(least.substr(least.find(words) + words.size()));
  REQUIRE(least.find(" KiB, but") != std::string::npos);
  bool in_between = false;
  for (auto more = static_cast<std::size_t>(1024 * (kib - 0.02));; more += 32) {
    const Error error = load(more);
    if (std::string(error.what()).empty()) break;
    INFO(more << ": " << error.what());
    REQUIRE((says(error, "the weights take") || says(error, "out of device memory while llama-gqa is loaded: CUDA: ")));
    REQUIRE(error.notes().size() == 1);
    REQUIRE(error.notes()[0].starts_with("no batch fits"));
    in_between = in_between || says(error, "of device memory were asked for");
  }
  CHECK(in_between);
}

TEST_CASE("a device too full for a graph of a step decodes without one, to the same logits") {
  std::vector<std::vector<float>> logits;
  for (const bool full : {false, true}) {
    cuda::CudaBackend backend(model(), {parse_policies("h2o:budget=20").at(0), 0, DType::kF16});
    backend.prefill(0, tokens(64), 8, {}, {});
    std::optional<Limit> limit;
    for (std::int64_t step = 0; step < 4; ++step) {
      logits.emplace_back(model().config.shape.vocab);
      backend.decode({{DecodeEntry{0, step}}}, logits.back());
      if (full && step == 0) limit.emplace(0);  // the second is the first that would be a graph
    }
  }
  for (std::size_t step = 0; step < 4; ++step) CHECK(logits[step] == logits[4 + step]);
}

TEST_CASE("where no prompt fits, that is said in place of a length") {
  cuda::CudaBackend backend(model(), {parse_policies("full").at(0), 0, DType::kF16});
  const Limit limit(16);
  const Error error = error_of([&] { backend.prefill(0, tokens(450), 50, {}, {}); });
  INFO(error.what());
  REQUIRE(error.notes().size() == 1);
  CHECK(error.notes()[0].starts_with("no prompt fits"));
}

TEST_CASE("a prompt that does not fit is refused with a length that does, and that length fits") {
  cuda::CudaBackend backend(model(), {parse_policies("full").at(0), 0, DType::kF16});
  const Limit limit(1 << 20);
  const Error error = error_of([&] { backend.prefill(0, tokens(450), 50, {}, {}); });
  INFO(error.what());
  CHECK(says(error, "sequence 0 (450 tokens, 50 to come) under full"));
  CHECK(says(error, "of device memory were asked for"));
  REQUIRE(error.notes().size() == 1);
  const unsigned long fits = std::stoul(error.notes()[0].substr(std::string("a prompt of about ").size()));
  CHECK(fits > 40);
  CHECK(fits < 450);
  CHECK(backend.kv_usage().allocated_bytes == 0);
  backend.prefill(0, tokens(fits * 9 / 10), static_cast<std::uint32_t>(fits / 10), {}, {});
}

TEST_CASE("the sequences before one that does not fit go on, and their number is what fits") {
  cuda::CudaBackend backend(model(), {parse_policies("h2o:budget=20").at(0), 0, DType::kF16});
  const Limit limit(1 << 20);
  std::uint32_t admitted = 0;
  const Error error = error_of([&] {
    for (; admitted < 1000; ++admitted) backend.prefill(admitted, tokens(64), 8, {}, {});
  });
  INFO(error.what());
  REQUIRE(admitted > 1);
  CHECK(says(error, "under h2o:budget=20"));
  REQUIRE(error.notes().size() == 1);
  CHECK(error.notes()[0].starts_with("a batch of " + std::to_string(admitted) + " fits"));
  memory_limit = 0;
  std::vector<DecodeEntry> batch;
  for (std::uint32_t s = 0; s < admitted; ++s) batch.push_back({s, 5});
  std::vector<float> logits(admitted * model().config.shape.vocab);
  backend.decode(batch, logits);
  CHECK(std::isfinite(logits.back()));
}

TEST_CASE("a device that has failed is not taken for a full one") {
  cuda::CudaBackend backend(model(), {parse_policies("full").at(0), 0, DType::kF16});
  cuda::emulator::failure = "uncorrectable ECC error encountered";
  const Error error = error_of([&] { backend.prefill(0, tokens(450), 50, {}, {}); });
  cuda::emulator::failure = nullptr;
  CHECK(std::string(error.what()) == "CUDA: uncorrectable ECC error encountered while asking for device memory");
  CHECK(error.notes().empty());
}

TEST_CASE("a decode step that does not fit is refused with its batch") {
  cuda::CudaBackend backend(model(), {parse_policies("full").at(0), 0, DType::kF16});
  for (std::uint32_t s = 0; s < 4; ++s) backend.prefill(s, tokens(30), 8, {}, {});
  std::vector<float> logits(4 * model().config.shape.vocab);
  const std::vector<DecodeEntry> batch = {{0, 5}, {1, 5}, {2, 5}, {3, 5}};
  const Limit limit(1 << 10);
  const Error error = error_of([&] { backend.decode(batch, logits); });
  INFO(error.what());
  CHECK(says(error, "a decode step of 4 sequences under full"));
  CHECK(error.notes().size() == 1);
}
