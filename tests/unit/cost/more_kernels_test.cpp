// Experts and latent attention launch more kernels than plain layers do.
#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

double seconds(const char* model, const EngineProfile& engine, CostTerm term) {
  const CostModel cost(find_model_shape(model, kCatalog), TrafficTypes{DType::kBF16, DType::kBF16},
                       find_device("h100-sxm", kCatalog), engine);
  return cost.predict(full_attention_summary(cost.shape(), 64, 8), 1).terms[static_cast<std::size_t>(term)].value;
}

}  // namespace

TEST_CASE("experts, shared ones and latent attention have the gaps of the kernels that they launch more") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const auto gaps = [&](const char* model) {
    engine.gap_us = 0;
    const double without = seconds(model, engine, CostTerm::kHost);
    engine.gap_us = 1;
    return 1e6 * (seconds(model, engine, CostTerm::kHost) - without);
  };
  CHECK(gaps("llama-2-7b") == Approx(32 * 10));
  // A router and two kernels around the experts.
  CHECK(gaps("mixtral-8x7b") == Approx(32 * (10 + 1 + 2)));
  // 61 layers of latent attention, five products in place of two and two norms; 58 of them routed, with a shared expert
  // of two products, an activation and a sum.
  CHECK(gaps("deepseek-v3") == Approx(61 * (10 + 3 + 2) + 58 * (1 + 2 + 4)));
}

TEST_CASE("kernels between products that reach a share of the bandwidth pass all activations, cached or not") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const double cached = seconds("llama-2-7b", engine, CostTerm::kElementwise);
  // 27 h + 6 f elements of 4 bytes a layer; outside the layers a row of the embedding, the final norm, and the head's
  // inputs and outputs. The cache of an H100 holds them; its products read 0.85 of 3,350 GB/s.
  const double elements = 32 * (27.0 * 4096 + 6.0 * 11008) + 4096 + 2 * 4096 + 4096 + 32000;
  for (const double share : {1.0, 0.5}) {
    engine.activation_share = share;
    CHECK(seconds("llama-2-7b", engine, CostTerm::kElementwise) - cached ==
          Approx(elements * 4 / (share * 0.85 * 3350e9)));
  }
}

TEST_CASE("kernels around the experts start one by one") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const double two = seconds("mixtral-8x7b", engine, CostTerm::kElementwise);
  const double plain = seconds("llama-2-7b", engine, CostTerm::kElementwise);
  engine.routed_kernels = 5;
  // 32 layers, a start of 3.6 us on H100.
  CHECK(seconds("mixtral-8x7b", engine, CostTerm::kElementwise) - two == Approx(32 * 3 * 3.6e-6));
  CHECK(seconds("llama-2-7b", engine, CostTerm::kElementwise) == plain);
}

TEST_CASE("a shared expert in the call of the routed ones launches nothing of its own") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const double products = seconds("deepseek-v3", engine, CostTerm::kLinear);
  const double others = seconds("deepseek-v3", engine, CostTerm::kElementwise);
  engine.shared_with_routed = true;
  // Two products, an activation and a sum in 58 layers; 3.6 us each on H100.
  CHECK(products - seconds("deepseek-v3", engine, CostTerm::kLinear) == Approx(58 * 2 * 3.6e-6).epsilon(1e-6));
  CHECK(others - seconds("deepseek-v3", engine, CostTerm::kElementwise) == Approx(58 * 2 * 3.6e-6).epsilon(1e-6));
}

TEST_CASE("experts in 4 bits run with at most three kernels around them where the board multiplies them as they lie") {
  const auto others = [](const char* device, const char* format, std::uint32_t kernels) {
    EngineProfile engine = find_engine_profile("tensorrt-llm", kCatalog);
    engine.routed_kernels = kernels;
    const Deployment deployment(TrafficTypes{DType::kBF16, DType::kBF16}, *parse_weight_format(format));
    const CostModel cost(find_model_shape("gpt-oss-120b", kCatalog), deployment, find_device(device, kCatalog), engine);
    return cost.predict(full_attention_summary(cost.shape(), 64, 8), 1)
        .terms[static_cast<std::size_t>(CostTerm::kElementwise)].value;
  };
  CHECK(others("b200", "mxfp4", 7) == others("b200", "mxfp4", 3));
  CHECK(others("b200", "mxfp4", 2) < others("b200", "mxfp4", 3));
  CHECK(others("b200", "nvfp4", 7) == others("b200", "nvfp4", 3));
  // 36 layers; a start of 3.6 us on H200 and B200.
  CHECK(others("h200", "mxfp4", 7) - others("h200", "mxfp4", 3) == Approx(36 * 4 * 3.6e-6));
  CHECK(others("b200", "bf16", 7) - others("b200", "bf16", 3) == Approx(36 * 4 * 3.6e-6));
}

TEST_CASE("mxfp4 is unpacked where a board has no products of 4 bits, which takes longer than reading on H200") {
  const auto linear = [](const char* device, double operations) {
    WeightFormat format = *parse_weight_format("mxfp4");
    format.unpack_operations = operations;
    const CostModel cost(find_model_shape("gpt-oss-120b", kCatalog),
                         Deployment(TrafficTypes{DType::kBF16, DType::kBF16}, format), find_device(device, kCatalog),
                         find_engine_profile("vllm", kCatalog));
    return cost.predict(full_attention_summary(cost.shape(), 64, 8), 64)
        .terms[static_cast<std::size_t>(CostTerm::kLinear)].value;
  };
  CHECK(linear("b200", 18) == linear("b200", 0));
  CHECK(linear("h200", 18) > 1.1 * linear("h200", 0));
}

TEST_CASE("prompts of latent attention multiply k and v of each head where an engine expands them") {
  const auto prompt = [](bool expands) {
    EngineProfile engine = find_engine_profile("graphs", kCatalog);
    engine.expands_latent = expands;
    const CostModel cost(find_model_shape("deepseek-v3", kCatalog), TrafficTypes{DType::kBF16, DType::kBF16},
                         find_device("h100-sxm", kCatalog), engine);
    return cost.prefill(full_attention_summary(cost.shape(), 32768, 8), 1).value;
  };
  // 61 layers of 128 heads, half of 32768 squared pairs, two operations for each of 576 + 512 or 192 + 128 numbers, at
  // 0.6 of 989 TFLOP/s; what is read and written beside is a thousandth of that.
  const double pairs = 61 * 128.0 * 32768 * 32769 / 2;
  CHECK(prompt(false) - prompt(true) == Approx(pairs * 2 * (1088 - 320) / (0.6 * 989e12)).epsilon(0.01));
}

namespace {

// Seconds of products that a decode step takes longer once the engine is changed.
template <typename Change>
double later(const char* model, const char* format, const char* device, std::uint32_t experts_apart, Change change) {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  Deployment deployment(TrafficTypes{DType::kBF16, DType::kBF16}, *parse_weight_format(format));
  deployment.tensor_parallel = 8;
  deployment.expert_parallel = experts_apart;
  const auto products = [&] {
    const CostModel cost(find_model_shape(model, kCatalog), deployment, find_device(device, kCatalog), engine);
    return cost.predict(full_attention_summary(cost.shape(), 64, 8), 4)
        .terms[static_cast<std::size_t>(CostTerm::kLinear)].value;
  };
  const double before = products();
  change(engine);
  return products() - before;
}

}  // namespace

TEST_CASE("a grouped product passes the list of the experts that a device holds, chosen or not") {
  const auto listed = [](EngineProfile& engine) { engine.listed_expert_us = 0.25; };
  // 58 routed layers of 256 experts, of which each of eight devices holds parts of all or 32 whole ones.
  CHECK(later("deepseek-v3", "fp8", "h200", 1, listed) == Approx(58 * 256 * 0.25e-6));
  CHECK(later("deepseek-v3", "fp8", "h200", 8, listed) == Approx(58 * 32 * 0.25e-6));
  CHECK(later("deepseek-v3", "bf16", "h200", 8, listed) == 0);
  CHECK(later("llama-2-7b", "fp8", "h200", 1, listed) == 0);
}

TEST_CASE("experts in 8 bits start two kernels later where their inputs are quantised apart") {
  const auto apart = [](EngineProfile& engine) { engine.quantises_experts_apart = true; };
  // 6 us a kernel: a product in fp8 by itself starts 7.5 us later than one in 16 bits, 1.5 of which models show too.
  CHECK(later("deepseek-v3", "fp8", "h200", 8, apart) == Approx(58 * 12e-6));
  CHECK(later("deepseek-v3", "fp8", "a100-80g", 8, apart) == 0);
  CHECK(later("deepseek-v3", "nvfp4", "b200", 8, apart) == 0);
}

TEST_CASE("experts that are packed alone start later where they are unpacked, and not where they are multiplied so") {
  const auto unpacked = [](EngineProfile& engine) { engine.unpacked_experts_us = 45; };
  CHECK(later("gpt-oss-120b", "mxfp4", "h200", 1, unpacked) == Approx(36 * 45e-6));
  CHECK(later("gpt-oss-120b", "mxfp4", "b200", 1, unpacked) == 0);
  CHECK(later("gpt-oss-120b", "bf16", "h200", 1, unpacked) == 0);
}

TEST_CASE("products in fp4 walk along the columns that a device has of them, later where it quantises first") {
  const auto linear = [](const char* model, std::uint32_t devices, bool apart, bool walks) {
    EngineProfile engine = find_engine_profile("graphs", kCatalog);
    engine.quantises_fp4_apart = apart;
    WeightFormat format = *parse_weight_format("nvfp4");
    if (!walks) format.walk = std::nullopt;
    Deployment deployment(TrafficTypes{DType::kBF16, DType::kBF16}, format);
    deployment.tensor_parallel = devices;
    const CostModel cost(find_model_shape(model, kCatalog), deployment, find_device("b200", kCatalog), engine);
    return cost.predict(full_attention_summary(cost.shape(), 64, 8), 4)
        .terms[static_cast<std::size_t>(CostTerm::kLinear)].value;
  };
  const auto walked = [&](const char* model, std::uint32_t devices) {
    return (linear(model, devices, false, true) - linear(model, devices, false, false)) / 0.52e-6 * 1024;
  };
  // 80 layers: 8192 columns of qkv and of gate and up on each device, 64 heads of 128 and 28672 of down among them.
  CHECK(walked("llama-3-70b", 1) == Approx(80 * (2 * 8192 + 8192 + 28672)));
  CHECK(walked("llama-3-70b", 4) == Approx(80 * (2 * 8192 + (8192 + 28672) / 4)));
  // Routed experts are one call; 3 dense layers of 18432, 58 with a shared expert of 2048; attention is in 16 bits.
  CHECK(walked("deepseek-v3", 8) == Approx(3 * (7168 + 18432 / 8) + 58 * (7168 + 2048 / 8)));
  // Four products of 80 layers.
  CHECK(linear("llama-3-70b", 4, true, true) - linear("llama-3-70b", 4, false, true) == Approx(320 * 1.8e-6));
}

TEST_CASE("where sums over devices norm what they sum, the two norms of a layer are no kernels of their own") {
  const auto elementwise = [](std::uint32_t devices, bool normed) {
    EngineProfile engine = find_engine_profile("graphs", kCatalog);
    engine.norms_in_sums = normed;
    Deployment deployment(TrafficTypes{DType::kBF16, DType::kBF16});
    deployment.tensor_parallel = devices;
    const CostModel cost(find_model_shape("llama-3-70b", kCatalog), deployment, find_device("h200", kCatalog), engine);
    return cost.predict(full_attention_summary(cost.shape(), 64, 8), 1)
        .terms[static_cast<std::size_t>(CostTerm::kElementwise)].value;
  };
  // Of the 9 us of each of 80 layers on H200, two of four kernels.
  CHECK(elementwise(4, false) - elementwise(4, true) == Approx(80 * 4.5e-6));
  CHECK(elementwise(1, false) == elementwise(1, true));
}

}  // namespace kvroof
