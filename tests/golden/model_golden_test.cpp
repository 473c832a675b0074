// The goldens of every family: a forward pass on the stored weights against PyTorch's float32 values.
#include <array>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "kernels/cpu/fast_ops.hpp"
#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

constexpr double kTolerance = 1e-4;  // of the largest reference value

const fs::path kGoldens = fs::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

void for_each_model(const std::function<void(const Model&, const SafetensorsFile&)>& check_one) {
  REQUIRE(model_folders().size() > 2);
  for (const std::string& name : model_folders()) {
    INFO(name);
    check_one(load_model(kGoldens / name, DType::kF32), open_tensors(kGoldens / name / "golden.safetensors"));
  }
}

// The model folder with config.new.json in the place of config.json.
class NewConfigFolder {
 public:
  explicit NewConfigFolder(const std::string& model) : path_(fs::temp_directory_path() / ("kvroof-new-" + model)) {
    fs::remove_all(path_);
    fs::create_directory(path_);
    fs::copy_file(kGoldens / model / "config.new.json", path_ / "config.json");
    for (const auto& entry : fs::directory_iterator(kGoldens / model)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("model")) fs::create_symlink(entry.path(), path_ / name);
    }
  }
  ~NewConfigFolder() { fs::remove_all(path_); }
  NewConfigFolder(const NewConfigFolder&) = delete;
  NewConfigFolder& operator=(const NewConfigFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

constexpr std::array kPrompts = {"1", "2", "37"};

void check_logits(const Model& model, const SafetensorsFile& golden) {
  for (const char* n : kPrompts) {
    INFO("prompt of " << n);
    const auto logits = prompt_logits(model, integers(golden, std::string("ids_") + n));
    CHECK(relative_error(logits, floats(golden, std::string("logits_") + n)) <= kTolerance);
  }
}

// Collects what the back end hands to a recorder, as floats.
struct RowCollector : Recorder {
  std::vector<std::vector<float>> k, v, q;  // by layer, [count, heads, width]
  void rows(std::uint32_t, LayerId layer, std::uint32_t, std::uint32_t, std::span<const std::byte> q_rows,
            std::span<const std::byte> k_rows, std::span<const std::byte> v_rows) override {
    const std::size_t layers = layer.value + 1;
    for (auto* all : {&q, &k, &v}) all->resize(std::max(all->size(), layers));
    append(q[layer.value], q_rows);
    append(k[layer.value], k_rows);
    append(v[layer.value], v_rows);
  }
  void eviction(const EvictionRecord&) override { FAIL("full attention evicts nothing"); }
  static void append(std::vector<float>& to, std::span<const std::byte> rows) {
    const std::size_t before = to.size();
    to.resize(before + rows.size() / sizeof(float));
    convert_to_float(DType::kF32, rows.data(), std::span(to).subspan(before));
  }
};

// [count, heads, width] of each layer → elements [first, first + part) of every row as [layers, heads, count, part].
std::vector<float> head_major(const std::vector<std::vector<float>>& layers, std::size_t heads, std::size_t width,
                              std::size_t first, std::size_t part) {
  std::vector<float> out;
  for (const auto& layer : layers) {
    const std::size_t count = layer.size() / heads / width;
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto row = layer.begin() + static_cast<std::ptrdiff_t>((i * heads + h) * width + first);
        out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(part));
      }
    }
  }
  return out;
}

void check_cache(const ModelShape& shape, const RowCollector& collected, const SafetensorsFile& golden) {
  const auto equal = [&](const auto& rows, std::size_t heads, std::size_t width, std::size_t first, std::size_t part,
                         const char* expected) {
    INFO(expected);
    CHECK(relative_error(head_major(rows, heads, width, first, part), floats(golden, expected)) <= kTolerance);
  };
  if (shape.latent()) {
    equal(collected.k, 1, shape.head_dim, 0, shape.latent_rank, "latent_cache");
    equal(collected.k, 1, shape.head_dim, shape.latent_rank, shape.latent_rope_dim, "k_rope_cache");
    equal(collected.v, 1, shape.v_head_dim, 0, shape.latent_rank, "latent_cache");
    return;
  }
  equal(collected.k, shape.kv_heads, shape.head_dim, 0, shape.head_dim, "k_cache");
  equal(collected.v, shape.kv_heads, shape.v_head_dim, 0, shape.v_head_dim, "v_cache");
  std::vector<float> q_last;
  for (const auto& layer : collected.q) {
    q_last.insert(q_last.end(), layer.end() - shape.heads * shape.head_dim, layer.end());
  }
  CHECK(relative_error(q_last, floats(golden, "q_last")) <= kTolerance);
}

}  // namespace

TEST_CASE("logits at all positions equal PyTorch's for prompts of 1, 2 and 37 tokens") { for_each_model(check_logits); }

TEST_CASE("a configuration as transformers 5 writes it gives the same logits") {
  for (const std::string& name : model_folders()) {
    INFO(name);
    const NewConfigFolder folder(name);
    check_logits(load_model(folder.path(), DType::kF32), open_tensors(kGoldens / name / "golden.safetensors"));
  }
}

TEST_CASE("greedy continuations with the cache equal PyTorch's") {
  for_each_model([](const Model& model, const SafetensorsFile& golden) {
    for (const char* n : kPrompts) {
      INFO("prompt of " << n);
      CHECK(greedy(model, integers(golden, std::string("ids_") + n), 16) ==
            integers(golden, std::string("greedy_") + n));
    }
  });
}

TEST_CASE("greedy continuations of the fast back end equal PyTorch's") {
  for_each_model([](const Model& model, const SafetensorsFile& golden) {
    CpuBackend backend(model, make_fast_ops(2), {full_policy(), 0, DType::kF32});
    SessionOptions options;
    options.max_new_tokens = 16;
    options.ignore_eos = true;
    const auto result = run_session(backend, model.config, {integers(golden, "ids_37")}, options, nullptr);
    CHECK(result.sequences[0].ids == integers(golden, "greedy_37"));
  });
}

TEST_CASE("keys after rotary embedding, values and queries equal PyTorch's cache, a latent one row for row") {
  for_each_model([](const Model& model, const SafetensorsFile& golden) {
    CpuBackend backend = reference_backend(model);
    RowCollector collected;
    backend.set_recorder(&collected);
    backend.prefill(0, integers(golden, "ids_37"), 1, {}, {});
    check_cache(model.config.shape, collected, golden);
  });
}

TEST_CASE("a batch decodes each sequence as if it were alone, and as PyTorch does") {
  for_each_model([](const Model& model, const SafetensorsFile& golden) {
    const std::size_t vocab = model.config.shape.vocab;
    const std::vector<std::int64_t> ids = integers(golden, "ids_b");
    constexpr std::size_t kLength = 20;
    CpuBackend backend = reference_backend(model);
    std::vector<DecodeEntry> last;
    // All tokens but the last as prompts; the last in one step of the batch.
    for (std::uint32_t s = 0; s < 3; ++s) {
      backend.prefill(s, std::span(ids).subspan(s * kLength, kLength - 1), 1, {}, {});
      last.push_back({s, ids[s * kLength + kLength - 1]});
    }
    std::vector<float> logits(3 * vocab);
    backend.decode(last, logits);
    CHECK(relative_error(logits, floats(golden, "logits_b_last")) <= kTolerance);
  });
}

TEST_CASE("log-probabilities of the next prompt token equal PyTorch's") {
  for_each_model([](const Model& model, const SafetensorsFile& golden) {
    const std::size_t vocab = model.config.shape.vocab;
    const auto ids = integers(golden, "ids_37");
    const auto logits = prompt_logits(model, ids);
    const auto expected = floats(golden, "logprob_37");
    float largest = 0;
    for (const float x : logits) largest = std::max(largest, std::fabs(x));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const float logprob = log_probability(std::span(logits).subspan(i * vocab, vocab), ids[i + 1]);
      CHECK(std::fabs(logprob - expected[i]) <= kTolerance * largest);
    }
  });
}

TEST_CASE("scales, windows and soft-caps of the layers are those that the reference models used") {
  for (const std::string& name : model_folders()) {
    INFO(name);
    const ModelConfig config = load_model_config(kGoldens / name);
    const auto golden = nlohmann::json::parse(std::ifstream(kGoldens / name / "golden.json")).at("attention");
    for (std::uint32_t i = 0; i < config.shape.layers; ++i) {
      const LayerRule& rule = config.options.layers[i];
      CHECK(static_cast<double>(rule.scale) == Approx(golden.at("scale")[i].get<double>()).epsilon(1e-6));
      const auto& window = golden.at("window")[i];
      const std::uint32_t expected = window.is_null() ? 0 : window.get<std::uint32_t>();
      CHECK(config.shape.window(i) == (expected < config.shape.max_positions ? expected : 0));
      const auto& softcap = golden.at("softcap");
      CHECK(rule.softcap == (softcap.is_null() ? 0.0F : softcap.get<float>()));
    }
  }
}
