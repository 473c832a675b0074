// `kvroof plan` and `kvroof compare` as a user meets them.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

constexpr const char* kWork = " --model llama-3-8b --prompt 4k --output 256 ";

json plan(const std::string& words, int code = 0) { return json_of("plan" + words, code); }

std::uint64_t sum_of(const json& ledger) {
  std::uint64_t sum = 0;
  for (const json& line : ledger) sum += line["bytes"].get<std::uint64_t>();
  return sum;
}

}  // namespace

TEST_CASE("the largest batch of a plan fits into memory, and one sequence more does not") {
  for (const std::string words : {"--device h100-sxm", "--device h100-sxm --policy h2o:budget=0.5",
                                  "--device l40s --policy keyformer:budget=512 --engine eager"}) {
    const json best = plan(kWork + words);
    const auto largest = best["largest_batch"].get<std::uint64_t>();
    REQUIRE(largest > 1);
    CHECK(best["batch"] == largest);
    CHECK(best["limited_by"] == "capacity");
    CHECK(sum_of(best["ledger"]) <= best["capacity_bytes"].get<std::uint64_t>());
    const json more = plan(kWork + words + " --batch " + std::to_string(largest + 1), 3);
    CHECK(more["fits"] == false);
    CHECK(sum_of(more["ledger"]) > more["capacity_bytes"].get<std::uint64_t>());
  }
}

TEST_CASE("the cache of a plan is the budget's: rows of the prompt's half and one more, of every sequence and layer") {
  const json p = plan(std::string(kWork) + "--device h100-sxm --policy window:budget=0.5 --batch 3");
  // 2,049 rows of 8 KV heads of 32 layers, k and v of 128 bf16 elements.
  CHECK(p["ledger"][1]["name"] == "kv_allocated");
  CHECK(p["ledger"][1]["bytes"] == 3ULL * 2049 * 8 * 32 * 2 * 128 * 2);
  CHECK(p["ledger"][0]["bytes"] == 2ULL * 8030261248);
}

TEST_CASE("a plan on a recorded run says what its replay says") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const std::string document = std::string(KVROOF_SOURCE_DIR) + "/models/demo/prompts/sqlite-rbu.txt";
  REQUIRE(run_program("record --model demo --quiet -n 24 --prompt-file " + document + " -o " + trace).code == 0);
  const std::string lengths = " --prompt 1k --output 512 ";
  const json p = plan(lengths + "--model mpt-7b --device a100-80g --policy scissorhands:budget=0.5 --trace " + trace);
  const Ran replay = run_program("replay " + trace + lengths + "--as mpt-7b --device a100-80g --policy scissorhands" +
                                 " --budget 0.5 --batch max --format json");
  REQUIRE(replay.code == 0);
  const json point = json::parse(replay.out)["points"][0];
  CHECK(p["largest_batch"] == point["largest_batch"]);
  CHECK(p["tpot_ms"]["value"] == point["step_ms"]);
  CHECK(p["tokens_per_s"] == point["tokens_per_s_interval"]);
  CHECK(p["tpot_worst_step_ms"]["value"] >= p["tpot_p99_step_ms"]["value"]);
  CHECK(p["tpot_worst_step_ms"]["value"] >= p["tpot_ms"]["value"]);
}

TEST_CASE("a plan takes the mean of a recording of several sequences") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const std::string prompts = "--prompt one --prompt 'another, longer one'";
  REQUIRE(run_program("record --model demo --quiet -n 8 --ignore-eos " + prompts + " -o " + trace).code == 0);
  const std::string lengths = " --prompt 64 --output 16 --model mpt-7b --device a100-80g";
  const json p = plan(lengths + " --policy window:budget=0.5 --trace " + trace);
  // 32 rows and the one that comes, of 32 heads in 32 layers, k and v of 128 bf16 elements, of every sequence.
  CHECK(p["ledger"][1]["bytes"] == p["batch"].get<std::uint64_t>() * 33 * 32 * 32 * 2 * 128 * 2);
}

TEST_CASE("a goal gives the largest batch that meets it, and exit code 3 where none does") {
  const std::string words = std::string(kWork) + "--device h200 --policy h2o:budget=0.5";
  const json p = plan(words + " --tpot-ms 15");
  CHECK(p["limited_by"] == "tpot");
  CHECK(p["tpot_ms"]["value"].get<double>() <= 15);
  const auto next = std::to_string(p["largest_batch"].get<std::uint64_t>() + 1);
  CHECK(plan(words + " --batch " + next)["tpot_ms"]["value"].get<double>() > 15);
  CHECK(plan(words + " --tpot-ms 1", 3)["largest_batch"] == 0);
  CHECK(plan(words + " --ttft-ms 1", 3)["limited_by"] == "ttft");
}

TEST_CASE("a device with less memory and slower attention is never better") {
  const TemporaryFolder folder;
  std::string yaml = slurp(std::string(KVROOF_SOURCE_DIR) + "/catalog/devices/l40s.yaml");
  const auto replace = [&](const std::string& from, const std::string& to) {
    REQUIRE(yaml.find(from) != std::string::npos);
    yaml.replace(yaml.find(from), from.size(), to);
  };
  replace("usable_mib: {value: 4", "usable_mib: {value: 3");
  replace("attention_fraction: {value: 0.8", "attention_fraction: {value: 0.7");
  replace("name: l40s", "name: l40s-less");
  const std::string less = folder.file("less.yaml");
  std::ofstream(less) << yaml;
  for (const std::string policy : {"full", "h2o:budget=0.2"}) {
    const std::string words = std::string(kWork) + "--policy " + policy + " --device ";
    const json small = plan(words + less);
    const json large = plan(words + "l40s");
    CHECK(large["largest_batch"] > small["largest_batch"]);
    CHECK(large["tokens_per_s"]["value"] > small["tokens_per_s"]["value"]);
    const std::string two = " --batch 2" + words;
    CHECK(plan(two + "l40s")["tpot_ms"]["value"] < plan(two + less)["tpot_ms"]["value"]);
  }
}

TEST_CASE("every number of a plan has its two intervals, what makes them wide, and the rows that they are from") {
  const json p = plan(std::string(kWork) + "--device h100-sxm --policy h2o:budget=0.5 --tpot-ms 20");
  for (const char* key : {"tpot_ms", "tpot_p99_step_ms", "tpot_worst_step_ms", "ttft_ms", "tokens_per_s",
                          "largest_batch_interval"}) {
    INFO(key << " " << p[key]);
    CHECK(p[key]["low95"] <= p[key]["low80"]);
    CHECK(p[key]["low80"] < p[key]["value"]);
    CHECK(p[key]["value"] < p[key]["high80"]);
    CHECK(p[key]["high80"] <= p[key]["high95"]);
    CHECK(p[key]["dominated_by"].is_string());
  }
  CHECK(p["largest_batch_interval"]["value"] == p["largest_batch"]);
  CHECK(p["intervals_from"]["tpot_ms"].get<std::string>().find("hbm, step: ") == 0);
  const Ran table = run_program("plan" + std::string(kWork) + "--device h100-sxm");
  CHECK(table.out.find("95 %") != std::string::npos);
}

TEST_CASE("that an engine of others evicts is an assumption, and a plan says so where a policy does") {
  const auto notes = [](const std::string& words) {
    return plan(std::string(kWork) + "--device h100-sxm --batch 1 " + words)["notes"].dump();
  };
  CHECK(notes("--engine vllm --policy h2o:budget=0.5").find("that it can evict is assumed") != std::string::npos);
  for (const char* words : {"--engine vllm", "--policy h2o:budget=0.5", "--engine kvroof --policy h2o:budget=0.5"}) {
    CHECK(notes(words).find("is assumed") == std::string::npos);
  }
}

TEST_CASE("a plan says which version of its engine it is of") {
  const std::string words = std::string(kWork) + "--device h100-sxm --batch 1 ";
  CHECK(plan(words)["engine"] == "kvroof");
  CHECK(plan(words + "--engine vllm")["engine"] == "vllm");
  CHECK(plan(words + "--engine vllm@0.2.5")["engine"] == "vllm@0.2.5");
}

TEST_CASE("a plan has the interval that validate gives the same step under the same engine on the same device") {
  const TemporaryFolder folder;
  const std::string rows = folder.file("rows.csv");
  std::ofstream(rows) << "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,batch_mode,batch,"
                         "input_len,output_len,metric,value,unit,source\n"
                         "r,end_to_end,Llama-3-8B,bf16,bf16,H100-SXM-80GB,1,TensorRT-LLM,single_stream,1,4096,256,"
                         "decode_tokens_per_s,,tok/s,s\n";
  const json row = json::parse(run_program("validate --format json --rows " + rows).out)["rows"][0];
  const json p = plan(std::string(kWork) + "--device h100-sxm --engine tensorrt-llm --batch 1");
  const json& rate = p["tokens_per_s"];
  CHECK(row["predicted"].get<double>() == Approx(rate["value"].get<double>()).epsilon(1e-3));
  for (const char* end : {"low80", "high80", "low95", "high95"}) {
    INFO(end);
    CHECK(row[end].get<double>() / row["predicted"].get<double>() ==
          Approx(rate[end].get<double>() / rate["value"].get<double>()).epsilon(1e-3));
  }
  CHECK(row["dominated_by"] == rate["dominated_by"]);
  CHECK(row["interval_from"] == p["intervals_from"]["tpot_ms"]);
}

TEST_CASE("a plan searches weights and devices for what makes most of each device within the goals") {
  const std::string words =
      " --model llama-3-70b --prompt 2k --output 256 --device h100-sxm --dtype bf16,fp8 --tp 1,4 --tpot-ms 40";
  const json p = plan(words);
  REQUIRE(p["searched"].size() == 4);
  double best = 0;
  for (const json& s : p["searched"]) {
    const bool fits = s["weight_type"] == "fp8" || s["tensor_parallel"] == 4;  // 131 GiB in bf16
    CHECK(s["meets_goals"] == fits);
    if (fits) best = std::max(best, s["tokens_per_s_a_device"]["value"].get<double>());
  }
  CHECK(p["tokens_per_s"]["value"].get<double>() / p["tensor_parallel"].get<double>() == Approx(best));
  CHECK(p["tpot_ms"]["value"].get<double>() <= 40);
  const json alone =
      plan(" --model llama-3-70b --prompt 2k --output 256 --device h100-sxm --dtype fp8 --tp 4 --tpot-ms 40");
  for (const json& s : p["searched"]) {
    if (s["weight_type"] == "fp8" && s["tensor_parallel"] == 4) CHECK(s["tpot_ms"] == alone["tpot_ms"]);
  }
}

TEST_CASE("a plan searches types of the cache: a smaller one holds more, and each says what it says alone") {
  const std::string words = std::string(kWork) + "--device h100-sxm --policy h2o:budget=0.5";
  const json p = plan(words + " --kv auto");
  REQUIRE(p["searched"].size() == 3);
  const char* types[] = {"bf16", "int8", "int4"};
  for (int i = 0; i < 3; ++i) {
    const json alone = plan(words + " --kv " + types[i]);
    CHECK(p["searched"][i]["kv_type"] == types[i]);
    CHECK(p["searched"][i]["largest_batch"] == alone["largest_batch"]);
    CHECK(p["searched"][i]["tpot_ms"] == alone["tpot_ms"]);
    if (i > 0) CHECK(p["searched"][i]["largest_batch"] > p["searched"][i - 1]["largest_batch"]);
  }
  CHECK(p["kv_type"] == "int4");
  const json merging = plan(std::string(kWork) + "--device h100-sxm --policy d2o:budget=0.5 --kv auto");
  CHECK(merging["searched"].size() == 1);  // A policy that merges rows has no quantised cache.
}

TEST_CASE("a plan takes the 8-bit float caches of serving engines: half of a 16-bit one, without scales") {
  const auto cache = [](const std::string& type) {
    const json p = plan(std::string(kWork) + "--device h100-sxm --engine vllm --batch 8 --kv " + type);
    for (const json& line : p["ledger"]) {
      if (line["name"] == "kv_allocated") return line["bytes"].get<std::uint64_t>();
    }
    return std::uint64_t{0};
  };
  CHECK(cache("bf16") > 0);
  CHECK(2 * cache("fp8") == cache("bf16"));
  CHECK(run_program("run --model demo --prompt a --kv fp8").code == 2);  // which the engine does not store
}

TEST_CASE("the longest prompt fits and meets the goals with the batch that was given, and one token more does not") {
  const std::string words = " --model llama-3.1-8b --output 256 --device l40s --policy window:budget=0.5 --batch 4 ";
  for (const std::string goals : {"", "--tpot-ms 40", "--tpot-ms 60 --ttft-ms 3000"}) {
    const json p = plan(words + goals + " --prompt max");
    const auto longest = p["longest_prompt"].get<std::uint64_t>();
    INFO(goals << ": " << longest);
    CHECK(p["prompt"] == longest);
    CHECK(p["answer"].get<std::string>().find("the longest prompt that 4 sequences fit with") != std::string::npos);
    CHECK((p["fits"] == true && p["meets_goals"] == true));
    REQUIRE(longest < 131072 - 256);  // Not all the positions that the model has.
    CHECK(plan(words + goals + " --prompt " + std::to_string(longest + 1), 3)["meets_goals"] == false);
  }
}

TEST_CASE("the longest prompt is where memory ends, also where the question is beyond the model's positions") {
  const std::string words = " --model llama-3-8b --device l40s --output 512 --batch 1 --prompt ";
  const json p = plan(words + "32k");  // 8,192 positions
  const auto longest = p["longest_prompt"].get<std::uint64_t>();
  REQUIRE(longest > 32768);
  CHECK(plan(words + std::to_string(longest))["fits"] == true);
  CHECK(plan(words + std::to_string(longest + 1), 3)["fits"] == false);
  // One sequence of the model's own length leaves room: its positions are the end, not memory.
  const Ran within = run_program("plan" + words + "4k");
  CHECK(within.out.find("with this batch prompts fit up to the model's 8192 positions") != std::string::npos);
  CHECK(within.out.find("one sequence fits (at most ") != std::string::npos);
}

TEST_CASE("times of what does not fit are said to be those of one sequence if it fitted") {
  const Ran ran = run_program("plan --model llama-3-70b --device l40s");
  CHECK(ran.code == 3);
  CHECK(ran.out.find("if one sequence fitted") != std::string::npos);
  CHECK(run_program("plan --model llama-3-8b --device l40s").out.find("fitted") == std::string::npos);
}

TEST_CASE("a batch that the engine does not take is not planned, whatever the memory") {
  const json p = plan(" --model llama-3-8b --device a100-80g --engine vllm --prompt 256 --output 64 --batch 300", 3);
  CHECK(p["fits"] == false);
  CHECK(p["limited_by"] == "engine");
}

TEST_CASE("a batch that was given and misses a goal says which, and what would serve it") {
  const json p = plan(" --model llama-3-8b --device l40s --batch 64 --tpot-ms 40", 3);
  CHECK((p["fits"] == true && p["meets_goals"] == false));
  CHECK(p["limited_by"] == "tpot");
  CHECK(p["tpot_ms"]["value"].get<double>() > 40);
  REQUIRE(p["remedies"].size() == 3);
  for (const json& r : p["remedies"]) {
    plan(" --model llama-3-8b --device l40s --batch 64 --tpot-ms 40 " + r["change"].get<std::string>());
  }
}

TEST_CASE("what does not fit gets the least change that would: more devices, or smaller weights") {
  const json p = plan(" --model llama-3-70b --prompt 2k --output 256 --device h100-sxm", 3);
  REQUIRE(p["remedies"].size() == 2);
  CHECK(p["remedies"][0]["change"] == "--tp 2");
  CHECK(p["remedies"][1]["change"] == "--dtype fp8");
  for (const json& r : p["remedies"]) {
    const json with = plan(" --model llama-3-70b --prompt 2k --output 256 --device h100-sxm " +
                           r["change"].get<std::string>());
    CHECK(with["largest_batch"] == r["largest_batch"]);
  }
}

TEST_CASE("a checkpoint that fits as it is stored is proposed so before more devices are") {
  const json p = plan(" --model deepseek-r1 --device h200 --tp 8 --prompt 1k --output 32k", 3);
  REQUIRE(p["remedies"].size() >= 2);
  CHECK(p["remedies"][0]["change"] == "--dtype fp8");
  CHECK(p["remedies"][1]["change"].get<std::string>().find("--tp 16") != std::string::npos);
}

TEST_CASE("a plan for a processor proposes smaller types, and no more processors") {
  const TemporaryFolder folder;
  const std::string file = folder.file("mine.yaml");
  std::ofstream(file) << "name: mine\nkind: cpu\nmemory_type: ddr\nfacts:\n"
                         "  usable_mib: {value: 8000, provenance: measured, source: me}\n"
                         "  bandwidth_gb_per_s: {value: 20, provenance: measured, source: me}\n"
                         "  peak_fp32_tflops: {value: 1, provenance: measured, source: me}\n"
                         "  linear_t0_us: {value: 0, provenance: measured, source: me}\n"
                         "  attention_floor_us: {value: 0, provenance: measured, source: me}\n"
                         "  elementwise_us: {value: 0, provenance: measured, source: me}\n";
  const json p = plan(" --model llama-3-8b --prompt 1k --output 64 --device " + file, 3);
  REQUIRE(p["remedies"].size() == 1);
  CHECK(p["remedies"][0]["change"] == "--dtype int4");
}

TEST_CASE("compare draws its Pareto front: no other batch of any device is faster both for one and for all") {
  const TemporaryFolder folder;
  const std::string svg = folder.file("front.svg");
  const Ran ran = run_program("compare" + std::string(kWork) +
                              "--device l40s,h200 --dtype bf16,fp8 --format json --svg " + svg);
  REQUIRE(ran.code == 0);
  const json all = json::parse(ran.out);
  REQUIRE(all["points"].size() == 4);
  REQUIRE(!all["front"].empty());
  for (const json& point : all["front"]) {
    for (const json& c : all["points"]) {
      for (const json& other : c["batches"]) {
        const bool better = other["tokens_per_s_a_sequence"] > point["tokens_per_s_a_sequence"] &&
                            other["tokens_per_s_a_device"] > point["tokens_per_s_a_device"];
        CHECK_FALSE(better);
      }
    }
  }
  const std::string picture = slurp(svg);
  CHECK(picture.find("<svg") == 0);
  CHECK(picture.find("Pareto front") != std::string::npos);
  CHECK(picture.find("h200, fp8") != std::string::npos);
}

TEST_CASE("compare ranks what plan says of each device and policy") {
  const Ran ran = run_program("compare" + std::string(kWork) +
                              "--device l40s,h200,t4 --policy full,window --budget 0.5 --format json");
  REQUIRE(ran.code == 0);
  const json points = json::parse(ran.out)["points"];
  REQUIRE(points.size() == 6);
  for (std::size_t i = 1; i < 5; ++i) CHECK(points[i - 1]["tokens_per_s"] >= points[i]["tokens_per_s"]);
  CHECK(points[0]["device"] == "h200");
  const json p = plan(std::string(kWork) + "--device h200 --policy window:budget=0.5");
  CHECK(points[0]["largest_batch"] == p["largest_batch"]);
  CHECK(points[0]["tokens_per_s"].get<double>() == Approx(p["tokens_per_s"]["value"].get<double>()));
  // 16 GB hold neither the weights.
  CHECK(points[5]["device"] == "t4");
  CHECK(points[5]["tokens_per_s"].is_null());
  const Ran by = run_program("compare" + std::string(kWork) + "--device l40s,h200 --by tokens_per_usd");
  CHECK(by.code == 0);
  CHECK(by.out.find("tokens/s a sequence, from the largest batch") != std::string::npos);
}

TEST_CASE("compare holds every device to the goals: batches are those of plan, and what misses a goal is last") {
  const std::string goal = " --tpot-ms 12 --ttft-ms 300 ";
  const Ran ran = run_program("compare" + std::string(kWork) + "--device l40s,h200,t4,h100-sxm --format json" + goal);
  REQUIRE(ran.code == 0);
  const json points = json::parse(ran.out)["points"];
  REQUIRE(points.size() == 4);
  for (const json& c : points) {
    const bool served = c["device"] == "h200" || c["device"] == "h100-sxm";
    const json p = plan(std::string(kWork) + goal + "--device " + c["device"].get<std::string>(), served ? 0 : 3);
    INFO(c);
    CHECK(c["largest_batch"] == p["largest_batch"]);
    CHECK(c["limited_by"] == p["limited_by"]);
    CHECK(c["ttft_ms"] == p["ttft_ms"]);
    CHECK((c["largest_batch"].get<int>() > 0) == served);
    if (!served) continue;
    CHECK(c["tpot_ms"].get<double>() <= 12);
    CHECK(c["largest_batch_interval"] == p["largest_batch_interval"]);
  }
  CHECK(points[2]["largest_batch"] == 0);
  CHECK(run_program("compare" + std::string(kWork) + "--device l40s,h200 --tpot-ms 1").code == 3);
}

TEST_CASE("questions that plan and compare cannot answer get one sentence") {
  const auto refused = [](const std::string& words, const std::string& sentence) {
    const Ran ran = run_program(words);
    INFO(words << "\n" << ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.find(sentence) != std::string::npos);
  };
  refused("plan --device h200", "--model is missing");
  refused("plan --model llama-3-8b", "--device is missing");
  refused("plan --model llama-3-8 --device h200", "did you mean llama-3-8b?");
  refused("plan --model llama-3-8b --device h2000", "did you mean h200?");
  refused("plan --model llama-3-8b --device h200 --engine egar", "known engines: autoawq, cpu, ");
  refused("plan --model llama-3-8b --device h200 --policy full,h2o --budget 0.5", "one budget; 2 were given");
  refused("plan --model llama-3-8b --device h200 --policy h2o,window", "one budget; 2 were given");
  refused("plan --model opt-6.7b --device h200 --prompt max --output 4k", "opt-6.7b has 2048 positions and --output");
  refused("plan --model llama-3-8b --device h200 --kv int8,int5", "--kv int5");
  refused("plan --model llama-3-8b --device h200 --kv fp9", "kivi4, fp8");
  refused("plan --model llama-3-8b --device h200 --policy scissorhands-4bit:budget=0.5 --kv auto,int8", "--kv auto");
  refused("plan --model llama-3-8b --device h200 --tpot-ms 0", "--tpot-ms 0: expected a number from");
  refused("plan --model llama-3-8b --device h200,l40s", "plan answers for one device");
  refused("plan --model llama-3-8b --device 4xh100-sxm", "how many of one there are is said by --tp");
  refused("compare --model llama-3-8b --device h200 --svg front.png", "a name that ends with .svg");
  refused("compare --model llama-3-8b --device h200 --batch 1e9", "--batch 1e9: expected a count from");
  refused("compare --model llama-3-8b --device h200 --tpot-ms 0", "--tpot-ms 0: expected a number from");
  refused("compare --model llama-3-8b --device h200 --by tokens", "--by tokens: unknown");
  refused("plan --model llama-3-8b --device h200 --dtype fp9", "--dtype fp9: no such type of weights; did you mean fp");
  refused("plan --model gpt2 --device h200 --prompt 4000", "gpt2 has 1024 learned positions");
  refused("plan --model llama-3-8b --device h200 --engine cpu", "--engine cpu: it runs on a CPU, and h200 is a GPU");
  refused("plan --model llama-3-8b --device h200 --tp 5", "--tp 5: 32 query heads cannot be spread over 5 devices");
}
