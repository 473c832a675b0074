// What the back end says of its launches: every byte it counts belongs to one, in single steps and in trains.
#include <map>
#include <string>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/emulator.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

class Observer final : public LaunchObserver {
 public:
  void begin_launch(const LaunchMeaning& meaning) override {
    CHECK_FALSE(open);
    open = true;
    noting ? void(++noted) : made.push_back(meaning);
  }
  void end_launch() override {
    CHECK(open);
    open = false;
  }
  void begin_train() override {
    noting = true;
    noted = 0;
    ++trains;
  }
  void end_train() override { noting = false; }
  void begin_train_launch(std::span<const LaunchMeaning> meanings) override {
    CHECK_FALSE(open);
    open = true;
    CHECK(meanings.size() == noted);
    made.assign(meanings.begin(), meanings.end());
  }

  bool open = false, noting = false;
  std::size_t noted = 0;
  std::size_t trains = 0;
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

Model model_named(const std::string& name) {
  return load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name, DType::kF16);
}

class Copies final : public cuda::emulator::Watcher {
 public:
  Copies() { cuda::emulator::watcher = this; }
  ~Copies() override { cuda::emulator::watcher = nullptr; }
  std::uint64_t noted() override { return 0; }
  std::uint64_t cloned(std::uint64_t node) override { return node; }
  void begin_call() override {}
  void ran(std::uint64_t, std::uint64_t, std::uint64_t) override {}
  void copied(bool is_to_device, std::size_t, std::uint64_t, std::uint64_t) override {
    ++(is_to_device ? to_device : to_host);
  }
  std::size_t to_device = 0, to_host = 0;
};

}  // namespace

TEST_CASE("a step of the train sends its tokens in one copy and its rows in another, and reads its logits in one") {
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

TEST_CASE("every byte that the back end counts was declared by a launch, the same in a train as one by one") {
  const Model model = model_named("llama-gqa");
  for (const char* policy : {"full", "h2o:budget=8", "keyformer:budget=8"}) {
    INFO(policy);
    cuda::CudaBackend backend(model, {parse_policies(policy).at(0), 7, DType::kF16});
    Observer observer;
    backend.set_observer(&observer);
    const std::vector<std::int64_t> ids = {5, 17, 9, 40, 2, 30, 31, 32, 33, 34};
    backend.prefill(3, ids, 20, {}, {});
    ByteCounters counted = backend.take_counters();
    CHECK(sum_of(observer.made)[Cause::kKvRead] == counted[Cause::kKvRead]);
    CHECK(sum_of(observer.made)[Cause::kCompaction] == counted[Cause::kCompaction]);
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
    CHECK(observer.trains == 1);
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
