// Engines as they were in earlier versions, and what that changes in a step.
#include <algorithm>
#include <fstream>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
constexpr TrafficTypes kBf16 = {DType::kBF16, DType::kBF16};
constexpr auto kLinks = static_cast<std::size_t>(CostTerm::kLinks), kHost = static_cast<std::size_t>(CostTerm::kHost);

const std::string kThree =
    "name: mine\nabout: today\nstep_us: 1\ngap_us: 1\nearlier:\n"
    "  - {before: [b30, 2024-03-01], step_us: 2, about: older}\n"
    "  - {before: [b20, 2024-02-01], graphs: false, graph_sizes: []}\n"
    "  - {before: [b10, '0.9'], gap_us: 4}\n";

EngineProfile engine(const std::string& text) { return engine_from_yaml(text).or_throw("engine"); }
std::string problem(const std::string& earlier) {
  const auto read = engine_from_yaml("name: mine\nabout: mine\nearlier:" + earlier + "\n");
  return read ? "" : read.error();
}

double seconds(const EngineProfile& engine, std::size_t term, const Deployment& deployment = kBf16) {
  const CostModel cost(find_model_shape("llama-2-7b", kCatalog), deployment, find_device("rtx-4090", kCatalog), engine);
  return cost.predict(full_attention_summary(cost.shape(), 64, 8), 1).terms[term].value;
}

}  // namespace

TEST_CASE("every engine of the catalog is readable, has its file's name and says where its numbers come from") {
  const auto names = catalog_engine_names(kCatalog);
  CHECK(names.size() >= 10);
  for (const std::string& name : names) {
    const EngineProfile engine = find_engine_profile(name, kCatalog);
    CHECK(engine.name == name);
    CHECK(engine.about.size() <= 60);  // a column of `kvroof engines`
    std::ifstream file(kCatalog / "engines" / (name + ".yaml"));
    std::string first, second;
    std::getline(file, first);
    std::getline(file, second);
    CHECK(first == "# Where the numbers below are from:");
    CHECK(second.size() > 20);
    for (const EngineProfile& elsewhere : engine.elsewhere) {
      const std::string& architecture = elsewhere.on.front();
      INFO(architecture);
      const auto devices = catalog_device_names(kCatalog);
      CHECK(std::any_of(devices.begin(), devices.end(), [&](const std::string& device) {
        return find_device(device, kCatalog).architecture == architecture;
      }));
    }
  }
  CHECK(default_engine_profile(DeviceKind::kGpu, kCatalog).name == "kvroof");
  CHECK(default_engine_profile(DeviceKind::kCpu, kCatalog).name == "cpu");
}

TEST_CASE("drawing tokens by top-p takes the engine's sampler a time for each sequence and entry of the vocabulary") {
  EngineProfile sorts = find_engine_profile("graphs", kCatalog);
  sorts.top_p_ns = 0.5;
  Deployment top_p = kBf16;
  top_p.top_p = true;
  const CostModel greedy(find_model_shape("llama-3-8b", kCatalog), kBf16, find_device("h100-sxm", kCatalog), sorts);
  const CostModel drawn(greedy.shape(), top_p, find_device("h100-sxm", kCatalog), sorts);
  const ResidencySummary r = full_attention_summary(greedy.shape(), 64, 8);
  CHECK(drawn.predict(r, 64).step.value - greedy.predict(r, 64).step.value == Approx(64 * 128256 * 0.5e-9));
}

TEST_CASE("logits that go to the host take a time for each sequence and entry of the vocabulary, however it chooses") {
  EngineProfile hands = find_engine_profile("graphs", kCatalog);
  const Device device = find_device("h100-sxm", kCatalog);
  Deployment top_p = kBf16;
  top_p.top_p = true;
  const ModelShape shape = find_model_shape("llama-3-8b", kCatalog);
  const ResidencySummary r = full_attention_summary(shape, 64, 8);
  const auto host = [&](const Deployment& deployment) {
    return CostModel(shape, deployment, device, hands).predict(r, 64).terms[kHost].value;
  };
  const double before = host(kBf16);
  hands.logits_ns = 0.25;
  CHECK(host(kBf16) - before == Approx(64 * 128256 * 0.25e-9));
  hands.top_p_ns = 0.5;
  CHECK(host(kBf16) - before == Approx(64 * 128256 * 0.25e-9));
  CHECK(host(top_p) - before == Approx(64 * 128256 * 0.75e-9));
}

TEST_CASE("kvroof's steps that were measured handed all logits to the host, and those of today do not") {
  const auto step = [&](const char* engine, const char* model, bool drawn) {
    Deployment deployment = kBf16;
    deployment.top_p = drawn;
    const CostModel cost(find_model_shape(model, kCatalog), deployment, find_device("h200", kCatalog),
                         find_engine_profile(engine, kCatalog));
    return cost.predict(full_attention_summary(cost.shape(), 256, 7), 64).step.value;
  };
  const char* const measured = "kvroof@2026-11-27";
  for (const auto& [model, vocabulary] : {std::pair{"mpt-7b", 50432}, std::pair{"llama-3-8b", 128256}}) {
    const double copy = 64 * vocabulary * 0.18e-9;
    CHECK(step(measured, model, false) - step("kvroof", model, false) == Approx(copy));
    // What is drawn needs them, and ranks them on the host.
    CHECK(step("kvroof", model, true) - step("kvroof", model, false) == Approx(copy + 64 * vocabulary * 2.52e-9));
    CHECK(step(measured, model, true) == Approx(step(measured, model, false)));
  }
  CHECK(step("kvroof@2026-11-28", "mpt-7b", false) == step("kvroof", "mpt-7b", false));
}

TEST_CASE("a version has what changed after it undone, of all versions that came later") {
  const EngineProfile today = engine(kThree);
  const auto is = [&](const char* version, double step, double gap, bool graphs) {
    INFO(version);
    const EngineProfile& then = today.of(version, "");
    CHECK(then.step_us == step);
    CHECK(then.gap_us == gap);
    CHECK(then.graphs == graphs);
  };
  for (const char* now : {"", "main", "b30", "b31", "2024-03-01", "2024-03", "2024", "1.0"}) is(now, 1, 1, true);
  for (const char* older : {"b29", "b20", "2024-02", "2024-02-29"}) is(older, 2, 1, true);
  for (const char* oldest : {"b19", "b10", "2024-01"}) is(oldest, 2, 1, false);
  for (const char* first : {"b9", "b0", "0.8"}) is(first, 2, 4, false);
  CHECK(today.of("b29", "").about == "older");
  CHECK(today.of("b9", "").name == "mine");
}

TEST_CASE("earlier versions out of order, without one or with what all versions share are refused with their line") {
  CHECK(problem(" [{before: [b2]}, {before: [b1, '0.1']}, {before: ['0.1']}]").empty());
  CHECK(problem(" 3") == "line 3: earlier must be a list");
  CHECK(problem(" [3]") == "line 3: expected a map with before or on, and what is other");
  CHECK(problem(" [{step_us: 3}]") == "line 3: an earlier version says which it is before");
  CHECK(problem(" [{before: b1}]") == "line 3: before must be a list");
  CHECK(problem(" [{before: [main]}]") ==
        "line 3: before: 'main' is no version; expected one such as 0.8.1, b2822 or 2024-05-08");
  CHECK(problem("\n  - {before: [b1]}\n  - {before: [b2]}") ==
        "line 5: before: b2 comes after b1; earlier versions are listed newest first");
  CHECK(problem(" [{before: [b1], name: other}]") == "line 3: name is of all versions");
  CHECK(problem(" [{before: [b1], earlier: []}]") == "line 3: earlier is of all versions");
  CHECK(problem(" [{before: [b1], step_uss: 1}]") == "line 3: unknown key 'step_uss'; did you mean step_us?");
}

TEST_CASE("an engine is found as of today, or of a version behind an @") {
  CHECK(find_engine_profile("vllm", kCatalog).graphs);
  CHECK(find_engine_profile("vllm@0.2.6", kCatalog).graphs);
  CHECK_FALSE(find_engine_profile("vllm@0.2.5", kCatalog).graphs);
  CHECK_FALSE(find_engine_profile("llama-cpp@2024-04", kCatalog).graphs);
  CHECK_THROWS_WITH(find_engine_profile("vllm@old", kCatalog), ContainsSubstring("'old' is no version"));
  CHECK_THROWS_WITH(find_engine_profile("vllm@", kCatalog), ContainsSubstring("'' is no version"));
  CHECK_THROWS_WITH(find_engine_profile("vlm@0.2", kCatalog), ContainsSubstring("did you mean vllm"));
}

TEST_CASE("a version that the profile says nothing of is refused, and says how that engine's versions are stated") {
  CHECK_THROWS_WITH(find_engine_profile("unfused@0.1", kCatalog),
                    "engine 'unfused@0.1': its profile is the same for all versions; leave '@0.1' away");
  CHECK_THROWS_WITH(find_engine_profile("vllm@b1000", kCatalog),
                    "engine 'vllm@b1000': versions of vllm are stated like 0.14.0 or 2026-01-20, found 'b1000'");
  CHECK_THROWS_WITH(find_engine_profile("tensorrt-llm@2024-05", kCatalog),
                    ContainsSubstring("stated like 1.0.0rc1, found"));
  for (const char* counted : {"llama-cpp@0.1.30", "llama-cpp@b1", "llama-cpp@2024"}) {
    CHECK_NOTHROW(find_engine_profile(counted, kCatalog));
  }
}

TEST_CASE("an engine is another on the architectures that its profile names, in each of its versions") {
  const EngineProfile mine = engine("name: mine\nabout: mine\nstep_us: 1\ngap_us: 1\n"
                                    "elsewhere: [{on: [CDNA3, CDNA2], gap_us: 5}]\nearlier:\n"
                                    "  - {before: [b30], step_us: 2}\n"
                                    "  - {before: [b20], on: [CDNA3], step_us: 3}\n"
                                    "  - {before: [b10], launch_us: 4}\n");
  const auto is = [&](const char* version, const char* there, double step, double gap, double launch) {
    INFO(version << " on " << there);
    const EngineProfile& then = mine.of(version, there);
    CHECK(then.step_us == step);
    CHECK(then.gap_us == gap);
    CHECK(then.launch_us == launch);
  };
  for (const char* other : {"", "Hopper"}) {
    is("", other, 1, 1, 0);
    is("b19", other, 2, 1, 0);
    is("b9", other, 2, 1, 4);
  }
  is("", "CDNA3", 1, 5, 0);
  is("b19", "CDNA3", 3, 5, 0);
  is("b9", "CDNA3", 3, 5, 4);
  is("b19", "CDNA2", 2, 5, 0);
}

TEST_CASE("an engine is another on boards of an architecture from a memory on, in each of its versions") {
  const EngineProfile mine = engine("name: mine\nabout: mine\nprompt_chunk: 2\nstep_us: 1\nelsewhere:\n"
                                    "  - {on: [Hopper, CDNA3], from_gib: 70, prompt_chunk: 8}\n"
                                    "  - {on: [Hopper], from_gib: 140, prompt_chunk: 9}\n"
                                    "  - {on: [Hopper], gap_us: 5}\n"
                                    "earlier: [{before: [b10], on: [Hopper], step_us: 3}]\n");
  const auto is = [&](const char* there, double memory_gib, double chunk, double gap, double old_step) {
    INFO(there << " of " << memory_gib << " GiB");
    CHECK(mine.of("", there, memory_gib).prompt_chunk == chunk);
    CHECK(mine.of("b9", there, memory_gib).prompt_chunk == chunk);
    CHECK(mine.of("", there, memory_gib).gap_us == gap);
    CHECK(mine.of("", there, memory_gib).step_us == 1);
    CHECK(mine.of("b9", there, memory_gib).step_us == old_step);
  };
  is("Hopper", 0, 2, 5, 3);
  is("Hopper", 69.9, 2, 5, 3);
  is("Hopper", 70, 8, 5, 3);
  is("Hopper", 141, 9, 5, 3);
  is("CDNA3", 24, 2, 0, 1);
  is("CDNA3", 192, 8, 0, 1);
  is("Ampere", 80, 2, 0, 1);
}

TEST_CASE("a vLLM server takes 8192 tokens a step and 1024 sequences on large boards, else 2048 and 256, as on A100") {
  const auto on = [](const char* board, const char* version = "") {
    const Device device = find_device(board, kCatalog);
    return find_engine_profile("vllm" + std::string(version), kCatalog, device.architecture,
                               gib(device.usable_memory()));
  };
  for (const char* large : {"h100-sxm", "h100-pcie", "h200", "b200", "rtx-pro-6000"}) {
    INFO(large);
    CHECK(on(large).prompt_chunk == 8192);
    CHECK(on(large).largest_batch == 1024);
  }
  for (const char* small : {"a100-40g", "a100-80g", "l40s", "rtx-4090", "rtx-5090"}) {
    INFO(small);
    CHECK(on(small).prompt_chunk == 2048);
    CHECK(on(small).largest_batch == 256);
    CHECK(on(small, "@0.7.3").prompt_chunk == 8192);
  }
  CHECK(on("mi300x").prompt_chunk == 8192);
  CHECK(on("h100-sxm", "@0.7.3").largest_batch == 256);
}

TEST_CASE("what an engine is elsewhere is refused without its architectures, and as no list") {
  const auto refused = [](const std::string& text) {
    return engine_from_yaml("name: mine\nabout: mine\n" + text).error();
  };
  CHECK(refused("elsewhere: 3\n") == "line 3: elsewhere must be a list");
  CHECK(refused("elsewhere: [{gap_us: 3}]\n") == "line 3: elsewhere says which architectures it is on");
  CHECK(refused("elsewhere: [{on: [CDNA3], name: other}]\n") == "line 3: name is of all versions");
  CHECK(refused("on: [CDNA3]\n").starts_with("line 3: unknown key 'on'"));
  CHECK(refused("elsewhere: [{on: [CDNA3], from_gib: -1}]\n").starts_with("line 3: from_gib must be a number above 0"));
  CHECK(refused("elsewhere: [{from_gib: 70}]\n") == "line 3: elsewhere says which architectures it is on");
  CHECK(refused("earlier: [{before: [b1], from_gib: 70}]\n") == "line 3: from_gib is of what an engine is elsewhere");
}

TEST_CASE("llama.cpp reads 16-bit weights at a third more bytes a clock since b3916, and of CDNA a few until b4100") {
  const auto reads = [](const char* version, const char* board, const char* type) {
    const Device device = find_device(board, kCatalog);
    const std::string name = "llama-cpp@" + std::string(version);
    const EngineProfile engine = find_engine_profile(name, kCatalog, device.architecture);
    const Deployment deployment(kBf16, *parse_weight_format(type));
    const CostModel cost(find_model_shape("llama-2-7b", kCatalog), deployment, device, engine);
    const double starts = 225 * device.value(DeviceField::kLinearT0Us) * 1e-6;  // 7 products of 32 layers, and the head
    const auto linear = static_cast<std::size_t>(CostTerm::kLinear);
    return cost.predict(full_attention_summary(cost.shape(), 64, 8), 1).terms[linear].value - starts;
  };
  const double clocks = 132 * 1830e6, bytes = 2 * 6607077376.0;  // multiprocessors · clock; 32 layers and the head
  CHECK(reads("b3915", "h100-sxm", "f16") == Approx(bytes / (6.5 * clocks)).epsilon(1e-3));
  CHECK(reads("b3916", "h100-sxm", "f16") == Approx(bytes / (8.6 * clocks)).epsilon(1e-3));
  CHECK(reads("b3915", "h100-sxm", "Q8_0") == reads("b3916", "h100-sxm", "Q8_0"));
  for (const char* slow : {"b4099", "b3915"}) {
    CHECK(reads(slow, "mi300x", "f16") == Approx(bytes / (1.5 * 304 * 2100e6)).epsilon(1e-3));
  }
  CHECK(reads("b4100", "mi300x", "f16") < 0.5 * reads("b4099", "mi300x", "f16"));
}

TEST_CASE("a key that is there twice and a count that is not whole are refused with their line") {
  const auto refused = [](const std::string& text) {
    return engine_from_yaml("name: mine\nabout: mine\n" + text).error();
  };
  CHECK(refused("step_us: 1\nstep_us: 2\n") == "line 4: key 'step_us' is there twice");
  CHECK(refused("earlier: []\ngap_us: 1\nearlier: []\n") == "line 5: key 'earlier' is there twice");
  CHECK(refused("earlier:\n  - before: [b1]\n    before: [b2]\n") == "line 5: key 'before' is there twice");
  CHECK(refused("kernels_per_layer: 3.5\n") == "line 3: kernels_per_layer must be a whole number");
}

TEST_CASE("kernels launched one by one idle longer between them, as over stages where graphs are not replayed") {
  // 32 layers of 10 kernels.
  EngineProfile graphs = find_engine_profile("graphs", kCatalog);
  const double replayed = seconds(graphs, kHost);
  graphs.launch_gap_us = 2;
  CHECK(seconds(graphs, kHost) == replayed);
  Deployment stages = kBf16;
  stages.stages = 2;
  CHECK(seconds(graphs, kHost, stages) == replayed);
  graphs.graphs_over_stages = false;
  CHECK(seconds(graphs, kHost) == replayed);
  CHECK(seconds(graphs, kHost, stages) - replayed == Approx(32 * 10 * 2e-6));
  graphs.graphs = false;
  CHECK(seconds(graphs, kHost) - replayed == Approx(32 * 10 * 2e-6));
}

TEST_CASE("a host that shares out each product, or tells a process of each step, takes its time over devices alone") {
  EngineProfile shared = find_engine_profile("graphs", kCatalog);
  const double alone = seconds(shared, kHost);
  Deployment four = kBf16;
  four.tensor_parallel = 4;
  const double together = seconds(shared, kHost, four);
  shared.product_us = 20;
  shared.shared_step_us = 1000;
  CHECK(seconds(shared, kLinks) == 0);
  CHECK(seconds(shared, kHost) == alone);
  CHECK(seconds(shared, kLinks, four) == Approx(32 * 4 * 4 * 20e-6));  // 32 layers, 4 products, 4 devices
  CHECK(seconds(shared, kHost, four) - together == Approx(1e-3));
}

TEST_CASE("vLLM before V1 has a millisecond of its host in a step, and before 0.6.0 a tenth of one for a request too") {
  const auto host = [](const char* version) { return seconds(find_engine_profile(version, kCatalog), kHost); };
  CHECK(host("vllm@0.7.3") - host("vllm@0.8.0") == Approx((1000 - 151 + 60 - 4) * 1e-6));
  CHECK(host("vllm@0.6.0") == host("vllm@2025-03-17"));
  CHECK(host("vllm@0.5.5") - host("vllm@0.6.0") == Approx((400 + 100 - 60) * 1e-6));
  Deployment four = kBf16;
  four.tensor_parallel = 4;
  const auto shared = [&](const char* version) { return seconds(find_engine_profile(version, kCatalog), kHost, four); };
  CHECK(shared("vllm@0.5.5") - shared("vllm@0.6.0") == Approx((400 + 100 - 60 + 1000) * 1e-6));
}

TEST_CASE("vLLM's graphs break at each layer's attention before 0.11, and scheduling waits for the step before 0.14") {
  const auto host = [](const char* version) { return seconds(find_engine_profile(version, kCatalog), kHost); };
  CHECK(host("vllm@0.14.0") == host("vllm"));
  CHECK(host("vllm@0.13.0") - host("vllm") == Approx((900 - 151) * 1e-6));
  CHECK(host("vllm@0.10.2") - host("vllm") == Approx(32 * 12 * 2.7e-6));  // 32 layers of 12 kernels
}

TEST_CASE("vLLM before V1 took 5 ms a step and a tenth of one a sequence longer on CDNA boards") {
  const EngineProfile today = find_engine_profile("vllm", kCatalog);
  for (const char* before_v1 : {"0.7.3", "0.5.5"}) {
    INFO(before_v1);
    const EngineProfile &there = today.of(before_v1, "CDNA3"), &elsewhere = today.of(before_v1, "Hopper");
    CHECK(there.step_us - elsewhere.step_us == Approx(5000));
    CHECK(there.request_us - elsewhere.request_us == Approx(100));
  }
  CHECK(today.of("0.8.0", "CDNA3").step_us == today.step_us);
  CHECK(today.of("", "CDNA3").request_us == today.request_us);
}

TEST_CASE("operators that an engine does not fuse take a kernel's start each, and a cache built anew two passes more") {
  EngineProfile plain = find_engine_profile("graphs", kCatalog), eager = plain;
  eager.small_kernels = 40;
  eager.cache_passes = 2;
  const ModelShape shape = find_model_shape("llama-2-7b", kCatalog);
  const Device board = find_device("rtx-4090", kCatalog);
  const ResidencySummary r = full_attention_summary(shape, 2048, 2);
  const auto terms = [&](const EngineProfile& e) { return CostModel(shape, kBf16, board, e).predict(r, 4).terms; };
  const auto small = static_cast<std::size_t>(CostTerm::kElementwise);
  const auto attention = static_cast<std::size_t>(CostTerm::kAttention);
  CHECK(terms(eager)[small].value - terms(plain)[small].value == Approx(32 * 40 * 2e-6));
  // Four sequences of 2,049 rows: 32 layers of 2 · 4096 numbers of 2 bytes, read at 0.9375 of 1,008 GB/s.
  const double pass = 4.0 * 2049 * 32 * 2 * 4096 * 2 / (0.9375 * 1008e9);
  CHECK(terms(eager)[attention].value - terms(plain)[attention].value == Approx(2 * pass).epsilon(1e-3));
}

TEST_CASE("transformers fuses attention since 4.36, DeepSpeed has its own loop and cache since 0.12") {
  const auto is = [](const char* name) { return find_engine_profile(name, kCatalog); };
  CHECK_FALSE(is("huggingface@4.35.2").fused_attention);
  CHECK(is("huggingface@4.36").fused_attention);
  CHECK(is("huggingface").fused_attention);
  CHECK(is("deepspeed").reads_by_query_head);
  CHECK(is("deepspeed@0.11.2").prompts_together);
  CHECK_FALSE(is("deepspeed@0.7.3").reads_by_query_head);
}

TEST_CASE("ExLlama and AutoAWQ have the gaps of 17 kernels a layer, AutoAWQ read by query head before 0.2.8") {
  for (const char* name : {"exllama", "autoawq", "autoawq@0.1.6"}) {
    INFO(name);
    CHECK(seconds(find_engine_profile(name, kCatalog), kHost) == Approx(32 * 17 * 2e-6 + 150e-6));
    CHECK(find_engine_profile(name, kCatalog).reads_by_query_head == (std::string(name) == "autoawq@0.1.6"));
  }
}

}  // namespace kvroof
