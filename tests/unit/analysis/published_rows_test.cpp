// Rows as authors of tables write them: spellings, parts of a layer, versions of engines, loads that cannot be served.
#include <algorithm>
#include <cmath>

#include "analysis/published_operator.hpp"
#include "analysis/scoreboard.hpp"
#include "analysis/scoreboard_markdown.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

ScoredRow scored(const std::string& line) {
  static const Scoreboard board(std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog");
  static std::vector<PublishedRow> rows;  // a scored row points at its own
  rows = published_rows(
             "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,parallelism,engine,engine_version,"
             "batch_mode,batch,input_len,output_len,metric,value,unit,source\n" + line).or_throw("rows");
  return board.score(rows[0]);
}
double predicted(const std::string& line) {
  const ScoredRow row = scored(line);
  INFO(line << row.refused);
  REQUIRE(row.predicted);
  return row.predicted->value;
}
double of_model(const std::string& model, const std::string& weights = "bf16") {
  return predicted("m,end_to_end," + model + "," + weights +
                   ",,H100-SXM-80GB,8,TP8,vLLM,,static,1,100,100,total_latency,,ms,s\n");
}
double of_board(const std::string& board) {
  return predicted("m,end_to_end,Llama-3.1-8B,Q4_K_M,," + board +
                   ",1,,llama.cpp,,single_stream,1,100,100,decode_tokens_per_s,,tok/s,s\n");
}
double of_part(const std::string& name, const std::string& level = "kernel", const std::string& metric = "layer_time") {
  return predicted("m," + level + "," + name + ",bf16,bf16,RTX 4090,1,,vLLM,0.19,profile,1,4096,," + metric +
                   ",,us,s\n");
}

}  // namespace

TEST_CASE("an answer that no board of that kind can give so fast is predicted and not counted") {
  // 14 GB of weights take 6.6 ms of the memory's 2,039 GB/s.
  const auto doubt = [](const char* measured) {
    const std::string row_of = "m,end_to_end,Llama-2-7B,fp16,fp16,A100-SXM4-80GB,1,,vLLM,,single_stream,1,9,9,";
    const ScoredRow row = scored(row_of + measured);
    CHECK(row.predicted);
    return row.doubt;
  };
  CHECK(doubt("tpot_mean,6,ms,s\n").find("faster than the datasheet's bandwidth and peak allow") == 0);
  CHECK(doubt("tpot_mean,7,ms,s\n").empty());
  CHECK(doubt("decode_tokens_per_s,170,tok/s,s\n").find("faster than") == 0);
  CHECK(doubt("decode_tokens_per_s,140,tok/s,s\n").empty());
  CHECK(doubt("decode_tokens_per_s,,tok/s,s\n").empty());
}

TEST_CASE("a unit that the metric does not have is named, with those that it may have") {
  const auto refused = [](const char* metric, const char* unit) {
    const std::string row_of = "m,end_to_end,Llama-2-7B,fp16,fp16,A100-SXM4-80GB,1,,vLLM,,single_stream,1,9,9,";
    return scored(row_of + metric + ",," + unit + ",s\n").refused;
  };
  CHECK(refused("decode_tokens_per_s", "ms") == "the unit of decode_tokens_per_s is ms, expected tok/s");
  CHECK(refused("decode_tokens_per_s", "ktok/s") == "the unit of decode_tokens_per_s is ktok/s, expected tok/s");
  CHECK(refused("decode_tokens_per_s", "tokens/minute").find("expected tok/s") != std::string::npos);
  CHECK(refused("tpot_mean", "tok/s") == "the unit of tpot_mean is tok/s, expected s, ms or us");
  CHECK(refused("memory_used", "bytes") == "the unit of memory_used is bytes, expected GB, GiB, MB or MiB");
  for (const char* unit : {"tok/s", "tokens/s", "tokens per second", "output tok/s", "t/s", "tok/s/GPU"}) {
    CHECK(refused("decode_tokens_per_s", unit).empty());
  }
}

TEST_CASE("memory is predicted of engines that take what they need, and of those that take all at once only whether it "
          "fits") {
  const auto memory = [](const char* engine, const char* metric, const char* unit) {
    return scored(std::string("m,end_to_end,Llama-2-7B,fp16,fp16,A100-SXM4-80GB,1,,") + engine + ",,static,1,100,100," +
                  metric + ",," + unit + ",s\n");
  };
  CHECK(memory("FasterTransformer", "memory_used", "GB").predicted);
  for (const char* engine : {"vLLM", "SGLang", "TensorRT-LLM"}) {
    CHECK(memory(engine, "memory_used", "GB").refused.find("takes its share of the memory when it starts") !=
          std::string::npos);
    CHECK(memory(engine, "fits_in_memory", "").predicted->value == 1);
    CHECK(memory(engine, "fits_in_memory", "bool").predicted->value == 1);
  }
}

TEST_CASE("counts are read as people write them, and what is none is said to be none") {
  const auto of_prompt = [](const std::string& input) {
    return scored("m,end_to_end,Llama-2-7B,fp16,fp16,A100-SXM4-80GB,1,,vLLM,,static,1," + input +
                  ",16,total_latency,,ms,s\n");
  };
  for (const char* text : {"2k", "2K", "\"2,048\"", "~2048", "2048 tokens"}) {
    INFO(text);
    REQUIRE(of_prompt(text).predicted);
    CHECK(of_prompt(text).predicted->value == of_prompt("2048").predicted->value);
  }
  CHECK(of_prompt("long").refused == "the length of the prompt is no count: long");
  CHECK(of_prompt("99999999999").refused == "the length of the prompt is no count: 99999999999");
  CHECK(of_prompt("-5").refused == "a negative count: -5");
  CHECK(of_prompt("").refused == "the length of the prompt is not stated");
}

TEST_CASE("a table may come from a spreadsheet: its mark of UTF-8 and empty lines are nothing") {
  const std::string table =
      "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,batch_mode,batch,input_len,output_len,"
      "metric,value,unit,source\r\nr,end_to_end,Llama-2-7B,bf16,,A100,1,vLLM,static,1,9,9,total_latency,1,s,s\r\n";
  CHECK(published_rows("\xef\xbb\xbf" + table + "\r\n").or_throw("table").size() == 1);
  std::string semicolons = table, tabs = table;
  std::replace(semicolons.begin(), semicolons.end(), ',', ';');
  std::replace(tabs.begin(), tabs.end(), ',', '\t');
  CHECK(published_rows(semicolons).error() == "line 1: its fields are separated by semicolons, expected commas");
  CHECK(published_rows(tabs).error() == "line 1: its fields are separated by tabs, expected commas");
  CHECK(published_rows("\xff\xfer\0o").error() == "it is UTF-16, expected UTF-8");
  CHECK(published_rows("row_id,level,gpu,n_gpus,unit,source,metric,engine,batch_mode,input_len,output_len,batch,"
                       "kv_precision,weight_precision\n").error() ==
        "line 1: the columns model_or_op, value are missing");
}

TEST_CASE("a row whose conditions name a top-p below one is priced with the engine's sampler") {
  const auto step = [](const std::string& conditions) {
    static const Scoreboard board(std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog");
    const auto rows = published_rows(
                          "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,engine_version,"
                          "batch_mode,batch,input_len,output_len,metric,value,unit,conditions,source\n"
                          "m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1,vLLM,0.11,continuous_fixed_concurrency,64,"
                          "64,400,itl_median,,ms," + conditions + ",s\n").or_throw("rows");
    return board.score(rows[0]).predicted->value;
  };
  const double greedy = step("");
  for (const char* drawn : {"top_p 0.9", "temperature 0.6; top-p=0.95", "top_p of the model"}) {
    CHECK(step(drawn) - greedy == Approx(64 * 128256 * 0.45e-6));
  }
  for (const char* not_drawn : {"temperature 1", "top_p 1", "top_p=1.0"}) CHECK(step(not_drawn) == greedy);
}

TEST_CASE("models are found as hubs and benchmark programs spell them") {
  const double llama = of_model("Llama-3.1-8B");
  for (const char* name : {"RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "amd/Llama-3.1-8B-Instruct-FP8-KV",
                           "Llama-3.1-8B-Instruct-FP8-dynamic"}) {
    CHECK(of_model(name) == llama);
  }
  CHECK(of_model("llama 7B mostly Q4_0") == of_model("Llama-2-7B"));
  CHECK(of_model("LLaMA v2 7B") == of_model("Llama-2-7B"));
  CHECK(of_model("gpt-oss 120B MXFP4 MoE") == of_model("gpt-oss-120b"));
  CHECK(of_model("mistralai/Mistral-Nemo-Instruct-2407") == of_model("mistral-nemo-12b"));
  CHECK(of_model("Llama-2-7B", "awq_marlin") == of_model("Llama-2-7B", "int4"));
  CHECK(of_model("Llama-2-7B", "Q4_K - Medium") == of_model("Llama-2-7B", "Q4_K_M"));
}

TEST_CASE("boards are found with their count in front and without their family's name, and half a name is none") {
  CHECK(of_board("8x H100") == of_board("H100"));
  CHECK(of_board("4070Ti 12GB") == of_board("rtx-4070-ti"));
  CHECK(of_board("Tesla T4") == of_board("t4"));
  const std::string half = "m,end_to_end,Llama-2-7B,fp16,,A100,1,,vLLM,,static,1,9,9,total_latency,,ms,s\n";
  CHECK(scored(half).refused == "A100 may be a100-40g, a100-80g, a100-pcie-40g, a100-pcie-80g: name one");
}

TEST_CASE("parts of a layer are products, calls and element-wise kernels by themselves, computed by hand") {
  // RTX 4090: 2 us and 0.945 of 1,008 GB/s; the arithmetic of one token is nearly nothing.
  const auto product = [](double n, double k) { return 2 + 2 * n * k / (0.945 * 1008e3); };
  CHECK(of_part("Llama-3.1-8B qkv_proj") == Approx(product(6144, 4096)).epsilon(0.02));
  CHECK(of_part("o_proj (Llama-3.1-8B)") == Approx(product(4096, 4096)).epsilon(0.02));
  CHECK(of_part("Llama-3.1-8B/gate_up_proj") == Approx(product(28672, 4096)).epsilon(0.02));
  CHECK(of_part("meta-llama/Llama-3.1-8B layer down_proj") == Approx(product(4096, 14336)).epsilon(0.02));
  CHECK(of_part("Llama-3.1-8B lm_head", "layer", "kernel_time") == Approx(product(128256, 4096)).epsilon(0.02));
  CHECK(of_part("Llama-3.1-8B qkv_proj tokens=4096") > 20 * of_part("Llama-3.1-8B qkv_proj"));
  CHECK(of_part("Llama-3.1-8B layernorm") < 5);
  CHECK(of_part("Llama-3.1-8B attention") > 4096.0 * 8 * 256 * 2 / 1008e3);  // its rows at the memory's peak
  const double whole = of_part("Llama-3.1-8B layer");
  CHECK(whole > of_part("Llama-3.1-8B qkv_proj") + of_part("Llama-3.1-8B gate_up_proj"));
  CHECK(of_part("Llama-3.1-8B") == whole);
}

TEST_CASE("a whole answer over stages is its prompts and the steps that a decode step over stages takes") {
  const auto of = [](const char* lengths, const std::string& metric) {
    return predicted(fmt::format(
        "m,end_to_end,Llama-3-70B,bf16,bf16,H100-SXM-80GB,4,PP4,vLLM,,static,256,{},{},,ms,s\n", lengths, metric));
  };
  const double decoding = of("16,1024", "total_latency") - of("16,1", "total_latency");
  CHECK(decoding / 1023 == Approx(of("16,1024", "tpot_mean")).epsilon(0.01));
}

TEST_CASE("kernels by themselves are in the group of their kind, which every table has a title for") {
  const auto row = [](const std::string& part) {
    return scored("m,kernel," + part + ",bf16,bf16,RTX 4090,1,,vLLM,0.19,profile,1,4096,,kernel_time,3,us,s\n");
  };
  CHECK(row("Llama-3.1-8B rmsnorm").group == "element-wise kernel, RTX 4090");
  CHECK(row("Llama-3.1-8B qkv_proj").group == "matrix product, RTX 4090");
  CHECK(row("Llama-3.1-8B attention").group == "decode attention, RTX 4090");
  CHECK(row("Llama-3.1-8B sampler").group == "kernel, RTX 4090");  // refused, whatever it is
  const std::vector<ScoredRow> rows = {row("Llama-3.1-8B rmsnorm")};
  CHECK(scoreboard_by_board(rows).find("element-wise kernel, RTX 4090") != std::string::npos);
  CHECK(scoreboard_summary(rows).find("element-wise kernels") != std::string::npos);
}

TEST_CASE("a part that is not known is no whole layer") {
  for (const char* part : {"Llama-3.1-8B sampler", "embedding (Llama-3.1-8B)", "Llama-3.1-8B moe"}) {
    const ScoredRow row =
        scored(std::string("m,kernel,") + part + ",bf16,bf16,RTX 4090,1,,vLLM,,profile,1,4096,,layer_time,,us,s\n");
    CHECK(row.refused.starts_with(std::string("no such model in the catalog: ") + part));
  }
}

TEST_CASE("a row of an unknown device, model or engine is refused with the nearest name") {
  const auto refused = [](const char* model, const char* device, const char* engine) {
    return scored(fmt::format("m,end_to_end,{},fp16,fp16,{},1,,{},,static,1,9,9,total_latency,,ms,s\n", model, device,
                              engine)).refused;
  };
  CHECK(refused("Llama-2-7B", "RTX 4990", "vLLM") == "no such device in the catalog: RTX 4990; did you mean rtx-4090?");
  CHECK(refused("Lama-2-7", "RTX 4090", "vLLM") == "no such model in the catalog: Lama-2-7; did you mean llama-2-7b?");
  CHECK(refused("Llama-2-7B", "RTX 4090", "vLMM") == "no profile of the engine: vLMM; did you mean vLLM?");
  CHECK(refused("Llama-2-7B", "RTX 4090", "mine") == "no profile of the engine: mine");
}

TEST_CASE("before heads of a group were joined, TensorRT-LLM read their rows for each: 1 to 8 times, the middle") {
  const auto rate = [](const std::string& version, const std::string& model) {
    return scored("m,end_to_end," + model + ",fp8,fp8,H200-SXM-141GB,1,TP1,TensorRT-LLM," + version +
                  ",static,256,128,2048,output_tokens_per_s_end_to_end,,tok/s,s\n");
  };
  // The blog of that kernel: Llama-70B on one H200, 128 + 2,048 tokens: 2,941 tokens/s with it and 1,227 without.
  const double with = rate("0.8", "Llama-2-70B").predicted->value;
  const double before = rate("0.7.1", "Llama-2-70B").predicted->value;
  CHECK(with / before > 1.5);
  CHECK(with / before < 2.9);
  CHECK(rate("0.17", "Llama-2-70B").predicted->value == with);
  CHECK(rate("", "Llama-2-70B").predicted->value == with);
  CHECK(rate("0.7.1", "Llama-2-7B").predicted->value == rate("0.8", "Llama-2-7B").predicted->value);  // no groups
  const Estimate e = *rate("0.7.1", "Llama-2-70B").predicted, f = *rate("0.8", "Llama-2-70B").predicted;
  CHECK(e.high80 / e.value > f.high80 / f.value);
}

TEST_CASE("from the version with a host in Python on, more sequences than it serves meanwhile wait for it") {
  const auto rate = [](const std::string& version) {
    return scored("m,end_to_end,Qwen3-30B-A3B,nvfp4,fp8,B200,1,TP1,TensorRT-LLM," + version +
                  ",continuous_max_load,,128,128,output_tokens_per_s_total,,tok/s,s\n").predicted->value;
  };
  // 2,048 sequences are 59.4 ms of its host, as much as it serves at most; a step and its share of prompts take less.
  CHECK(rate("1.0") < 2048 / (2048 * 29e-6));
  CHECK(rate("1.0") > 0.75 * 2048 / (2048 * 29e-6));
  CHECK(rate("0.17") > 1.8 * rate("1.0"));
}

TEST_CASE("an unstated cache is of 8 bits where the engine finds that in files of such weights") {
  const auto step = [](const char* version, const char* weights, const char* kv) {
    return predicted(std::string("m,end_to_end,Llama-3.1-70B,") + weights + "," + kv + ",B200,1,TP1,vLLM," + version +
                     ",static,8,8192,2000,itl_median,,ms,s\n");
  };
  CHECK(step("", "nvfp4", "") == step("", "nvfp4", "fp8"));
  CHECK(step("0.12.0", "nvfp4", "") == step("0.12.0", "nvfp4", "bf16"));
  CHECK(step("", "fp8", "") == step("", "fp8", "bf16"));
  CHECK(step("", "nvfp4", "bf16") > 1.05 * step("", "nvfp4", "fp8"));
}

TEST_CASE("a load that cannot be served is said so: waits without an end have no mean") {
  const auto row = [](const char* rate, const char* metric) {
    return std::string("m,end_to_end,Llama-3.1-70B,fp8,,H100-SXM-80GB,1,TP1,vLLM,,continuous_open_loop,") + rate +
           ",1000,500," + metric + ",,ms,s\n";
  };
  CHECK(scored(row("100 req/s", "e2e_mean")).refused.starts_with("more requests arrive than are served"));
  CHECK(scored(row("100 req/s", "ttft_mean")).refused.starts_with("more requests arrive than are served"));
  CHECK(predicted(row("0.05 req/s", "e2e_mean")) > 0);
  // A token waits for no one who has no place yet.
  CHECK(predicted(row("100 req/s", "itl_mean")) == predicted(row("1000 req/s", "itl_mean")));
}

}  // namespace kvroof
