// The sentences and tables that a person reads first: that they say what the numbers say, and fit a page.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

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

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("a plan whose goals hold steps alone says which of them clients under load would miss") {
  const std::string words =
      "plan --model llama-3-8b --engine vllm --device h100-sxm --prompt 4k --output 1k --ttft-ms 100000 --tpot-ms ";
  const json missed = json_of(words + "15");
  REQUIRE(missed["tpot_ms"]["value"] <= 15);
  REQUIRE(missed["load"]["tpot_ms"]["value"] > 15);
  REQUIRE(missed["load"]["ttft_ms"]["value"] < 100000);
  CHECK(says(missed["answer"], "which misses 15 ms a token (--under-load plans for that)"));
  CHECK(says(missed["answer"], "--tpot-ms 15 allows no more"));
  const json held = json_of(words + "500");
  REQUIRE(held["load"]["tpot_ms"]["value"] < 500);
  CHECK_FALSE(says(held["answer"], "misses"));
  CHECK_FALSE(says(json_of(words + "15 --under-load")["answer"], "misses"));
}

TEST_CASE("compare of policies on one device says how many times the first is the second, as the points say") {
  const json all =
      json_of("compare --model llama-3-8b --device h100-sxm --policy full,window --budget 0.5 --prompt 4k");
  REQUIRE(all["points"].size() == 2);
  const double first = all["points"][0]["tokens_per_s"], second = all["points"][1]["tokens_per_s"];
  const std::string answer = all["answer"];
  const std::size_t at = answer.find("tokens_per_s, ");
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(answer.substr(at + 14)) == Approx(first / second).epsilon(0.005));
  CHECK(says(answer, " times full there."));
  CHECK_FALSE(says(answer, "overlap"));
}

TEST_CASE("compare says how much longer prompts take than the steps that it ranks by, where they take longer") {
  const std::string words =
      "compare --model llama-3-8b --engine vllm --device h100-sxm --batch 8 --prompt 16k --output ";
  const json brief = json_of(words + "16"), extended = json_of(words + "4k");
  const std::size_t at = brief["answer"].get<std::string>().find("the prompts take ");
  REQUIRE(at != std::string::npos);
  // Eight prompts one after the other, beside sixteen steps.
  const json& point = brief["points"][0];
  const double prompts = 8 * point["ttft_ms"]["value"].get<double>();
  const double steps = 16 * point["tpot_ms_interval"]["value"].get<double>();
  CHECK(std::stod(brief["answer"].get<std::string>().substr(at + 17)) == Approx(prompts / steps).epsilon(0.1));
  CHECK_FALSE(says(extended["answer"], "the prompts take"));
  CHECK_FALSE(says(json_of(words + "16 --under-load")["answer"], "the prompts take"));
}

TEST_CASE("compare by price of devices without one ranks them by speed, says so, and has what holds nothing last") {
  const json prices = json_of("compare --model llama-3.1-70b --device rtx-4090,b300,b100 --by tokens_per_usd");
  CHECK(says(prices["answer"], "is first by tokens_per_s; of those that serve any, none has a listed price."));
  const json& points = prices["points"];
  REQUIRE(points.size() == 3);
  CHECK(points[2]["device"] == "rtx-4090");  // it has a price, but no room for the weights
  CHECK(points[2]["batch"] == 0);
  CHECK(points[0]["tokens_per_s"] >= points[1]["tokens_per_s"]);
  CHECK(points[1]["tokens_per_s"] > 0);
}

TEST_CASE("the answer of compare says how many devices and which weights the first has where several were asked for") {
  const json tp = json_of("compare --model llama-3.1-70b --device h100-sxm,l4 --tp 4,8 --dtype bf16,fp8");
  const json& first = tp["points"][0];
  CHECK(first["device"] == "h100-sxm");
  const std::string named = std::to_string(first["tensor_parallel"].get<int>()) + " × NVIDIA H100 SXM 80 GB, " +
                            first["weight_type"].get<std::string>() +
                            ", under full is first by tokens_per_s_a_device, ";
  CHECK(says(tp["answer"], named));
  CHECK(says(tp["answer"], " × NVIDIA L4 24 GB, "));
}

TEST_CASE("compare --device all ranks every GPU of the catalog, and no CPU") {
  const json devices = json_of("devices");
  std::set<std::string> ranked;
  const json all = json_of("compare --model llama-3-8b --device all");
  for (const json& c : all["points"]) ranked.insert(c["device"]);
  CHECK(ranked.size() > 50);
  for (const json& device : devices) {
    const std::string name = device["device"];
    INFO(name);
    const json facts = json_of("devices show " + name);
    const bool gpu = std::any_of(facts.begin(), facts.end(), [](const json& f) { return f["fact"] == "sm_count"; });
    if (gpu) CHECK(ranked.count(name) == 1);
  }
  CHECK(ranked.size() <= devices.size());
}

TEST_CASE("of rows that make as many tokens/s compare has the sooner first token above") {
  // Activations of one token stay in either cache, those of a prompt in neither, where an engine's kernels are fast
  // enough for that to show.
  const std::string words =
      "compare --model llama-3-8b --engine vllm --device h100-sxm,h100-sxm:l2_mib=2x --batch 1 --format json";
  const json points = json::parse(run_program(words).out)["points"];
  REQUIRE(points.size() == 2);
  CHECK(points[0]["tokens_per_s"] == points[1]["tokens_per_s"]);
  CHECK(points[0]["ttft_ms"]["value"] < points[1]["ttft_ms"]["value"]);
}

TEST_CASE("of answers of one token it is said what their times and rates are of") {
  for (const char* verb : {"plan ", "compare "}) {
    const std::string words = verb + std::string("--model llama-3-8b --device h100-sxm --output ");
    CHECK(run_program(words + "1").out.find("an answer of one token is made by its prompt") != std::string::npos);
    CHECK(run_program(words + "2").out.find("an answer of one token") == std::string::npos);
  }
}

TEST_CASE("a device in the place of the model is told from a model that is not known") {
  const Ran ran = run_program("plan --model h100-sxm --device llama-3-8b");
  CHECK(ran.code == 2);
  CHECK(says(ran.err, "error: --model h100-sxm: that is a device"));
}

TEST_CASE("each policy of an analysis has a map of its own") {
  const TemporaryFolder folder;
  const std::string tensors =
      std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
  REQUIRE(run_program("import qkv " + tensors + " --prompt 64 -o " + folder.file("x.kvt")).code == 0);
  REQUIRE(run_program("analyze " + folder.file("x.kvt") + " policy,mass --policy window,h2o --budget 0.5 -o " +
                      folder.file("out")).code == 0);
  CHECK(says(slurp(folder.file("out/policy-map.svg")), "window:budget=0.5: recall"));
  CHECK(says(slurp(folder.file("out/policy-map-2.svg")), "h2o:budget=0.5: recall"));
  CHECK(slurp(folder.file("out/policy-map-3.svg")).empty());
  CHECK(slurp(folder.file("out/mass-map-2.svg")).empty());
}

TEST_CASE("compare says what widens intervals of some rows alone, also where the first of like rows lacks it") {
  const std::string words = "compare --model llama-3-8b --device rtx-4090,rtx-pro-6000 --by tokens_per_s_a_sequence";
  const json all = json_of(words);
  // The larger board holds more sequences than were measured on any of its memory; all else is the first one's too.
  const std::string first = all["points"][0]["interval_from"], second = all["points"][1]["interval_from"];
  REQUIRE(second.starts_with(first + "; "));
  const std::string reason = second.substr(first.size() + 2);
  std::string notes;
  for (const json& note : all["notes"]) notes += note.get<std::string>() + "\n";
  INFO(notes);
  CHECK(says(notes, "1 of 2 more, most of all rtx-pro-6000 full: " + reason));
  CHECK(says(notes, first.substr(0, first.find(';')) + ": × "));
  CHECK(notes.find(reason) == notes.rfind(reason));
}

TEST_CASE("the picture of compare leaves out what does not fit, and its table has it") {
  const TemporaryFolder folder;
  const std::string svg = folder.file("front.svg");
  const Ran ran = run_program("compare --model llama-3-8b --device h200,rtx-3060 --svg " + svg);
  REQUIRE(ran.code == 0);
  CHECK(says(ran.out, "rtx-3060"));
  CHECK(says(slurp(svg), "h200"));
  CHECK_FALSE(says(slurp(svg), "rtx-3060"));
}

TEST_CASE("of many devices the picture of compare colours the front and the first, and has the others behind them") {
  const TemporaryFolder folder;
  const std::string svg = folder.file("all.svg");
  const json all = json_of("compare --model llama-3-8b --device all --by tokens_per_usd --svg " + svg);
  const std::string picture = slurp(svg);
  std::size_t serving = 0, faint = 0;
  for (const json& point : all["points"]) {
    if (point["batch"] == 0) continue;
    ++serving;
    const bool stands_out = point["pareto"] == true || &point == &all["points"][0];
    faint += stands_out ? 0 : 1;
    const std::string name = point["device"].get<std::string>() + " full";
    INFO(name);
    CHECK(says(picture, "<title>" + name + "</title>") == !stands_out);
  }
  REQUIRE(serving > 30);
  CHECK(faint > 20);
}

TEST_CASE("predictions of a file's rows fit a page, say whether the value is inside, and why a row has none") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("rows.csv"))
      << "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,batch_mode,batch,input_len,"
         "output_len,metric,value,unit,source\n"
         "near,end_to_end,Llama-3-8B,bf16,,NVIDIA L40S,1,vLLM,single_stream,1,512,256,decode_tokens_per_s,47,tok/s,me\n"
         "far,end_to_end,Llama-3-8B,bf16,,NVIDIA L40S,1,vLLM,single_stream,1,512,256,decode_tokens_per_s,1,tok/s,me\n"
         "none,end_to_end,Llama-9-8B,bf16,,NVIDIA L40S,1,vLLM,single_stream,1,512,256,decode_tokens_per_s,1,tok/s,me\n";
  const Ran ran = run_program("validate --rows " + folder.file("rows.csv"));
  REQUIRE(ran.code == 0);
  std::istringstream lines(ran.out);
  std::map<std::string, std::string> row_of;
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }) <= 120);
    row_of.emplace(line.substr(0, line.find(' ')), line);
  }
  CHECK(says(row_of["near"], " 80 %  "));
  CHECK(says(row_of["far"], " neither "));
  CHECK(says(row_of["none"], "no such model in the catalog"));
  CHECK(says(ran.out, "intervals of 2 rows from Ada (gddr), vllm, step"));
  // Programs get every column, whatever fits a page.
  const Ran csv = run_program("validate --format csv --rows " + folder.file("rows.csv"));
  CHECK(csv.out.starts_with("row_id,measured,predicted,low80,high80,low95,high95,unit,error,group,dominated_by,"
                            "interval_from,unsupported\n"));
  const auto rows = nlohmann::json::parse(
      run_program("validate --format json --rows " + folder.file("rows.csv")).out)["rows"];
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["measured"] == 47);
  CHECK(rows[0]["error"].get<double>() == Approx(rows[0]["predicted"].get<double>() / 47 - 1));
  CHECK(rows[2]["measured"] == 1);
  CHECK(rows[2]["error"].is_null());
}

TEST_CASE("the overview lists each command once, under what it is for") {
  const Ran ran = run_program("help");
  REQUIRE(ran.code == 0);
  std::istringstream lines(ran.out);
  std::map<std::string, int> times;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ") && !line.starts_with("  kvroof")) times[line.substr(2, line.find(' ', 2) - 2)] += 1;
  }
  for (const char* verb : {"plan", "compare", "validate", "record", "replay", "analyze", "eval", "run", "inspect",
                           "import", "export", "report-kernels", "models", "devices", "policies", "tokenize"}) {
    INFO(verb);
    CHECK(times[verb] == 1);
  }
}

TEST_CASE("an empty variable of the environment is none, one with a value is the option") {
  const std::string program = KVROOF_PROGRAM;
  const std::string words = "plan --model llama-3-8b --print-config";
  CHECK(says(run_program(words, "KVROOF_DEVICE=h200 " + program).out, "device: h200"));
  const Ran empty = run_program(words, "KVROOF_DEVICE= " + program);
  CHECK(empty.code == 0);
  CHECK_FALSE(says(empty.out, "device"));
}

TEST_CASE("a file of numpy's own in place of a safetensors file is refused with what makes one") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("q.npz"), std::ios::binary) << "PK\x03\x04-an archive of arrays";
  const Ran ran = run_program("import qkv " + folder.file("q.npz") + " --prompt 5 -o " + folder.file("x.kvt"));
  CHECK(ran.code == 1);
  CHECK(says(ran.err, "expected a safetensors file"));
  CHECK(says(ran.err, "safetensors.numpy.save_file"));
}
