// Products by cuBLASLt, of which a made one stands here: alone, in the engine, in graphs, and where it refuses.
#include "kernels/cuda/library_linear.hpp"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <random>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/reference_ops.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/emulator.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

// The made library is found, and refuses what it is told to ("": nothing).
class MadeLibrary {
 public:
  explicit MadeLibrary(const char* refuses = "") {
    setenv("KVROOF_EMULATED_LIBRARIES", KVROOF_MADE_LIBRARIES, 1);
    setenv("KVROOF_MADE_CUBLASLT", refuses, 1);
  }
  ~MadeLibrary() {
    unsetenv("KVROOF_EMULATED_LIBRARIES");
    unsetenv("KVROOF_MADE_CUBLASLT");
  }
  MadeLibrary(const MadeLibrary&) = delete;
  MadeLibrary& operator=(const MadeLibrary&) = delete;
};

std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& v : out) v = normal(random);
  return out;
}

std::vector<std::byte> random_weights(Stored type, std::size_t count, std::uint32_t seed) {
  std::vector<std::byte> out(2 * count);
  convert_from_float(type == Stored::kBF16 ? DType::kBF16 : DType::kF16, random_floats(count, seed), out.data());
  return out;
}

// A map with some of what may come before and after its product.
struct Map {
  std::uint32_t tokens = 70, cols = 40, rows = 24;
  NormMode norm = NormMode::kNone;
  ActivationMode activation = ActivationMode::kNone;
  bool gated = false, bias = false, add = false, of_tokens = false, misplaced = false;
  float factor = 1, softcap = 0;
};

// What the map makes, by the library or by our own kernels; whether the library served.
struct Made {
  std::vector<float> out;
  bool served = false;
  std::uint64_t held_bytes = 0;  // by what stands before the library
};

Made make(const Map& m, Stored type, CublasLt* library, LinearBy by) {
  const auto x = random_floats(std::size_t{m.tokens} * (m.cols + 8), 1), factors = random_floats(m.tokens, 2);
  const auto w = random_weights(type, std::size_t{m.rows} * m.cols, 3);
  const auto up = random_weights(type, std::size_t{m.rows} * m.cols, 4);
  const auto scale = random_weights(type, m.cols, 5), shift = random_weights(type, m.cols, 6);
  const auto bias = random_weights(type, m.rows, 7), up_bias = random_weights(type, m.rows, 8);
  Made made;
  made.out = random_floats(std::size_t{m.tokens} * (m.rows + 4) + 4, 9);
  LinearArguments a;
  a.x = x.data();
  a.x_row = m.cols + 8;
  a.out_row = m.rows + 4;
  a.tokens = m.tokens;
  a.norm = m.norm;
  a.norm_scale = scale.data();
  a.norm_bias = m.norm == NormMode::kLayer ? shift.data() : nullptr;
  a.norm_eps = 1e-5F;
  a.w = {w.data(), m.rows, m.cols};
  if (m.gated) a.up = {up.data(), m.rows, m.cols};
  if (m.bias) a.bias = bias.data();
  if (m.bias && m.gated) a.up_bias = up_bias.data();
  a.activation = m.activation;
  a.add = m.add;
  a.factor = m.factor;
  a.softcap = m.softcap;
  a.token_factors = m.of_tokens ? factors.data() : nullptr;
  a.out = made.out.data() + (m.misplaced ? 1 : 0);
  Stream stream;
  open_stream(stream);
  LibraryLinear linear(stream, library, by);
  made.served = linear.run(type, a);
  made.held_bytes = linear.held_bytes();
  if (!made.served) run_linear(stream, type, a);
  close_stream(stream);
  return made;
}

double difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::isfinite(a[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return worst / largest;
}

Model model_named(const std::string& name, DType type) {
  return load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name, type);
}

// Logits of a prompt's last token and of a few steps of a batch; what the launches declared.
struct Run {
  std::vector<float> logits;
  ByteCounters bytes;
  LinearFacts facts;
};

Run run_backend(Backend& backend, const Model& model, std::uint32_t batch, std::uint32_t prompt) {
  Run run;
  const std::size_t vocab = model.config.shape.vocab;
  std::vector<float> logits(batch * vocab);
  for (std::uint32_t s = 0; s < batch; ++s) {
    std::vector<std::int64_t> ids(prompt);
    for (std::uint32_t i = 0; i < prompt; ++i) ids[i] = (7 * i + 11 * s + 3) % 199;
    backend.prefill(s, ids, 4, std::span(logits).first(vocab), {});
    run.logits.insert(run.logits.end(), logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocab));
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    std::vector<DecodeEntry> entries;
    for (std::uint32_t s = 0; s < batch; ++s) entries.push_back({s, (17 * i + 31 * s + 3) % 199});
    backend.decode(entries, logits);
    run.logits.insert(run.logits.end(), logits.begin(), logits.end());
  }
  run.bytes = backend.take_counters();
  run.facts = backend.linear_facts();
  return run;
}

Run run_device(const Model& model, LinearBy by, std::uint32_t batch, std::uint32_t prompt) {
  CudaBackendOptions options{parse_policies("full").at(0), 7, DType::kF16};
  options.linear = by;
  CudaBackend device(model, std::move(options));
  return run_backend(device, model, batch, prompt);
}

}  // namespace

TEST_CASE("maps by the library's products are those of our own kernels, whatever comes before and after the product") {
  const MadeLibrary made;
  const auto library = CublasLt::load();
  REQUIRE(library);
  const Map maps[] = {{},
                      {.norm = NormMode::kRms, .bias = true},
                      {.tokens = 65, .norm = NormMode::kLayer, .add = true},
                      {.bias = true, .add = true},
                      {.add = true, .factor = 0.22F},
                      {.activation = ActivationMode::kGelu, .bias = true},
                      {.activation = ActivationMode::kSilu, .gated = true, .bias = true},
                      {.rows = 1032, .norm = NormMode::kRms, .activation = ActivationMode::kSilu, .gated = true},
                      {.of_tokens = true, .factor = 0.5F, .softcap = 2}};
  for (const Stored type : {Stored::kBF16, Stored::kF16}) {
    for (const Map& map : maps) {
      const Made by_library = make(map, type, library.value().get(), LinearBy::kAuto);
      const Made own = make(map, type, nullptr, LinearBy::kAuto);
      INFO("map " << &map - maps);
      CHECK(by_library.served);
      CHECK_FALSE(own.served);
      // Both round vectors alike, and add in other orders; but an RMS norm in bf16 waits for our own products, and so
      // comes after the rounding, each of whose errors is 2⁻⁹ at most.
      const bool waits = type == Stored::kBF16 && map.norm == NormMode::kRms;
      CHECK(difference(by_library.out, own.out) <= (waits ? 1e-2 : 2e-5));
    }
  }
}

TEST_CASE("of a long prompt the library is given 8192 vectors at a time, and memory for no more") {
  const MadeLibrary made;
  const auto library = CublasLt::load();
  REQUIRE(library);
  constexpr std::uint64_t kWorkspace = 32 << 20;
  for (const Map& map : {Map{.tokens = 8192 + 3, .cols = 8, .rows = 8, .add = true},
                         Map{.tokens = 8192 + 3, .cols = 8, .rows = 8, .gated = true, .of_tokens = true}}) {
    const Made by_library = make(map, Stored::kBF16, library.value().get(), LinearBy::kAuto);
    CHECK(by_library.served);
    CHECK(difference(by_library.out, make(map, Stored::kBF16, nullptr, LinearBy::kAuto).out) <= 2e-5);
    CHECK(by_library.held_bytes == kWorkspace + 8192 * 8 * (2 + (map.gated ? sizeof(float) : 0)));
  }
}

TEST_CASE("the library serves more than one vector, or any number where it is asked for, not what it cannot add to") {
  const MadeLibrary made;
  const auto library = CublasLt::load();
  REQUIRE(library);
  CublasLt* const lt = library.value().get();
  const auto served = [&](const Map& map, LinearBy by) { return make(map, Stored::kF16, lt, by).served; };
  CHECK_FALSE(served({.tokens = 1}, LinearBy::kAuto));
  CHECK(served({.tokens = 2}, LinearBy::kAuto));
  CHECK(served({.tokens = 1}, LinearBy::kCublasLt));
  CHECK_FALSE(served({.tokens = 65}, LinearBy::kOwn));
  CHECK_FALSE(served({.activation = ActivationMode::kRelu, .add = true}, LinearBy::kAuto));
  CHECK_FALSE(served({.bias = true, .add = true, .factor = 2}, LinearBy::kAuto));
  CHECK_FALSE(served({.misplaced = true}, LinearBy::kAuto));
  CHECK(lt->version() == "13.1.99");
  CHECK(lt->problem().empty());
}

TEST_CASE("logits and declared bytes are the same by the library, for a prompt, a step and a graph of a batch") {
  const MadeLibrary made;
  for (const char* name : {"llama-gqa", "gptj", "opt-350m", "mixtral"}) {
    INFO(name);
    const Model model = model_named(name, DType::kF16);
    const Run own = run_device(model, LinearBy::kOwn, 5, 9);
    const Run library = run_device(model, LinearBy::kCublasLt, 5, 9);
    CHECK(difference(library.logits, own.logits) <= 2e-3);
    CHECK(library.bytes == own.bytes);
    CHECK(own.facts.by == "own");
    CHECK(library.facts.by == "cublaslt 13.1.99");
    CHECK(library.facts.problem.empty());
  }
}

TEST_CASE("a prompt goes by the library where it is found, and one vector by our own kernels") {
  const Model model = model_named("llama-gqa", DType::kF16);
  const Run own = run_device(model, LinearBy::kAuto, 1, 80);
  CHECK(own.facts.by == "own");
  CHECK(own.facts.problem == "libcublasLt.so.13 was not found");
  CHECK(run_device(model, LinearBy::kAuto, 1, 1).facts.problem.empty());  // nothing was missed
  CHECK(run_device(model, LinearBy::kOwn, 1, 80).facts.problem.empty());
  const MadeLibrary made;
  CHECK(run_device(model, LinearBy::kAuto, 1, 1).facts.by == "own");  // it is here, and made nothing
  const Run automatic = run_device(model, LinearBy::kAuto, 1, 80);
  CHECK(automatic.facts.by == "cublaslt 13.1.99");
  CHECK(automatic.logits != own.logits);  // sums of other orders: the library did serve
  CHECK(difference(automatic.logits, own.logits) <= 2e-3);
}

TEST_CASE("what the library refuses our own kernels make, and one sentence says it") {
  const Model model = model_named("llama-gqa", DType::kF16);
  const Run own = run_device(model, LinearBy::kOwn, 2, 9);
  for (const auto& [what, why] :
       {std::pair("heuristic", "the functionality is not supported"),
        std::pair("none", "the functionality is not supported"),
        std::pair("matmul", "the resource allocation failed")}) {
    INFO(what);
    const MadeLibrary made(what);
    const Run refused = run_device(model, LinearBy::kCublasLt, 2, 9);
    CHECK(refused.logits == own.logits);
    CHECK(refused.bytes == own.bytes);
    CHECK(refused.facts.by == "own");
    CHECK_THAT(refused.facts.problem, Catch::StartsWith("cuBLASLt 13.1.99 refused a product of "));
    CHECK_THAT(refused.facts.problem, Catch::EndsWith(why));
  }
}

TEST_CASE("where the library refuses what it proposed, the next of its ways serves") {
  const MadeLibrary made("ways");
  const Run run = run_device(model_named("llama-gqa", DType::kF16), LinearBy::kCublasLt, 2, 9);
  CHECK(run.facts.by == "cublaslt 13.1.99");
  CHECK(run.facts.problem.empty());
}

TEST_CASE("a map of which the library refuses the second product was not made by it") {
  const MadeLibrary made("apart");
  const auto library = CublasLt::load();
  REQUIRE(library);
  CublasLt& lt = *library.value();
  const Map gated{.activation = ActivationMode::kSilu, .gated = true, .bias = true};
  const Made refused = make(gated, Stored::kF16, &lt, LinearBy::kAuto);
  CHECK_FALSE(refused.served);
  CHECK_FALSE(lt.served());
  CHECK_THAT(lt.problem(), Catch::StartsWith("cuBLASLt 13.1.99 refused a product of 24 x 40 with 70 vectors: "));
  CHECK(refused.out == make(gated, Stored::kF16, nullptr, LinearBy::kAuto).out);
}

TEST_CASE("vectors that the library refuses after others that it served are our own kernels'") {
  const MadeLibrary made("few");
  const auto library = CublasLt::load();
  REQUIRE(library);
  const Map map{.tokens = 8192 + 3, .cols = 8, .rows = 8, .add = true};
  const Made split = make(map, Stored::kBF16, library.value().get(), LinearBy::kAuto);
  CHECK(split.served);
  CHECK(library.value()->served());
  CHECK_THAT(library.value()->problem(), Catch::Contains("with 3 vectors"));
  // Three vectors meet the weights unrounded.
  CHECK(difference(split.out, make(map, Stored::kBF16, nullptr, LinearBy::kAuto).out) <= 1.0 / 256);
}

TEST_CASE("a product that the device fails ends the run with one sentence") {
  const MadeLibrary made("device");
  const Model model = model_named("llama-gqa", DType::kF16);
  CHECK_THROWS_WITH(run_device(model, LinearBy::kCublasLt, 1, 9),
                    "CUDA: cuBLASLt could not launch a product (CUBLAS_STATUS_EXECUTION_FAILED) "
                    "while launching kernels");
}

TEST_CASE("a library that does not start is none: our own kernels serve, or the run ends where it was asked for") {
  const MadeLibrary made("create");
  const Model model = model_named("llama-gqa", DType::kF16);
  const Run run = run_device(model, LinearBy::kAuto, 1, 65);
  CHECK(run.facts.by == "own");
  CHECK_THAT(run.facts.problem, Catch::EndsWith("cannot be started: the resource allocation failed"));
  CHECK_THROWS_WITH(run_device(model, LinearBy::kCublasLt, 1, 3), Catch::StartsWith("--linear cublaslt: "));
}

TEST_CASE("a library that is there but cannot be loaded is not called missing") {
  const kvroof::test::TemporaryFolder folder;
  std::ofstream(folder.path() / "libcublasLt.so.12") << "no library";
  setenv("KVROOF_EMULATED_LIBRARIES", folder.path().c_str(), 1);
  const auto library = CublasLt::load();
  unsetenv("KVROOF_EMULATED_LIBRARIES");
  REQUIRE_FALSE(library);
  CHECK_THAT(library.error(), Catch::Contains("libcublasLt.so.12 cannot be loaded: "));
}

TEST_CASE("without room for the library's workspace our own kernels serve, and one sentence says it") {
  const Model model = model_named("llama-gqa", DType::kF16);
  const Run own = run_device(model, LinearBy::kOwn, 1, 9);
  const MadeLibrary made;
  emulator::memory_limit = std::size_t{16} << 20;  // the model and its cache, not the workspace
  const Run run = run_device(model, LinearBy::kCublasLt, 1, 9);
  emulator::memory_limit = 0;
  CHECK(run.logits == own.logits);
  CHECK(run.facts.by == "own");
  CHECK_THAT(run.facts.problem, Catch::StartsWith("cuBLASLt has no room beside the model: "));
}
