// Stored formats, engines as files, and models over several devices.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
constexpr TrafficTypes kBf16 = {DType::kBF16, DType::kBF16};

ModelShape model(const std::string& name) { return find_model_shape(name, kCatalog); }
WeightFormat format(std::string_view name) { return parse_weight_format(name).value(); }

CostModel cost_of(const Deployment& deployment, const char* device = "h100-sxm", const char* name = "llama-3.1-70b",
                  const char* engine = "graphs") {
  return CostModel(model(name), deployment, find_device(device, kCatalog), find_engine_profile(engine, kCatalog));
}
Deployment over(std::uint32_t devices) {
  Deployment deployment = kBf16;
  deployment.tensor_parallel = devices;
  return deployment;
}
double seconds(const CostModel& cost, std::uint64_t batch = 1) {
  return cost.predict(full_attention_summary(cost.shape(), 512, 8), batch).step.value;
}
std::string problem(std::string_view text) {
  const auto engine = engine_from_yaml(text);
  return engine ? "" : engine.error();
}

}  // namespace

TEST_CASE("stored weights have the sizes of the published files") {
  // llama.cpp's README and file listings: Q4_K_M of Llama-3-8B is 4.58 GiB, of Llama-3-70B 39.6 GiB; Q4_0 of Llama-2-7B
  // 3.56 GiB; Q8_0 of Llama-2-7B 6.67 GiB.
  const auto gib = [](const char* name, const char* type) {
    return static_cast<double>(weight_bytes(model(name), format(type)).value) / kGiB;
  };
  CHECK(gib("llama-3-8b", "Q4_K_M") == Approx(4.58).epsilon(0.01));
  CHECK(gib("llama-3-70b", "q4_k_m") == Approx(39.6).epsilon(0.01));
  CHECK(gib("llama-2-7b", "Q4_0") == Approx(3.56).epsilon(0.01));
  CHECK(gib("llama-2-7b", "Q8_0") == Approx(6.67).epsilon(0.01));
  // openai/gpt-oss-120b: 60.8 GiB of checkpoint, experts in MXFP4 and the rest in bf16.
  CHECK(gib("gpt-oss-120b", "mxfp4") == Approx(60.8).epsilon(0.02));
  // A model without experts has its layers in it: 80 of 8192 · (8192 · 2 + 1024 · 2 + 3 · 28672) and two norms; head
  // and embedding of 8192 · 128256 are of 16 bits.
  const double layers = 80.0 * (8192.0 * (8192 * 2 + 1024 * 2 + 3 * 28672) + 2 * 8192) + 8192;
  CHECK(gib("llama-3-70b", "mxfp4") == Approx((layers * 4.25 + 2 * 8192.0 * 128256 * 16) / 8 / kGiB));
}

TEST_CASE("llama.cpp's files of mxfp4 have all but the experts in 8 bits, other engines' in 16") {
  // Its tables of rates print 11.27 GiB for gpt-oss-20b; OpenAI's checkpoint has 13.76 GB, the same experts and bf16.
  const auto bytes = [](const char* engine) {
    const CostModel cost = cost_of(Deployment(kBf16, format("mxfp4")), "h100-sxm", "gpt-oss-20b", engine);
    return static_cast<double>(cost.memory().ledger(full_attention_summary(cost.shape(), 64, 8), 1).weights.value);
  };
  CHECK(bytes("llama-cpp") / kGiB == Approx(11.27).epsilon(0.01));
  CHECK(bytes("vllm") == Approx(13.76e9).epsilon(0.01));
  CHECK(format_in(model("gpt-oss-20b"), format("Q4_K_M"), 8.5).layer_bits == format("Q4_K_M").layer_bits);
  CHECK(format_in(model("llama-3-8b"), format("mxfp4"), 8.5).layer_bits == 4.25);
}

TEST_CASE("nvfp4 checkpoints have latent attention in 16 bits, whose products walk along no columns") {
  // DeepSeek-R1, 671.03e9 parameters: in each of 61 layers 7168 · 1536 + 1536 · 128 · 192 + 7168 · 576 +
  // 512 · 128 · 256 + 128 · 128 · 7168 of attention, and two matrices of 7168 · 129280, in bf16; the rest in 4.5 bits.
  const double attention = 61.0 * (7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 + 16384.0 * 7168);
  const double ends = 2 * 7168.0 * 129280;
  const double bytes = 2 * (attention + ends) + (671.03e9 - attention - ends) * 4.5 / 8;
  const ModelShape r1 = model("deepseek-v3");
  CHECK(static_cast<double>(weight_bytes(r1, format("nvfp4")).value) == Approx(bytes).epsilon(1e-3));
  CHECK(weight_bytes(r1, format_in(r1, format("nvfp4"))) == weight_bytes(r1, format("nvfp4")));
  // No walk of 0.52 us for 1,024 columns along those of the inputs of attention and of its outputs, in 61 layers.
  WeightFormat late = format("nvfp4");
  late.plain_latent = false;
  CHECK(weight_bytes(model("mixtral-8x7b"), format("nvfp4")) == weight_bytes(model("mixtral-8x7b"), late));
  const auto linear = [](const WeightFormat& stored) {
    const CostModel cost = cost_of(Deployment(kBf16, stored), "b200", "deepseek-v3");
    return cost.predict(full_attention_summary(cost.shape(), 512, 8), 1).terms[0].value;
  };
  const Device b200 = find_device("b200", kCatalog);
  const double rate = b200.value(DeviceField::kLinearFraction) * b200.bandwidth().value;
  const double more = attention * 11.5 / 8 / rate - 61 * (7168 + 128 * 128) * 0.52e-6 / 1024;
  CHECK(linear(format("nvfp4")) - linear(late) == Approx(more).epsilon(0.01));
}

TEST_CASE("a plain format weighs what the model's parameters weigh, tied head or not") {
  for (const char* name : {"llama-3.2-1b", "llama-3-8b", "mixtral-8x7b", "gpt2", "deepseek-v2-lite"}) {
    INFO(name);
    CHECK(weight_bytes(model(name), plain_format(DType::kBF16)) == weight_bytes(model(name), DType::kBF16));
  }
}

TEST_CASE("formats are found as engines and papers spell them, and nothing else is") {
  for (const WeightFormat& f : weight_formats()) CHECK(format(f.name).layer_bits == f.layer_bits);
  CHECK(format("F16").name == "f16");
  CHECK(format("BF16").layer_bits == 16);
  CHECK(format("q4").name == "Q4_K_M");
  for (const char* name : {"fp8-block", "fp8_e4m3", "FP8 (E4M3)", "w8a8-fp8"}) CHECK(format(name).name == "fp8");
  for (const char* name : {"int8_wo", "INT8 weight-only", "W8A16"}) CHECK(format(name).name == "int8-wo");
  for (const char* name : {"AWQ-4bit", "gptq-int4", "w4a16", "int4_wo", "4-bit"}) CHECK(format(name).name == "int4");
  CHECK(format("q4f16_1").name == "q4f16");
  CHECK(format("fp8 (per-tensor)").name == "fp8");
  CHECK(format("EXL2 4.65bpw").layer_bits == 4.65);
  CHECK(format("exl3-3.0bpw").head_bits == 6);
  for (const char* name : {"0.5bpw", "99bpw", "bpw", "xbpw"}) CHECK_FALSE(parse_weight_format(name).has_value());
  CHECK_FALSE(parse_weight_format("int3").has_value());
  CHECK_FALSE(parse_weight_format("").has_value());
  CHECK_FALSE(parse_weight_format("i64").has_value());
}

TEST_CASE("smaller weights are faster, and unpacking bounds them where arithmetic is slow") {
  const auto read = [](const char* device, const char* type, const char* engine) {
    const CostModel cost = cost_of(Deployment(kBf16, format(type)), device, "llama-2-7b", engine);
    return cost.predict(full_attention_summary(cost.shape(), 16, 8), 1).terms[0].value;
  };
  // 6.6e9 parameters of a layer and of the head in int8: 18 fp32 operations each take 6.1 ms at 19.5 TFLOP/s, reading
  // takes 4.1 ms.
  CHECK(read("a100-80g", "int8-wo", "single-stream") == Approx(6.476e9 * 18 / 19.5e12 + 129 * 5.3e-6).epsilon(0.01));
  CHECK(read("rtx-4090", "int8-wo", "single-stream") < 0.55 * read("rtx-4090", "bf16", "single-stream"));
  CHECK(read("h100-sxm", "fp8", "vllm") < read("h100-sxm", "bf16", "vllm"));
}

TEST_CASE("several devices are faster than one, slower than their number says, and hold less each") {
  const ResidencySummary r = full_attention_summary(model("llama-3.1-70b"), 512, 8);
  for (const std::uint32_t n : {2U, 4U, 8U}) {
    const CostModel one = cost_of(kBf16), many = cost_of(over(n));
    CHECK(seconds(many) < seconds(one));
    CHECK(seconds(many) > seconds(one) / n);
    CHECK(many.memory().ledger(r, 4).weights.value == (one.memory().ledger(r, 4).weights.value + n - 1) / n);
    CHECK(many.memory().ledger(r, 4).kv_allocated.value * n == one.memory().ledger(r, 4).kv_allocated.value);
  }
}

TEST_CASE("a sum over devices is its start and the ring's bytes, two a layer, computed by hand") {
  const Prediction p = cost_of(over(4)).predict(full_attention_summary(model("llama-3.1-70b"), 512, 8), 64);
  const double bytes = 64.0 * 8192 * 2;
  const double by_hand = 160 * (8e-6 + 3e-6 + 2 * 3 / 4.0 * bytes / (0.55 * 450e9));
  CHECK(p.terms[static_cast<std::size_t>(CostTerm::kLinks)].value == Approx(by_hand).epsilon(1e-9));
  CHECK(cost_of(kBf16).predict(full_attention_summary(model("llama-3.1-70b"), 512, 8), 64).terms[5].value == 0);
}

TEST_CASE("a norm over all heads of q and k starts one sum of a layer more, whose two numbers a token cost nothing") {
  const auto links = [](QkNorm norm) {
    ModelShape shape = model("llama-3.1-70b");
    shape.qk_norm = norm;
    const CostModel cost(shape, over(4), find_device("h100-sxm", kCatalog), find_engine_profile("kvroof", kCatalog));
    return cost.predict(full_attention_summary(shape, 512, 8), 64).terms[static_cast<std::size_t>(CostTerm::kLinks)];
  };
  CHECK(links(QkNorm::kWhole).value - links(QkNorm::kNone).value == Approx(80 * (8e-6 + 3e-6)).epsilon(1e-9));
  CHECK(links(QkNorm::kHead).value == links(QkNorm::kNone).value);
}

TEST_CASE("the engine's kernel sums over links, or over two boards that reach each other, and else NCCL does, later") {
  const auto links = [](const char* device, std::uint32_t devices) {
    const CostModel cost = cost_of(over(devices), device, "llama-3.1-70b", "vllm");
    return cost.predict(full_attention_summary(cost.shape(), 512, 8), 1)
        .terms[static_cast<std::size_t>(CostTerm::kLinks)].value;
  };
  // 160 sums of 8192 numbers of 2 bytes. vLLM's kernel starts at 10 us and 3 more for each doubling, NCCL's at 36 and
  // 12, either 20 later over PCIe, of which a ring gets 0.55; without peer access each byte crosses it twice.
  const auto by_hand = [](double start_us, double devices, double one_way, double share) {
    return 160 * (start_us * 1e-6 + 2 * (devices - 1) / devices * 8192 * 2 / (share * one_way * 1e9));
  };
  CHECK(links("h100-sxm", 4) == Approx(by_hand(13, 4, 450, 0.55)));
  CHECK(links("l40s", 2) == Approx(by_hand(30, 2, 32, 0.55)));
  CHECK(links("l40s", 4) == Approx(by_hand(68, 4, 32, 0.55)));
  CHECK(links("rtx-4090", 2) == Approx(by_hand(56, 2, 32, 0.275)));
  CHECK(links("rtx-4090", 8) == Approx(by_hand(80, 8, 32, 0.275)));
  // A bridge joins two boards; a third is reached over PCIe.
  CHECK(links("h100-pcie", 2) == Approx(by_hand(10, 2, 300, 0.55)));
  CHECK(links("h100-pcie", 4) == Approx(by_hand(68, 4, 64, 0.55)));
  CHECK(links("rtx-3090", 2) == Approx(by_hand(10, 2, 56.25, 0.55)));
  CHECK(links("rtx-3090", 4) == Approx(by_hand(68, 4, 32, 0.275)));
}

TEST_CASE("more devices than KV heads hold the same heads: the cache of a device shrinks no further") {
  const auto kv = [](std::uint32_t n) {
    const CostModel cost = cost_of(over(n));
    return cost.memory().ledger(full_attention_summary(cost.shape(), 4096, 8), 8).kv_allocated.value;
  };
  CHECK(kv(16) == kv(8));
  CHECK(kv(8) * 8 == kv(1));
}

TEST_CASE("stages share the memory, not the time, of one stream") {
  Deployment staged = kBf16;
  staged.stages = 4;
  const CostModel one = cost_of(kBf16), four = cost_of(staged);
  CHECK(seconds(four) > seconds(one));
  CHECK(seconds(four) < 1.01 * seconds(one));
  const ResidencySummary r = full_attention_summary(one.shape(), 512, 8);
  CHECK(four.memory().ledger(r, 1).weights.value * 4 >= one.memory().ledger(r, 1).weights.value);
  CHECK(four.memory().ledger(r, 1).kv_allocated.value * 4 == one.memory().ledger(r, 1).kv_allocated.value);
}

TEST_CASE("what cannot be spread is said") {
  CHECK(deployment_problem(model("llama-3.1-70b"), over(5)) == "64 query heads cannot be spread over 5 devices");
  Deployment staged = kBf16;
  staged.stages = 81;
  CHECK(deployment_problem(model("llama-3.1-70b"), staged) == "80 layers cannot be spread over 81 stages");
  CHECK(deployment_problem(model("llama-3.1-70b"), over(8)).empty());
  Deployment experts = over(8);
  experts.expert_parallel = 4;
  CHECK(deployment_problem(model("deepseek-v3"), experts).empty());
  experts.expert_parallel = 3;
  CHECK(deployment_problem(model("deepseek-v3"), experts) ==
        "8 devices cannot be 3 groups that each hold whole experts");
}

TEST_CASE("an engine file that says what no engine does is refused with its line") {
  const std::string head = "name: mine\nabout: mine\n";
  CHECK(problem(head).empty());
  CHECK(problem(head + "step_uss: 3\n") == "line 3: unknown key 'step_uss'; did you mean step_us?");
  CHECK(problem(head + "step_us: -3\n") == "line 3: step_us must be a number from 0 to 1000000");
  CHECK(problem(head + "graphs: 3\n") == "line 3: graphs must be true or false");
  CHECK(problem("- a\n") == "expected a map with name, about and numbers");
  CHECK(problem("name: mine\n") == "name and about are needed");
  CHECK(problem("name: [\n").find("not a valid YAML file") == 0);
}

TEST_CASE("products are of the next size that a graph was captured for, attention of the sequences that are there") {
  EngineProfile padded = find_engine_profile("graphs", kCatalog);
  padded.graph_sizes = {1, 2, 4, 8, 16};
  const auto terms = [&](const EngineProfile& engine, std::uint64_t batch) {
    const CostModel cost(model("llama-2-7b"), kBf16, find_device("h100-sxm", kCatalog), engine);
    return cost.predict(full_attention_summary(cost.shape(), 512, 8), batch).terms;
  };
  const auto exact = find_engine_profile("graphs", kCatalog);
  constexpr auto kLinear = static_cast<std::size_t>(CostTerm::kLinear);
  constexpr auto kAttention = static_cast<std::size_t>(CostTerm::kAttention);
  // Products of 9 sequences: 129 starts of 3.6 us; all weights but the embedding table, a row of which each reads; and
  // arithmetic of 16, at 0.97 · 0.803 of 989 TFLOP/s.
  const double layers = 32 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008), head = 32000.0 * 4096, norms = 65.0 * 4096;
  const double reading = 2 * (layers + head + norms + 9.0 * 4096) / (0.85 * 3350e9);
  const double computing = 2 * 16 * (layers + head) / (0.97 * 0.803 * 989e12);
  CHECK(terms(padded, 9)[kLinear].value == Approx(129 * 3.6e-6 + std::hypot(reading, computing)));
  CHECK(terms(padded, 9)[kAttention].value == terms(exact, 9)[kAttention].value);
  CHECK(terms(padded, 16)[kLinear].value == terms(exact, 16)[kLinear].value);
  CHECK(terms(padded, 17)[kLinear].value == terms(exact, 17)[kLinear].value);
}

TEST_CASE("several devices sum what a padded batch computes for") {
  EngineProfile padded = find_engine_profile("graphs", kCatalog);
  padded.graph_sizes = {8};
  const auto links = [&](const EngineProfile& engine, std::uint64_t batch) {
    const CostModel cost(model("llama-3.1-70b"), over(2), find_device("h100-sxm", kCatalog), engine);
    return cost.predict(full_attention_summary(cost.shape(), 64, 8), batch).terms[5].value;
  };
  CHECK(links(padded, 5) == links(find_engine_profile("graphs", kCatalog), 8));
}

TEST_CASE("a batch beyond the largest graph is launched kernel by kernel") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  engine.graph_sizes = {1, 2};
  engine.launch_us = 1000;  // of 10 kernels in each of 32 layers, far more than the device computes
  const auto step = [&](std::uint64_t batch) {
    return seconds(CostModel(model("llama-2-7b"), kBf16, find_device("h100-sxm", kCatalog), engine), batch);
  };
  CHECK(step(2) < 0.1);
  CHECK(step(3) == Approx(32 * 10 * 1e-3 + 25e-6));
}

TEST_CASE("graphs hold so many sequences, or in vLLM so many tokens of steps that verify drafts") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  engine.graph_sizes = {8, 16};
  CHECK(engine.padded(3, 4, 1) == 8 * 4);
  CHECK(engine.replays(16, 4, 1));
  engine.graphs_of_tokens = true;
  CHECK(engine.padded(3, 4, 1) == 16);
  CHECK(engine.replays(4, 4, 1));
  CHECK_FALSE(engine.replays(5, 4, 1));
  CHECK(engine.padded(5, 4, 1) == 20);
  engine.graphs_over_stages = true;
  CHECK(engine.padded(3, 4, 2) == 16);
  engine.graphs_over_stages = false;
  CHECK_FALSE(engine.replays(3, 4, 2));
  CHECK(engine.padded(3, 4, 2) == 12);
  CHECK(find_engine_profile("vllm", kCatalog).graphs_of_tokens);
  CHECK_FALSE(find_engine_profile("vllm@0.7.0", kCatalog).graphs_of_tokens);
}

TEST_CASE("sizes of graphs are read as a list with ranges, ascending, or refused with their line") {
  const auto sizes = [](const std::string& list) {
    return engine_from_yaml("name: mine\nabout: mine\ngraph_sizes: " + list + "\n").value().graph_sizes;
  };
  CHECK(sizes("[1, 2, 4, 8 to 24 by 8]") == std::vector<std::uint32_t>{1, 2, 4, 8, 16, 24});
  CHECK(sizes("[]").empty());
  for (const char* wrong :
       {"[1, 1]", "[4, 2]", "[8 to 24]", "[8 to 4 by 2]", "[8 to 24 by 0]", "[0]", "[1, x]", "[-1]", "[99999999]",
        "[-4294967295]", "[[1]]", "8 to 24 by 8", "256", "~", "[1 to 65536 by 4294967295]"}) {
    INFO(wrong);
    CHECK(problem("name: mine\nabout: mine\ngraph_sizes: " + std::string(wrong) + "\n") ==
          "line 3: graph_sizes must be an ascending list of sizes and ranges such as [1, 2, 4, 8 to 256 by 8]");
  }
}

TEST_CASE("an engine with gaps between its kernels is slower by them, graph or none") {
  EngineProfile gaps = find_engine_profile("graphs", kCatalog);
  gaps.gap_us = 3;
  const CostModel with(model("llama-2-7b"), kBf16, find_device("h200", kCatalog), gaps);
  const CostModel without = cost_of(kBf16, "h200", "llama-2-7b");
  CHECK(seconds(with) - seconds(without) == Approx(32 * 10 * 3e-6));
}

TEST_CASE("an engine that keeps what a layer's window no longer shows has room for every layer's whole sequence") {
  const auto kv = [](bool keeps) {
    EngineProfile engine = find_engine_profile("graphs", kCatalog);
    engine.keeps_hidden_rows = keeps;
    const CostModel cost(model("gpt-oss-120b"), kBf16, find_device("h200", kCatalog), engine);
    return cost.memory().ledger(full_attention_summary(cost.shape(), 1000, 24), 1).kv_allocated.value;
  };
  // 36 layers of 8 heads of 64, every other of which sees 128 tokens; k and v in two bytes.
  const std::uint64_t row = 2 * 2 * 8 * 64;
  CHECK(kv(true) == 36 * 1024 * row);
  CHECK(kv(false) == 18 * (1024 + 128) * row);
}

TEST_CASE("where graphs are of decode steps alone, a prompt takes its launches or its arithmetic, what is longer") {
  const auto cost = [](double launch_us) {
    EngineProfile engine = find_engine_profile("graphs", kCatalog);
    engine.prompt_launch_us = launch_us;
    return CostModel(model("llama-2-7b"), kBf16, find_device("h100-sxm", kCatalog), engine);
  };
  const auto prompt = [&](double launch_us, std::uint32_t tokens) {
    const CostModel c = cost(launch_us);
    return c.prefill(full_attention_summary(c.shape(), tokens, 8), 1).value;
  };
  CHECK(prompt(0, 64) < 0.02);
  CHECK(prompt(1000, 64) == Approx(32 * 10 * 1e-3 + 25e-6));
  CHECK(prompt(10, 4096) == prompt(0, 4096));
  CHECK(seconds(cost(1000)) == seconds(cost(0)));
}

TEST_CASE("what a host does for each sequence hides behind the device and prompts, or is the step") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const auto step = [&](double hidden_us, double beside) {
    engine.hidden_request_us = hidden_us;
    const CostModel cost(model("llama-2-7b"), kBf16, find_device("h100-sxm", kCatalog), engine);
    return cost.step(full_attention_summary(cost.shape(), 64, 8), Pass{.sequences = 100, .beside = beside}).value;
  };
  const double device = step(0, 0);
  CHECK(device < 0.02);
  CHECK(step(50, 0) == device);  // 5 ms, behind more than that
  // 100 sequences of 1 ms, and the 25 us of a step that nothing hides; of them 30 ms behind prompts.
  CHECK(step(1000, 0) == Approx(0.1 + 25e-6));
  CHECK(step(1000, 0.03) == Approx(0.07 + 25e-6));
  CHECK(step(1000, 1) == device);
}

TEST_CASE("products in fp4 take the share of their peak that boards were measured at, and walk along columns") {
  const auto product = [](const char* device, double m, double n, double k) {
    return cost_of(Deployment(kBf16, format("nvfp4")), device)
        .product(static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(k))
        .value;
  };
  const double weights = 8192.0 * 8192 * 4.5 / 8, operations = 2.0 * 8192 * 8192;
  CHECK(product("b200", 512, 8192, 8192) ==
        Approx((3.6 + 1.8 + 8 * 0.52) * 1e-6 + std::hypot(weights / (0.805 * 8e12), 512 * operations / (0.44 * 9e15))));
  // Public tables of vLLM 0.19, SGLang 0.5.10 and TensorRT-LLM 1.2 on B200: 132, 122 and 149 us for 4,096 rows of
  // 8,192 x 8,192; on RTX PRO 6000 Server 462, 481 and 437 us.
  CHECK(product("b200", 4096, 8192, 8192) == Approx(132e-6).epsilon(0.15));
  CHECK(product("rtx-pro-6000-server", 4096, 8192, 8192) == Approx(462e-6).epsilon(0.15));
  // The same tables of vLLM and SGLang for 16 rows of 8,192 x 1,024 and of 8,192 x 8,192: 6.0 to 8.2 and 12.7 to 16 us.
  CHECK(product("b200", 16, 8192, 1024) == Approx(7e-6).epsilon(0.15));
  CHECK(product("b200", 16, 8192, 8192) == Approx(15e-6).epsilon(0.15));
  // More operations a second are printed on B300, and tables show as many.
  CHECK(product("b300", 4096, 8192, 8192) == Approx(product("b200", 4096, 8192, 8192)).epsilon(0.03));
}

TEST_CASE("short messages are summed by reading those of all devices at once, long ones in two parts, by hand") {
  const auto links = [](double second_shot_us, const char* device, std::uint64_t sequences) {
    EngineProfile engine = find_engine_profile("graphs", kCatalog);
    engine.second_shot_us = second_shot_us;
    Deployment eight(kBf16);
    eight.tensor_parallel = 8;
    const CostModel cost(model("llama-3-70b"), eight, find_device(device, kCatalog), engine);
    return cost.predict(full_attention_summary(cost.shape(), 64, 8), sequences)
        .terms[static_cast<std::size_t>(CostTerm::kLinks)].value;
  };
  // 160 sums of 16 rows of 8192 numbers of 16 bits, at 450 GB/s a direction: seven messages at 0.72 of it, or 14 / 8 of
  // one at 0.55.
  const double message = 16 * 8192 * 2.0;
  CHECK(links(16, "h200", 16) - links(0, "h200", 16) ==
        Approx(160 * message * (7 / (0.72 * 450e9) - 14 / 8.0 / (0.55 * 450e9))));
  CHECK(links(16, "h200", 512) - links(0, "h200", 512) == Approx(160 * 16e-6));
  // Without links between all of them there is a ring alone.
  CHECK(links(16, "rtx-4090", 16) == links(0, "rtx-4090", 16));
}

TEST_CASE("no more sequences run than the engine takes") {
  const CostModel cost = cost_of(kBf16, "h200", "llama-3.2-1b", "vllm");
  CHECK(cost.memory().largest_batch(full_attention_summary(cost.shape(), 16, 8)) == 256);
}

}  // namespace kvroof
