#include "analysis/scoreboard.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

constexpr const char* kHeader =
    "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,batch_mode,batch,input_len,output_len,"
    "metric,value,unit,source\n";

std::vector<PublishedRow> rows_of(const std::string& lines) {
  return published_rows(kHeader + lines).or_throw("rows");
}
std::string problem_of(const std::string& csv) {
  const auto rows = published_rows(csv);
  return rows ? "" : rows.error();
}
const Scoreboard& scoreboard() {
  static const Scoreboard board(std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog");
  return board;
}
ScoredRow score(const PublishedRow& row) { return scoreboard().score(row); }

constexpr const char* kServed = "m,end_to_end,";
// A prediction for one row; the row must be supported.
double predicted(const std::string& line) {
  const auto rows = rows_of(line);
  const ScoredRow scored = score(rows[0]);
  INFO(line << scored.refused);
  REQUIRE(scored.predicted);
  return scored.predicted->value;
}

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
  CHECK(problem_of(std::string(kHeader) + "a,b\n") == "line 2: 2 fields, but the header has 16");
  const std::string good = "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,1,us,s\n";
  CHECK(problem_of(kHeader + good + "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,fast,us,s\n") ==
        "line 3: value `fast` is no number");
  CHECK(problem_of(kHeader + good + "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,1,,s\n") ==
        "line 3: it has no unit");
  for (const std::string impossible : {"nan", "inf", "-1"}) {
    CHECK(problem_of(kHeader + ("m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time," + impossible + ",us,s\n")) ==
          "line 2: value is " + impossible + ", expected a number from 0 on");
  }
  CHECK(problem_of("unit," + std::string(kHeader)) == "line 1: the column unit is there twice");
  CHECK(problem_of(kHeader + good + good).empty());
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
                     const std::string& metric, const std::string& unit) {
    const auto rows = published_rows(
        "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,parallelism,engine,batch_mode,batch,"
        "input_len,output_len,metric,value,unit,source\n"
        "m,end_to_end,Qwen3-30B-A3B,bf16,,H100-SXM-80GB," + devices + "," + layout +
        ",vLLM,continuous_fixed_concurrency," + batch + ",500,200," + metric + ",," + unit + ",s\n").or_throw("rows");
    const ScoredRow scored = score(rows[0]);
    INFO(scored.refused);
    REQUIRE(scored.predicted);
    return scored.predicted->value;
  };
  CHECK(of("2", "32", "DP2", "tpot_mean", "ms") == of("1", "16", "TP1", "tpot_mean", "ms"));
  CHECK(of("2", "32", "DP2", "output_tokens_per_s", "tok/s") ==
        Approx(2 * of("1", "16", "TP1", "output_tokens_per_s", "tok/s")));
  CHECK(of("4", "32", "TP2DP2", "tpot_mean", "ms") == of("2", "16", "TP2", "tpot_mean", "ms"));
  CHECK(of("2", "32", "DP2+EP2", "tpot_mean", "ms") == of("2", "32", "TP2", "tpot_mean", "ms"));
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

TEST_CASE("clients in a closed loop get one answer each in the time of all their prompts and an answer's steps") {
  // Under an engine whose requests have their places at once.
  const auto of = [](int clients, int output, const std::string& metric) {
    const std::string unit = metric.starts_with("output") ? "tok/s" : "s";
    return predicted(fmt::format("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,lmdeploy,continuous_fixed_concurrency,"
                                 "{},1000,{},{},,{},s\n",
                                 clients, output, metric, unit));
  };
  const double prompt = of(1, 201, "ttft"), step = of(16, 201, "itl_median");
  CHECK(of(1, 201, "output_tokens_per_s") == Approx(201 / of(1, 201, "e2e_mean")));
  // Prompts of 1,000 tokens take as long together as one by one, but for a little of their starts.
  CHECK(of(16, 201, "output_tokens_per_s") == Approx(16 * 201 / (16 * prompt + 200 * step)).epsilon(0.003));
  // Most tokens wait for no prompt, unless there are prompts in most steps.
  CHECK(of(16, 201, "itl_mean") == Approx(step + 15 * prompt / 201).epsilon(0.003));
  CHECK(of(16, 20, "itl_median") == Approx(of(16, 20, "itl_mean")));
}

TEST_CASE("a first token waits for a twentieth of the clients' prompts and three more, under vLLM for one more") {
  const auto of = [](const char* engine, int clients) {
    return predicted(fmt::format("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,{},continuous_fixed_concurrency,{},"
                                 "1000,200,ttft_mean,,s,s\n", engine, clients));
  };
  const double one = of("lmdeploy", 1);
  CHECK(of("lmdeploy", 2) == Approx(2 * one).epsilon(0.003));  // no more than the other client's
  // Four in one pass, whose activations go through memory.
  CHECK(of("lmdeploy", 20) == Approx((1 + 3 + 1) * one).epsilon(0.06));
  const double arrival = 0.0156, prompt = of("vLLM", 1) - arrival;
  CHECK(of("vLLM", 20) == Approx((1 + 1 + 1) * prompt + arrival).epsilon(0.06));
}

TEST_CASE("most tokens of a closed loop wait for the host as long with others' prompts as without") {
  // A host that launches for longer than the device computes; a prompt is in one step of 64.
  const auto of = [](int clients, const std::string& metric) {
    return predicted(fmt::format("m,end_to_end,Llama-3.2-1B,fp16,,H100-SXM-80GB,1,transformers,"
                                 "continuous_fixed_concurrency,{},16,1000,{},,ms,s\n", clients, metric));
  };
  CHECK(of(1, "itl_median") == of(1, "itl_mean"));
  CHECK(of(16, "itl_median") == Approx(of(1, "itl_mean")));
}

TEST_CASE("without a number of clients a server under its greatest load has tokens at the pace of its fullest batch") {
  const std::string server = "m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1,vLLM,";
  const double one = predicted(server + "continuous_fixed_concurrency,1,1000,200,tpot_mean,,ms,s\n");
  // The most that vLLM takes at once is 256.
  const double most = predicted(server + "continuous_fixed_concurrency,256,1000,200,tpot_mean,,ms,s\n");
  CHECK(most > 1.5 * one);
  CHECK(predicted(server + "continuous_max_load,max,1000,200,tpot_mean,,ms,s\n") == most);
  for (const char* waits : {"continuous_max_load,max,1000,200,ttft_mean,,ms,s\n",
                            "continuous_max_load,max,1000,200,e2e_mean,,ms,s\n",
                            "continuous_open_loop,8 req/s,1000,200,output_tokens_per_s_total,,tok/s,s\n",
                            "continuous_open_loop,8 req/s,1000,200,decode_tokens_per_s,,tok/s,s\n"}) {
    INFO(waits);
    CHECK_FALSE(score(rows_of(server + waits)[0]).predicted.has_value());
  }
}

TEST_CASE("loops of which not one sequence fits are refused, as a full server is") {
  const std::string row = "m,end_to_end,Llama-3.1-405B,bf16,,A100-SXM4-80GB,1,vLLM,";
  for (const char* rest : {"continuous_fixed_concurrency,8,1000,200,tpot_mean,,ms,s\n",
                           "continuous_fixed_concurrency,8,1000,200,output_tokens_per_s_total,,tok/s,s\n",
                           "continuous_open_loop,1 req/s,1000,200,ttft_mean,,ms,s\n",
                           "continuous_max_load,max,1000,200,output_tokens_per_s_total,,tok/s,s\n"}) {
    INFO(rest);
    CHECK(score(rows_of(row + rest)[0]).refused == "not even one sequence fits");
  }
}

TEST_CASE("medians between tokens of an open loop have prompts once they are in half of the steps, tails are refused") {
  const std::string row = "m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,lmdeploy,continuous_open_loop,";
  const auto of = [&](int rate, const std::string& metric) {
    return predicted(fmt::format("{}{} req/s,1000,20,{},,ms,s\n", row, rate, metric));
  };
  CHECK(of(1, "itl_median") < of(1, "itl_mean"));
  CHECK(of(12, "itl_median") == Approx(of(12, "itl_mean")));
  const auto tail = rows_of("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,lmdeploy,continuous_fixed_concurrency,8,"
                            "1000,20,itl_p99,,ms,s\n");
  CHECK(score(tail[0]).refused == "a tail is not predicted, means and medians are: itl_p99");
}

TEST_CASE("an open loop holds as many sequences as arrive while one is served, an unstated load widens intervals") {
  const std::string row = "m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1,vLLM,continuous_open_loop,";
  const std::string rest = ",500,200,tpot_mean,,ms,s\n";
  const double idle = predicted(row + "0.01 req/s" + rest), busy = predicted(row + "20 req/s" + rest);
  CHECK(idle < busy);
  const auto unknown = rows_of(row + rest), alone = rows_of(row + "0.01 req/s" + rest);
  const Estimate wide = *score(unknown[0]).predicted, narrow = *score(alone[0]).predicted;
  CHECK(wide.high80 / wide.low80 > narrow.high80 / narrow.low80);
  CHECK(wide.low80 <= narrow.value);
}

TEST_CASE("a request waits for its place before its prompt: a time of the engine, seen by first tokens alone") {
  const auto of = [](const char* mode, const char* batch, const char* metric) {
    return predicted(std::string("m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1,vLLM,") + mode + "," + batch +
                     ",500,200," + metric + ",,ms,s\n");
  };
  const double alone = of("single_stream", "1", "first_token_latency");
  CHECK(of("continuous_fixed_concurrency", "1", "ttft_mean") == Approx(alone + 15.6).epsilon(1e-3));
  CHECK(of("continuous_open_loop", "0.01 req/s", "ttft_mean") > alone + 15.6);
  CHECK(of("continuous_fixed_concurrency", "1", "e2e_mean") ==
        Approx(alone + 15.6 + 199 * of("continuous_fixed_concurrency", "1", "tpot_mean")).epsilon(1e-3));
}

TEST_CASE("a saturated server of more memory serves no fewer tokens") {
  const auto of = [](const char* gpu) {
    return predicted(std::string("m,end_to_end,Llama-3.1-70B,fp8,fp8,") + gpu +
                     ",1,TensorRT-LLM,continuous_max_load,max,1000,1000,output_tokens_per_s_total,,tok/s,s\n");
  };
  CHECK(of("H200-SXM-141GB") > 2 * of("H100-SXM-80GB"));
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
