// Pipeline stages, groups of experts and prices in plan and compare.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using nlohmann::json;

namespace {

json answer_of(const std::string& words) { return json_of(words); }

void refused(const std::string& words, const std::string& why) {
  const Ran ran = run_program(words);
  INFO(ran.err);
  CHECK(ran.code == 2);
  CHECK(ran.err.find(why) != std::string::npos);
}

const std::string kWork =
    " --model llama-3.1-70b --dtype fp8 --engine vllm --device h100-sxm --prompt 2k --output 256 ";

}  // namespace

TEST_CASE("a plan searches stages beside devices that share layers, and says of each layout what it says alone") {
  const json p = answer_of("plan" + kWork + "--tp 2,4 --pp 1,2");
  REQUIRE(p["searched"].size() == 4);
  for (const json& s : p["searched"]) {
    const int tensor = s["tensor_parallel"], stages = s["pipeline_stages"];
    INFO(tensor << " " << stages);
    const json alone =
        answer_of("plan" + kWork + "--tp " + std::to_string(tensor) + " --pp " + std::to_string(stages));
    CHECK(s["tokens_per_s"] == alone["tokens_per_s"]);
    CHECK(s["tokens_per_s_a_device"]["value"].get<double>() ==
          Approx(alone["tokens_per_s"]["value"].get<double>() / (tensor * stages)));
    // Half of the layers leave more than twice the room for the cache.
    const json& one = p["searched"][tensor == 2 ? 0 : 2];
    if (stages == 2) CHECK(s["largest_batch"].get<int>() > 2 * one["largest_batch"].get<int>());
  }
  const Ran table = run_program("plan" + kWork + "--tp 2,4 --pp 1,2");
  CHECK(table.out.find("--tp 4 --pp 2") != std::string::npos);
}

TEST_CASE("compare names stages and groups of experts, and counts their devices") {
  const json r = answer_of("compare --model deepseek-v3 --engine sglang --device h200 --tp 8 --pp 1,2 --ep 1,all");
  REQUIRE(r["points"].size() == 4);
  for (const json& point : r["points"]) {
    const double devices = point["tensor_parallel"].get<double>() * point["pipeline_stages"].get<double>();
    CHECK(point["tokens_per_s_a_device"].get<double>() * devices ==
          Approx(point["tokens_per_s"].get<double>()));
    CHECK((point["expert_parallel"] == 1 || point["expert_parallel"] == 8));
  }
  const Ran table = run_program("compare --model deepseek-v3 --engine sglang --device h200 --tp 8 --pp 2 --ep all");
  CHECK(table.out.find("16 × ") != std::string::npos);
  CHECK(table.out.find("(--tp 8 --pp 2 --ep 8)") != std::string::npos);
}

TEST_CASE("plan lets groups of devices attend to sequences of their own, and says whose kernels they run") {
  const json p = answer_of("plan --model deepseek-v3 --engine sglang --device h200 --dtype fp8 --prompt 2k --output 1k "
                           "--tp 1,8 --dp 1,8 --ep all --tpot-ms 100");
  REQUIRE(p["searched"].size() == 4);
  std::map<std::pair<int, int>, json> by_layout;
  for (const json& s : p["searched"]) by_layout[{s["tensor_parallel"], s["data_parallel"]}] = s;
  const json& shared = by_layout[{8, 1}];
  const json& apart = by_layout[{1, 8}];
  CHECK(apart["expert_parallel"] == 8);
  // Eight devices hold one latent row of a token once each or eight times; weights of attention take some of the room.
  CHECK(apart["largest_batch"].get<int>() > 4 * shared["largest_batch"].get<int>());
  CHECK(p["data_parallel"] == 8);
  const Ran table = run_program("plan --model deepseek-v3 --engine sglang --device h200 --dtype fp8 --prompt 2k "
                                "--output 1k --dp 8 --ep all");
  CHECK(table.out.find("8 × NVIDIA H200 SXM 141 GB (--tp 1 --dp 8 --ep 8)") != std::string::npos);
  CHECK(table.out.find("as DeepEP's kernels do") != std::string::npos);
}

TEST_CASE("layouts that a model or a simulation has no room for are refused in a sentence") {
  refused("plan" + kWork + "--pp 81", "--tp 1 --pp 81: 80 layers cannot be spread over 81 stages");
  refused("plan" + kWork + "--tp 2 --ep all", "--tp 2 --ep 2: llama-3.1-70b has no experts");
  refused("plan" + kWork + "--ep most", "--ep most: expected a count from 1 to 1024, or all");
  refused("plan" + kWork + "--pp 0", "--pp 0: expected a count from 1 to 1024");
  refused("simulate" + kWork + "--rate 1 --pp 2 --replicas 2 --prefill-replicas 1",
          "--prefill-replicas and --pp 2: caches that move between servers of several stages are not simulated");
  refused("plan" + kWork + "--dp 2", "--tp 1 --dp 2: llama-3.1-70b has no experts that 2 groups");
  refused("simulate --model deepseek-v3 --device h200 --rate 1 --prompt 1k --output 128 --dp 8 --ep all --replicas 2 "
          "--prefill-replicas 1", "--prefill-replicas and --dp 8");
  refused("simulate" + kWork + "--rate 1 --dp 2", "--tp 1 --dp 2: llama-3.1-70b has no experts that 2 groups");
  refused("plan" + kWork + "--tp auto --pp 81", "80 layers cannot be spread over 81 stages");
  refused("compare --model gpt-oss-20b --device h100-sxm --tp auto --ep 3", "cannot be 3 groups");
  refused("plan --model qwen3-235b-a22b --device h200 --tp 8 --ep 8 --speculate 3:0.7 --draft qwen1.5-moe-a2.7b",
          "60 experts cannot be spread over 8 groups");
  refused("plan" + kWork + "--tp 2 --pp 2 --speculate 4:0.7 --draft llama-3.1-8b",
          "--tp 2 --pp 2: what drafts beside stages takes is not predicted");
}

TEST_CASE("a layout that two options name is there once, and what stages and experts lack is said") {
  const json p = answer_of("plan --model qwen3-30b-a3b --engine vllm --device h100-sxm --tp 1,2 --ep 1,all --pp 1,2");
  CHECK(p["searched"].size() == 6);
  const auto said = [](const json& answer, const char* words) {
    return std::ranges::any_of(answer["notes"], [&](const json& note) {
      return note.get<std::string>().find(words) != std::string::npos;
    });
  };
  CHECK(said(p, "stages of vllm are taken to work on different sequences at once"));
  CHECK(said(p, "rows of vllm show no difference between experts that lie whole"));
  const json own = answer_of("plan --model llama-3-8b --device h100-sxm --pp 2");
  CHECK(said(own, "stages of kvroof wait for each other"));
  CHECK_FALSE(said(answer_of("plan" + kWork + "--tp 2"), "stages of"));
}

TEST_CASE("where no more devices can share a layer, more stages are advised") {
  const Ran ran = run_program("plan --model qwen2.5-32b --device a100-40g --tp 8 --batch 600 --prompt 32k --dtype int4 "
                              "--kv int4 --format json");
  CHECK(ran.code == 3);
  const json p = json::parse(ran.out);
  REQUIRE_FALSE(p["remedies"].empty());
  const std::string change = p["remedies"][0]["change"];
  CHECK(change.starts_with("--tp 8 --pp "));
  const Ran wider = run_program("plan --model qwen2.5-32b --device a100-40g --batch 600 --prompt 32k --dtype int4 "
                                "--kv int4 --format json " + change);
  CHECK(wider.code == 0);
}

TEST_CASE("a price that is given takes the place of the listed one, and changes nothing but what tokens cost") {
  const std::string work = "compare --model llama-3-8b --device h100-sxm,l40s,rtx-3060 --prompt 2k --output 256";
  const auto points = [](const json& answer) {
    std::map<std::string, json> by_device;
    for (const json& point : answer["points"]) by_device[point["device"]] = point;
    return by_device;
  };
  auto listed = points(answer_of(work)), given = points(answer_of(work + " --usd-per-hour 1.5,l40s=0.72"));
  const auto check = [&](const char* device, double usd_per_hour) {
    INFO(device);
    const json& point = given[device];
    const double usd = usd_per_hour / 3600 / point["tokens_per_s"].get<double>() * 1e6;
    CHECK(point["usd_per_million_tokens"]["low"].get<double>() == Approx(usd));
    CHECK(point["usd_per_million_tokens"]["high"].get<double>() == Approx(usd));
    CHECK(point["tokens_per_s"] == listed[device]["tokens_per_s"]);
    CHECK(point["tpot_ms_interval"] == listed[device]["tpot_ms_interval"]);
  };
  check("h100-sxm", 1.5);
  check("l40s", 0.72);
  const Ran plan =
      run_program("plan --model llama-3-8b --device h200 --prompt 2k --output 256 --usd-per-hour 2 --format json");
  CHECK(plan.out.find("at $2.00 an hour and device (as given)") != std::string::npos);
  const Ran table = run_program(work + " --usd-per-hour l40s=0.72");
  CHECK(table.out.find("at the prices of --usd-per-hour, else at the lowest") != std::string::npos);
}

TEST_CASE("prices of devices that are not there, twice, or no prices are refused in a sentence") {
  const std::string work = "compare --model llama-3-8b --device h200,l40s ";
  refused(work + "--usd-per-hour h20=3", "--usd-per-hour h20=3: no --device has that name; did you mean h200?");
  refused(work + "--usd-per-hour h200=3,h200=4", "--usd-per-hour h200=4: there are two prices for the same device");
  refused(work + "--usd-per-hour 3,4", "--usd-per-hour 4: there are two prices for the same device");
  refused(work + "--usd-per-hour l40s=cheap", "--usd-per-hour cheap: expected a number from 0.001 to 10000");
}
