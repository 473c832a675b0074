#include "analysis/scoreboard.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/scored_rows.hpp"

namespace kvroof {
namespace {

std::string problem_of(const std::string& csv) {
  const auto rows = published_rows(csv);
  return rows ? "" : rows.error();
}
constexpr const char* kServed = "m,end_to_end,";

}  // namespace

TEST_CASE("published rows: quotes hold commas, line breaks and quotes") {
  const auto rows = rows_of("m1,kernel,\"a, \"\"b\"\"\nc\",bf16,,X,2,e,kernel,1,,,kernel_time,26.5,us,s\r\n"
                            "m2,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,1e3,us,\"\"");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].model == "a, \"b\"\nc");
  CHECK(rows[0].gpus == 2);
  CHECK(rows[0].value == 26.5);
  CHECK(rows[1].value == 1000);
  CHECK(rows[1].source.empty());
}

TEST_CASE("published rows that cannot be read are refused with their line") {
  CHECK(problem_of("").find("the file is empty") != std::string::npos);
  CHECK(problem_of("row_id,\"x").find("line 1: a quote is never closed") == 0);
  CHECK(problem_of(std::string(kRowHeader) + "a,b\n") == "line 2: 2 fields, but the header has 16");
  const std::string good = "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,1,us,s\n";
  CHECK(problem_of(kRowHeader + good + "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,fast,us,s\n") ==
        "line 3: value `fast` is no number");
  CHECK(problem_of(kRowHeader + good + "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,1,,s\n") ==
        "line 3: it has no unit");
  for (const std::string impossible : {"nan", "inf", "-1"}) {
    CHECK(problem_of(kRowHeader + ("m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time," + impossible + ",us,s\n")) ==
          "line 2: value is " + impossible + ", expected a number from 0 on");
  }
  CHECK(problem_of("unit," + std::string(kRowHeader)) == "line 1: the column unit is there twice");
  CHECK(problem_of(kRowHeader + good + good).empty());
  const auto empty = rows_of("m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,,us,s\n");
  CHECK_FALSE(empty[0].value.has_value());
}

TEST_CASE("a matrix product is its start-up and the bytes of its weights, computed by hand") {
  const auto row =
      rows_of("m,kernel,GEMM m=1 n=4096 k=4096,bf16,,A100-SXM4-80GB,1,e,kernel,1,,,kernel_time,26.21,us,s\n");
  const ScoredRow scored = score(row[0]);
  REQUIRE(scored.predicted);
  // And its arithmetic, which next to the reading is nearly nothing.
  const double elements = 4096.0 * 4096;
  const double by_hand = 5.3 + std::hypot(2 * elements / (0.785 * 2039e3), 2 * elements / (0.97 * 0.869 * 312e6));
  CHECK(scored.predicted->value == Approx(by_hand).epsilon(1e-6));
  CHECK(scored.error() == Approx(by_hand / 26.21 - 1).epsilon(1e-6));
}

TEST_CASE("what the model does not know is refused in words, never predicted") {
  const auto refused = [](const std::string& line) {
    const auto rows = rows_of(line);
    return score(rows[0]).refused;
  };
  CHECK(refused("m,kernel,GEMM m=1 n=9 k=9,bf16,,B9000,1,e,kernel,1,,,kernel_time,1,us,s\n") ==
        "no such device in the catalog: B9000");
  CHECK(refused("m,end_to_end,Llama-7B,int3,,H100-SXM-80GB,1,vLLM,static,1,9,9,total_latency,1,ms,s\n") ==
        "no such weight format: int3");
  CHECK(refused("m,end_to_end,Llama-7B,fp16,fp16,A100-SXM4-80GB,5,vLLM,static,1,9,9,total_latency,1,ms,s\n") ==
        "32 query heads cannot be spread over 5 devices");
  CHECK(refused("m,end_to_end,Llama-9B,fp16,fp16,A100-SXM4-80GB,1,vLLM,static,1,9,9,total_latency,1,ms,s\n") ==
        "no such model in the catalog: Llama-9B; did you mean llama-2-7b?");
  CHECK(refused("m,end_to_end,Llama-7B,fp16,fp16,A100-SXM4-80GB,1,mine,static,1,9,9,total_latency,1,ms,s\n") ==
        "no profile of the engine: mine");
  CHECK(refused("m,end_to_end,Llama-7B,fp16,fp16,A100-SXM4-80GB,1,vLLM,static,,9,9,total_latency,1,ms,s\n") ==
        "the batch is not stated");
  CHECK(refused("m,eviction_ratio,Llama-7B,,,A100-SXM4-80GB,1,,,,,,latency_ratio,1,x,s\n") ==
        "no time or memory of a model or kernel");
}

TEST_CASE("a measurement that the memory cannot do is predicted and not counted, whatever its value") {
  // 1 GiB in 10 us is 50 times what the memory can do.
  const std::string row =
      "m,kernel,decode attention 32q/8kv heads x128,,bf16,A100-SXM4-80GB,1,e,kernel,64,4096,1,kernel_time,";
  const auto fast = rows_of(row + "10,us,s\n"), slow = rows_of(row + "1000,us,s\n");
  CHECK(score(fast[0]).doubt.find("faster than the datasheet's bandwidth and peak allow") == 0);
  CHECK_FALSE(score(fast[0]).compared());
  CHECK(score(slow[0]).compared());
  CHECK(score(fast[0]).predicted->value == score(slow[0]).predicted->value);
}

TEST_CASE("an attention call by itself is its start, a cold start and its bytes, computed by hand") {
  const double by_hand = 9.9 + 10.9 * (1 - std::exp(-33554432.0 / (50 << 20))) +
                         std::hypot(33554432.0 / (0.9 * 3350e3), 8 * 8 * 1.4 / 132);  // 64 heads, 132 multiprocessors
  CHECK(predicted("m,kernel,decode attention 32q/8kv heads x128,,bf16,H100-SXM-80GB,1,vLLM,kernel,8,1024,1,kernel_time,"
                  ",us,s\n") == Approx(by_hand));
}

TEST_CASE("tables of attention over a cache of keys alone move half of what they state, if heads share rows") {
  const auto of = [](const std::string& heads, const std::string& version, const std::string& source) {
    const auto rows = published_rows(
        "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,engine_version,batch_mode,batch,"
        "input_len,output_len,metric,value,unit,source\n"
        "m,kernel,decode attention " + heads + " heads x128,,bf16,A100-SXM4-80GB,1,TensorRT-LLM," + version +
        ",kernel,16,8192,1,kernel_time,,us," + source + "\n").or_throw("rows");
    const ScoredRow scored = score(rows[0]);
    REQUIRE(scored.predicted);
    return scored.predicted->value;
  };
  const std::string table = "generation_attention_perf a100_sxm";
  const double whole = of("32q/8kv", "1.3.0rc20", table), half = of("32q/8kv", "1.0.0", table);
  CHECK(whole - half == Approx(16 * 8192.0 * 8 * 128 * 2 / (0.8 * 2039e3)).epsilon(0.02));
  CHECK(of("32q/8kv", "1.3.0rc10", table) == half);
  CHECK(of("32q/8kv", "1.3.0", table) == whole);
  CHECK(of("32q/8kv", "1.0.0", "another table") == whole);
  CHECK(of("8q/8kv", "1.0.0", table) == of("8q/8kv", "1.3.0", table));
}

TEST_CASE("names are found as tables of measurements write them") {
  const std::string rest = ",1,vLLM,static,1,100,100,total_latency,,ms,s\n";
  const double known = predicted("m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB" + rest);
  for (const char* name :
       {"Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B", "llama 3.1 8b", "Llama-3.1-8B-Instruct-FP8"}) {
    CHECK(predicted(std::string(kServed) + name + ",bf16,,H100-SXM-80GB" + rest) == known);
  }
  for (const char* name : {"NVIDIA H100 SXM 80GB", "H100-SXM", "H100", "NVIDIA H100 80GB HBM3"}) {
    CHECK(predicted(std::string("m,end_to_end,Llama-3.1-8B,bf16,,") + name + rest) == known);
  }
  const std::string small = "m,end_to_end,Llama-3.1-8B,int4,,";
  CHECK(predicted(small + "L4-24GB" + rest) == predicted(small + "L4" + rest));
  const auto other = rows_of(small + "L4-48GB" + rest);  // no such board
  CHECK(score(other[0]).refused == "no such device in the catalog: L4-48GB; did you mean l40s?");
}

TEST_CASE("boards are found with their words in any order, layouts as people write them, and caches of 4 bits") {
  const std::string rest = ",1,vLLM,static,1,100,100,total_latency,,ms,s\n";
  const std::string model = "m,end_to_end,Llama-3.1-8B,bf16,,";
  CHECK(predicted(model + "A100 80GB PCIe" + rest) == predicted(model + "A100-PCIe-80GB" + rest));
  CHECK(predicted(model + "NVIDIA A100 PCIe 40GB" + rest) == predicted(model + "A100-PCIE-40GB" + rest));
  CHECK(predicted(model + "RTX 3090 GeForce" + rest) == predicted(model + "RTX 3090" + rest));
  const auto cached = [&](const char* type) {
    return predicted(std::string("m,end_to_end,Llama-3.1-8B,bf16,") + type +
                     ",L40S,1,vLLM,static,16,8000,100,total_latency,,ms,s\n");
  };
  CHECK(cached("q4_0") < cached("fp8"));
  CHECK(cached("nvfp4") < cached("fp8"));
  CHECK(cached("fp8") < cached("auto"));
  CHECK(cached("not stated") == cached("bf16"));
  const auto over = [](const std::string& layout) {
    const auto rows = published_rows(
        "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,parallelism,engine,batch_mode,batch,"
        "input_len,output_len,metric,value,unit,source\n"
        "m,end_to_end,Llama-3.1-70B,bf16,,H200,8," + layout + ",vLLM,static,1,100,100,total_latency,,ms,s\n")
        .or_throw("rows");
    const ScoredRow scored = score(rows[0]);
    INFO(layout << ": " << scored.refused);
    REQUIRE(scored.predicted);
    return scored.predicted->value;
  };
  CHECK(over("TP8 (2 nodes)") == over("TP8"));
  CHECK(over("TP=8") == over("TP8"));
  CHECK(over("tensor-split") == over("TP8"));
  CHECK(over("layer-split x8") > over("TP8"));
}

TEST_CASE("a row is of the version that it states, of today where it states none, and spread as its engine does it") {
  const auto of = [](const std::string& device, const std::string& layout, const std::string& engine) {
    const auto rows = published_rows(
        "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,parallelism,engine,engine_version,"
        "batch_mode,batch,input_len,output_len,metric,value,unit,source\n"
        "m,end_to_end,Llama-3-8B,Q4_K_M,," + device + "," + layout + "," + engine +
        ",single_stream,1,32,128,decode_tokens_per_s,,tok/s,s\n").or_throw("rows");
    const ScoredRow scored = score(rows[0]);
    INFO(engine << ": " << scored.refused);
    REQUIRE(scored.predicted);
    return scored.predicted->value;
  };
  const auto one = [&](const char* version) { return of("RTX 4090", "1,", std::string("llama.cpp,") + version); };
  CHECK(one("") == one("2026-06"));
  CHECK(one("2025") == one("2025-07"));
  CHECK(one("b2822") < one(""));
  CHECK(one("b2821") < one("b2822"));
  CHECK(one("~2024-04") == one("b2821"));
  CHECK(of("RTX 4090", "1,", "ollama,0.5.7") == one("2025-01"));
  CHECK(of("RTX 4090", "1,", "ollama,0.13.2") == one(""));
  const auto turing = [&](const char* version) { return of("RTX 2080 Ti", "1,", std::string("llama.cpp,") + version); };
  CHECK(turing("") == turing("b2821"));
  const auto four = [&](const char* layout, const char* version) {
    return of("RTX 4090", std::string("4,") + layout, std::string("llama.cpp,") + version);
  };
  CHECK(four("", "") == four("layer-split x4", ""));
  CHECK(four("", "b1842") == four("row-split x4", "b1842"));
  CHECK(four("row-split x4", "b7000") < four("row-split x4", "b8738"));
  CHECK(of("H200", "4,", "vLLM,") == of("H200", "4,TP4", "vLLM,"));
}

TEST_CASE("engines are found by how their name begins, or within what is written") {
  const auto under = [](const std::string& engine) {
    return predicted("m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1," + engine +
                     ",static,1,100,100,total_latency,,ms,s\n");
  };
  CHECK(under("vLLM 0.15.1") == under("vLLM"));
  CHECK(under("LLMServingSim (vLLM profile)") == under("vLLM"));
  CHECK(under("ExLlamaV3") == under("gpt-fast"));
  CHECK(under("TensorRT LLM") == under("TensorRT-LLM"));
  CHECK(under("Sarathi-Serve") == under("lightllm"));
  CHECK(under("TGI") > 0);
}

TEST_CASE("replicas share the requests: each takes its part at its own pace, and their tokens add up") {
  const auto of = [](const std::string& devices, const std::string& batch, const std::string& layout,
                     const std::string& metric, const std::string& unit, const char* conditions = "",
                     const char* model = "Qwen3-30B-A3B") {
    const auto rows = published_rows(
        "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,parallelism,engine,batch_mode,batch,"
        "input_len,output_len,metric,value,unit,conditions,source\nm,end_to_end," + std::string(model) +
        ",bf16,,H100-SXM-80GB," + devices + "," + layout + ",vLLM,continuous_fixed_concurrency," + batch +
        ",500,200," + metric + ",," + unit + "," + conditions + ",s\n").or_throw("rows");
    const ScoredRow scored = score(rows[0]);
    INFO(scored.refused);
    REQUIRE(scored.predicted);
    return scored.predicted->value;
  };
  CHECK(of("2", "32", "DP2", "tpot_mean", "ms") == of("1", "16", "TP1", "tpot_mean", "ms"));
  CHECK(of("2", "32", "DP2", "output_tokens_per_s", "tok/s") ==
        Approx(2 * of("1", "16", "TP1", "output_tokens_per_s", "tok/s")));
  CHECK(of("4", "32", "TP2DP2", "tpot_mean", "ms") == of("2", "16", "TP2", "tpot_mean", "ms"));
  // Replicas that share the experts, named in two ways; of a model without experts they are replicas alone.
  const double apart = of("2", "32", "DP2+EP2", "tpot_mean", "ms");
  CHECK(apart == of("2", "32", "TP2 EP2", "tpot_mean", "ms", "attention data parallel"));
  CHECK(apart == of("2", "32", "TP2 EP2", "tpot_mean", "ms", "--enable-dp-attention"));
  CHECK(apart != of("2", "32", "TP2 EP2", "tpot_mean", "ms"));
  CHECK(of("2", "32", "DP2+EP2", "tpot_mean", "ms", "", "Llama-3.1-8B") ==
        of("2", "32", "DP2", "tpot_mean", "ms", "", "Llama-3.1-8B"));
}

TEST_CASE("experts that are spread whole are fewer on a device, and their list is shorter") {
  const auto of = [](const char* layout) {
    const std::string row = std::string("m,end_to_end,DeepSeek-V3,fp8,,H200-SXM-141GB,8,") + layout +
                            ",TensorRT-LLM,continuous_fixed_concurrency,1,500,200,tpot_mean,,ms,s\n";
    const auto rows = published_rows(
        "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,parallelism,engine,batch_mode,batch,"
        "input_len,output_len,metric,value,unit,source\n" + row).or_throw("rows");
    const ScoredRow scored = score(rows[0]);
    INFO(scored.refused);
    REQUIRE(scored.predicted);
    return scored.predicted->value;
  };
  const std::string catalog = std::string(KVROOF_SOURCE_DIR) + "/catalog";
  const double listed = find_engine_profile("tensorrt-llm", catalog, "Hopper").listed_expert_us * 1e-3;
  REQUIRE(listed > 0);
  // 58 layers of 256 experts: parts of all of them on each device, 64 in four groups, 32 in eight. A device of a group
  // has as much less of the rows of a token's 8 experts: 7168 elements of 2 bytes, 8 times, at 0.85 of 4.8 TB/s.
  const double rows = 58.0 * 8 * 7168 * 2 * 8 / (0.85 * 4.8e12) * 1e3;
  CHECK(of("TP8") - of("TP8 EP4") == Approx(58 * (256 - 64) * listed + rows * 3 / 4).epsilon(1e-3));
  CHECK(of("TP8") - of("TP8+EP8") == Approx(58 * (256 - 32) * listed + rows * 7 / 8).epsilon(1e-3));
}

TEST_CASE("every named precision, model and metric of serving tables is predicted") {
  for (const char* weights :
       {"bf16", "fp16", "fp8", "fp4", "nvfp4", "int8", "int8-wo", "int4", "int4-g32-wo", "Q4_K_M", "gf4"}) {
    CHECK(predicted(std::string("m,end_to_end,Llama-3.1-8B,") + weights +
                    ",,H200-SXM-141GB,1,vLLM,static,8,100,100,total_latency,,ms,s\n") > 0);
  }
  const std::string rest = ",fp8,,B200-180GB,8,SGLang,static,8,100,100,total_latency,,ms,s\n";
  for (const char* model : {"Llama-2-70B", "Llama-3.1-405B", "Mistral-7B", "Mixtral-8x22B", "Qwen3-32B",
                            "Qwen3-235B-A22B", "gpt-oss-120b", "Llama-4-Scout", "CodeLlama-34b", "Yi-34B"}) {
    CHECK(predicted(std::string(kServed) + model + rest) > 0);
  }
  for (const char* metric : {"ttft_mean", "tpot_mean", "itl_mean", "e2e_mean", "layer_time"}) {
    for (const char* mode : {"continuous_fixed_concurrency", "continuous_open_loop"}) {
      CHECK(predicted(std::string("m,end_to_end,Qwen3-14B,bf16,,L40S,2,vLLM,") + mode + ",8,500,200," + metric +
                      ",,ms,s\n") > 0);
    }
  }
}

TEST_CASE("metrics of one server agree with each other") {
  const auto of = [](const std::string& metric, const std::string& unit) {
    return predicted("m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1,vLLM,continuous_fixed_concurrency,16,1000,201," +
                     metric + ",," + unit + ",s\n");
  };
  CHECK(of("e2e_mean", "ms") == Approx(of("ttft_mean", "ms") + 200 * of("tpot_mean", "ms")));
  CHECK(of("tpot_mean", "s") * 1e6 == Approx(of("itl_mean", "us")));
}

TEST_CASE("groups add up errors, their sign, and how many rows lie inside their intervals") {
  PublishedRow a, b;
  a.value = 100;
  b.value = 200;
  const Estimate far{150, 120, 187.5, 110, 204.5, CostTerm::kLinear};
  const Estimate near{190, 170, 212.4, 160, 225.6, CostTerm::kLinear};
  std::vector<ScoredRow> rows(3);
  for (ScoredRow& row : rows) row.group = "g";
  rows[0].row = rows[2].row = &a;
  rows[1].row = &b;
  rows[0].predicted = far;
  rows[1].predicted = near;
  const auto groups = group_scores(rows);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].rows == 2);
  CHECK(groups[0].mean_error == Approx((0.5 + 0.05) / 2));
  CHECK(groups[0].bias == Approx((0.5 - 0.05) / 2));
  CHECK(groups[0].p90_error == Approx(0.5));
  CHECK(groups[0].covered80 == Approx(0.5));
  CHECK(groups[0].covered95 == Approx(0.5));
}

}  // namespace kvroof
