// What the back end says of its launches: every byte it counts belongs to one, in single steps and in graphs.
#include <map>
#include <string>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/emulated_queue.hpp"
#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;

namespace {

class Observer final : public LaunchObserver {
 public:
  void begin_launch(const LaunchMeaning& meaning) override {
    CHECK_FALSE(open);
    open = true;
    capturing ? void(++captured) : made.push_back(meaning);
  }
  void end_launch() override {
    CHECK(open);
    open = false;
  }
  void begin_capture() override {
    capturing = true;
    captured = 0;
    ++graphs;
  }
  void end_capture() override { capturing = false; }
  void begin_graph_launch(std::span<const LaunchMeaning> meanings) override {
    CHECK_FALSE(open);
    open = true;
    CHECK(meanings.size() == captured);
    made.assign(meanings.begin(), meanings.end());
  }

  [[nodiscard]] bool one_by_one() const override { return wants_one_by_one; }

  bool open = false, capturing = false, wants_one_by_one = false;
  std::size_t captured = 0;
  std::size_t graphs = 0;
  std::vector<LaunchMeaning> made;  // since it was cleared
};

ByteCounters sum_of(const std::vector<LaunchMeaning>& launches) {
  ByteCounters sum;
  for (const LaunchMeaning& launch : launches) sum += launch.declared.bytes;
  return sum;
}

std::vector<std::string> names_of(const std::vector<LaunchMeaning>& launches) {
  std::vector<std::string> names;
  for (const LaunchMeaning& launch : launches) names.push_back(fmt::format("{} {}", launch.operation, launch.layer));
  return names;
}

// What the launches of each layer are called, in order; the same in all layers.
std::vector<std::string> names_of_a_layer(const std::vector<LaunchMeaning>& launches, std::uint32_t layers) {
  std::vector<std::vector<std::string>> of(layers);
  for (const LaunchMeaning& launch : launches) {
    if (launch.layer >= 0) of.at(static_cast<std::size_t>(launch.layer)).emplace_back(launch.operation);
  }
  for (const std::vector<std::string>& names : of) CHECK(names == of[0]);
  return of[0];
}

Model model_named(const std::string& name) {
  return load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name, DType::kF16);
}

class Copies final : public cuda::emulator::Watcher {
 public:
  Copies() { cuda::emulator::watcher = this; }
  ~Copies() override { cuda::emulator::watcher = nullptr; }
  std::uint64_t captured() override { return 0; }
  std::uint64_t cloned(std::uint64_t node) override { return node; }
  void begin_call() override {}
  void ran(std::uint64_t, std::uint64_t, std::uint64_t) override {}
  void copied(bool is_to_device, std::size_t bytes, std::uint64_t, std::uint64_t) override {
    ++(is_to_device ? to_device : to_host);
    if (!is_to_device) host_bytes += bytes;
  }
  std::size_t to_device = 0, to_host = 0, host_bytes = 0;
};

}  // namespace

TEST_CASE("a step of the graph sends its tokens in one copy and its rows in another, and reads its logits in one") {
  const Model model = model_named("llama-gqa");
  cuda::CudaBackend backend(model, {parse_policies("h2o:budget=8").at(0), 7, DType::kF16});
  const std::vector<std::int64_t> ids = {5, 17, 9, 40, 2, 30, 31, 32, 33, 34};
  for (std::uint32_t sequence : {0U, 1U}) backend.prefill(sequence, ids, 20, {}, {});
  std::vector<float> logits(2 * model.config.shape.vocab);
  const std::vector<DecodeEntry> batch = {{0, 7}, {1, 8}};
  for (int step = 0; step < 3; ++step) backend.decode(batch, logits);
  const Copies copies;
  backend.decode(batch, logits);
  CHECK(copies.to_device == 2);
  CHECK(copies.to_host == 1);
}

TEST_CASE("launches that are wanted one by one begin one after another, and those that are only observed overlap") {
  cuda::Stream stream;
  cuda::Launches launches(stream);
  Observer observer;
  launches.set_observer(&observer);
  CHECK_FALSE(stream.one_by_one);
  observer.wants_one_by_one = true;
  launches.set_observer(&observer);
  CHECK(stream.one_by_one);
  launches.set_observer(nullptr);
  CHECK_FALSE(stream.one_by_one);
}

TEST_CASE("every byte that the back end counts was declared by a launch, the same in a graph as one by one") {
  const Model model = model_named("llama-gqa");
  for (const char* policy : {"full", "h2o:budget=8", "keyformer:budget=8", "tova:budget=8"}) {
    INFO(policy);
    cuda::CudaBackend backend(model, {parse_policies(policy).at(0), 7, DType::kF16});
    Observer observer;
    backend.set_observer(&observer);
    const std::vector<std::int64_t> ids = {5, 17, 9, 40, 2, 30, 31, 32, 33, 34};
    backend.prefill(3, ids, 20, {}, {});
    ByteCounters counted = backend.take_counters();
    CHECK(sum_of(observer.made)[Cause::kKvRead] == counted[Cause::kKvRead]);
    CHECK(sum_of(observer.made)[Cause::kCompaction] == counted[Cause::kCompaction]);
    CHECK(sum_of(observer.made)[Cause::kScores] == counted[Cause::kScores]);
    std::vector<std::string> single;
    std::vector<float> logits(model.config.shape.vocab);
    for (std::uint32_t step = 0; step < 4; ++step) {
      observer.made.clear();
      const DecodeEntry entry{3, 6};
      backend.decode({&entry, 1}, logits);
      counted = backend.take_counters();
      CHECK(sum_of(observer.made).bytes == counted.bytes);
      CHECK(counted.total() > 0);
      if (step == 0) single = names_of(observer.made);
      CHECK(names_of(observer.made) == single);
      for (const LaunchMeaning& launch : observer.made) CHECK(launch.sequence == 3);
    }
    CHECK(observer.graphs == 1);
  }
}

TEST_CASE("a layer's attention declares the rows that it reads: one more in each step of a cache that keeps all") {
  const Model model = model_named("llama-gqa");
  const ModelShape& shape = model.config.shape;
  cuda::CudaBackend backend(model, {parse_policies("full").at(0), 7, DType::kF16});
  Observer observer;
  backend.set_observer(&observer);
  backend.prefill(0, std::vector<std::int64_t>{5, 17, 9}, 20, {}, {});
  std::vector<float> logits(shape.vocab);
  for (std::uint32_t rows = 4; rows < 8; ++rows) {
    observer.made.clear();
    const DecodeEntry entry{0, 6};
    backend.decode({&entry, 1}, logits);
    std::uint32_t layers = 0;
    for (const LaunchMeaning& launch : observer.made) {
      if (launch.operation != "attention") continue;
      CHECK(launch.layer == static_cast<std::int32_t>(layers++));
      CHECK(launch.declared.bytes[Cause::kKvRead] ==
            std::uint64_t{2} * rows * shape.kv_heads * (shape.head_dim + shape.v_head_dim));
      CHECK(launch.declared.flops == std::uint64_t{2} * rows * shape.heads * (shape.head_dim + shape.v_head_dim));
    }
    CHECK(layers == shape.layers);
  }
}

TEST_CASE("a decode step has five launches a layer, whatever family and batch, and few policies one for their scores") {
  const std::vector<std::string> gated = {"qkv_append", "attention", "output", "gate_up", "down"};
  const std::vector<std::string> plain = {"qkv_append", "attention", "output", "up", "down"};
  const std::vector<std::string> parallel = {"qkv_append", "attention", "up", "output", "down"};
  struct Case {
    const char* model;
    const char* policy;
    std::uint32_t batch;
    std::vector<std::string> names;
  };
  const std::vector<std::string> tova = {"qkv_append", "attention", "scores", "output", "gate_up", "down"};
  const std::vector<std::string> by_query = {"qkv_append", "attention", "noisy_sums", "scores",
                                             "output",     "up",        "down"};
  for (const Case& c : std::vector<Case>{{"gptj", "full", 1, parallel},
                                         {"mpt-clip", "full", 1, plain},
                                         {"llama", "full", 1, gated},
                                         {"llama-gqa", "window:budget=8", 1, gated},
                                         {"gptj", "full", 5, parallel},
                                         {"mpt", "streaming:budget=8", 4, plain},
                                         {"llama-gqa", "full", 17, gated},
                                         {"qwen3", "full", 1, gated},
                                         {"llama-gqa", "h2o:budget=8", 2, gated},
                                         {"llama-gqa", "tova:budget=8", 2, tova},
                                         {"mpt", "keyformer:budget=8", 1, plain},
                                         {"mpt", "keyformer:budget=8:noise=query", 1, by_query}}) {
    INFO(c.model << " " << c.policy << " " << c.batch);
    const Model model = model_named(c.model);
    cuda::CudaBackend backend(model, {parse_policies(c.policy).at(0), 7, DType::kF16});
    std::vector<DecodeEntry> batch;
    for (std::uint32_t s = 0; s < c.batch; ++s) {
      backend.prefill(s, std::vector<std::int64_t>{5, 17, 9, 40, 2, 30, 31, 32, 33, 34}, 20, {}, {});
      batch.push_back({s, 7});
    }
    Observer observer;
    backend.set_observer(&observer);
    std::vector<float> logits(c.batch * model.config.shape.vocab);
    for (int step = 0; step < 2; ++step) {  // one by one, and as a graph
      observer.made.clear();
      backend.decode(batch, logits);
      CHECK(names_of_a_layer(observer.made, model.config.shape.layers) == c.names);
    }
  }
}

TEST_CASE("a norm over a whole projection has a launch of its own: no head is ready before all of them are") {
  const Model model = model_named("olmo2");
  cuda::CudaBackend backend(model, {parse_policies("full").at(0), 7, DType::kF16});
  backend.prefill(0, std::vector<std::int64_t>{5, 17, 9}, 20, {}, {});
  Observer observer;
  backend.set_observer(&observer);
  std::vector<float> logits(model.config.shape.vocab);
  const DecodeEntry entry{0, 6};
  backend.decode({&entry, 1}, logits);
  const auto names = names_of_a_layer(observer.made, model.config.shape.layers);
  REQUIRE(names.size() >= 2);
  CHECK((names[0] == "qkv" && names[1] == "append"));
}

TEST_CASE("of a prompt that a policy cuts, the device chooses: no score comes to the host, but a bit for each token") {
  const Model model = model_named("llama-gqa");
  const ModelShape& shape = model.config.shape;
  std::vector<std::int64_t> ids(70, 3);
  for (const char* policy : {"h2o:budget=8", "keyformer:budget=8", "scissorhands:budget=8", "tova:budget=8"}) {
    INFO(policy);
    cuda::CudaBackend backend(model, {parse_policies(policy).at(0), 7, DType::kF16});
    Observer observer;
    backend.set_observer(&observer);
    const Copies copies;
    backend.prefill(0, ids, 20, {}, {});
    const std::size_t sets = policy == std::string("tova:budget=8") ? 1 : shape.kv_heads;
    CHECK(copies.host_bytes == shape.layers * sets * 3 * 4);  // 70 bits: three words
    std::uint32_t layers = 0;
    for (const LaunchMeaning& launch : observer.made) {
      if (launch.operation != "top_k") continue;
      ++layers;
      CHECK(launch.declared.bytes[Cause::kScores] == std::uint64_t{shape.kv_heads} * ids.size() * 4);
    }
    CHECK(layers == shape.layers);
  }
}

TEST_CASE("memory that is asked for or given back while launches are captured spoils the graph") {
  cuda::Stream stream;
  REQUIRE(cuda::open_stream(stream) == nullptr);
  cuda::DeviceBuffer held(16);
  const auto spoils = [&](auto&& between) {
    cuda::LaunchGraph graph;
    try {
      static_cast<void>(graph.capture(stream, between));
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  CHECK(spoils([] { cuda::DeviceBuffer(16); }));
  CHECK(spoils([&] { held = cuda::DeviceBuffer(); }));
  CHECK_FALSE(spoils([] {}));
  cuda::close_stream(stream);
}

TEST_CASE("with KVROOF_NO_GRAPHS every step is launched one by one, and its logits are the same") {
  const Model model = model_named("llama-gqa");
  const std::vector<std::int64_t> ids = {5, 17, 9, 40};
  std::vector<std::vector<float>> logits;
  for (const bool graphs : {true, false}) {
    if (!graphs) setenv("KVROOF_NO_GRAPHS", "1", 1);
    cuda::CudaBackend backend(model, {parse_policies("full").at(0), 7, DType::kF16});
    unsetenv("KVROOF_NO_GRAPHS");
    Observer observer;
    backend.set_observer(&observer);
    backend.prefill(3, ids, 20, {}, {});
    logits.emplace_back(model.config.shape.vocab);
    for (int step = 0; step < 3; ++step) backend.decode({{DecodeEntry{3, 6}}}, logits.back());
    CHECK((observer.graphs > 0) == graphs);
  }
  CHECK(logits[0] == logits[1]);
}

TEST_CASE("launches that cannot be captured name the first that was refused, and how to do without") {
  cuda::Stream stream;
  REQUIRE(cuda::open_stream(stream) == nullptr);
  cuda::DeviceBuffer held(16);
  cuda::LaunchGraph graph;
  try {
    static_cast<void>(graph.capture(stream, [&] {
      stream.problem = "invalid resource handle";
      held = cuda::DeviceBuffer();  // what follows spoils the graph as well
    }));
    FAIL("nothing was refused");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "CUDA: invalid resource handle while capturing launches");
    REQUIRE(error.notes().size() == 1);
    CHECK(error.notes()[0].find("KVROOF_NO_GRAPHS=1") == 0);
  }
  CHECK(graph.empty());
  cuda::close_stream(stream);
}
