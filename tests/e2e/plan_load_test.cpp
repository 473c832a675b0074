// `kvroof plan` of clients that ask again once answered.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::has_note;
using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using nlohmann::json;

namespace {

json plan(const std::string& words, int code = 0) { return json_of("plan" + words, code); }

json ledger_line(const json& answer, const char* name) {
  for (const json& line : answer["ledger"]) {
    if (line["name"] == name) return line["bytes"];
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a goal of further tokens holds nothing back where answers have one, and plan and compare say so") {
  const std::string words = " --model llama-3-8b --engine vllm --device h100-sxm --prompt 2k --output 1";
  for (const std::string goals : {" --ttft-ms 2000 --under-load", ""}) {
    INFO(goals);
    const json without = plan(words + goals), with = plan(words + goals + " --tpot-ms 0.001");
    CHECK(with["largest_batch"] == without["largest_batch"]);
    CHECK(with["limited_by"] == without["limited_by"]);
    CHECK(with["longest_prompt"] == without["longest_prompt"]);
    CHECK(with["notes"].dump().find("--tpot-ms 0.001 is of the tokens after the first") != std::string::npos);
    CHECK(without["notes"].dump().find("--tpot-ms") == std::string::npos);
    const Ran ran = run_program("compare" + words + goals + " --tpot-ms 0.001 --format json");
    REQUIRE(ran.code == 0);
    const json compared = json::parse(ran.out);
    CHECK(compared["points"][0]["largest_batch"] == without["largest_batch"]);
    CHECK(compared["notes"].dump().find("--tpot-ms 0.001 is of the tokens after the first") != std::string::npos);
  }
  plan(" --model llama-3-8b --engine vllm --device h100-sxm --prompt 2k --output 2 --tpot-ms 0.001", 3);
}

TEST_CASE("a prefix cache shortens prompts and what waits for them, not steps or memory, and plan and compare agree") {
  const std::string words = " --model llama-3-8b --engine vllm --prompt 8k --output 256 --batch 24 --under-load ";
  const json whole = plan(words + "--device h100-sxm"), rest = plan(words + "--device h100-sxm --cached-prompt 75%");
  CHECK(whole["cached_tokens"] == 0);
  CHECK(rest["cached_tokens"] == 6144);
  for (const char* same : {"tpot_ms", "largest_batch_in_memory", "ledger"}) {
    INFO(same);
    CHECK(rest[same] == whole[same]);
  }
  // A quarter of the products, and the attention of a quarter of the queries, those of the longest rows.
  CHECK(rest["ttft_ms"]["value"].get<double>() > 0.25 * whole["ttft_ms"]["value"].get<double>());
  CHECK(rest["ttft_ms"]["value"].get<double>() < 0.36 * whole["ttft_ms"]["value"].get<double>());
  CHECK(rest["load"]["tpot_ms"]["value"].get<double>() < 0.7 * whole["load"]["tpot_ms"]["value"].get<double>());
  CHECK(rest["load"]["tpot_ms"]["value"].get<double>() > rest["tpot_ms"]["value"].get<double>());
  const Ran ran = run_program("compare" + words +
                              "--device h100-sxm --cached-prompt 0.75 --policy full,h2o --budget 0.5 --format json");
  REQUIRE(ran.code == 0);
  const json compared = json::parse(ran.out);
  for (const json& point : compared["points"]) {
    if (point["policy"] != "full") {
      // What it evicted other prompts would miss: they are computed whole.
      CHECK(point["cached_tokens"] == 0);
      continue;
    }
    CHECK(point["cached_tokens"] == 6144);
    CHECK(point["tpot_ms_interval"]["value"] == rest["load"]["tpot_ms"]["value"]);
    CHECK(point["ttft_ms"] == rest["load"]["ttft_ms"]);
  }
  CHECK(compared["notes"].dump().find("h2o: of a prompt that is evicted from, rows are missing") != std::string::npos);
  // Where every policy evicts, nothing is cached, and nothing says that it were.
  const json lost = plan(words + "--device h100-sxm --cached-prompt 0.75 --policy h2o:budget=0.5");
  CHECK(lost["answer"].get<std::string>().find("cached") == std::string::npos);
  CHECK(lost["notes"].dump().find("and not computed") == std::string::npos);
  CHECK(lost["notes"].dump().find("prompts are computed whole") != std::string::npos);
  CHECK(compared["answer"].get<std::string>().find("8192 (6144 of them cached) + 256 tokens") != std::string::npos);
}

TEST_CASE("compare of a batch says of each device what plan says of it, and what a million tokens cost at its prices") {
  const std::string words = " --model llama-3-8b --engine vllm --prompt 3000 --output 256 --batch 64 --under-load ";
  const Ran ran = run_program("compare" + words + "--tp 2 --device h100-sxm,l40s,rtx-3060 --format json");
  REQUIRE(ran.code == 0);
  const json all = json::parse(ran.out);
  REQUIRE(all["points"].size() == 3);
  for (const json& c : all["points"]) {
    const bool fits = c["device"] != "rtx-3060";
    const json p = plan(words + "--tp 2 --device " + c["device"].get<std::string>(), fits ? 0 : 3);
    INFO(c);
    CHECK(c["batch"] == (fits ? 64 : 0));
    CHECK(c["largest_batch"] == p["largest_batch"]);
    if (!fits) continue;
    CHECK(c["tpot_ms_interval"]["value"] == p["load"]["tpot_ms"]["value"]);
    CHECK(c["ttft_ms"] == p["load"]["ttft_ms"]);
    CHECK(c["tokens_per_s"] == p["load"]["tokens_per_s"]["value"]);
    CHECK(c["usd_per_million_tokens"] == p["load"]["usd_per_million_tokens"]);
    // Two devices for an hour make so many tokens.
    const std::string device = c["device"];
    const json facts = json::parse(run_program("devices show " + device + " --format json").out);
    const auto price = std::find_if(facts.begin(), facts.end(),
                                    [](const json& f) { return f["fact"] == "price_low_usd_per_hour"; });
    REQUIRE(price != facts.end());
    const double an_hour = 3600 * c["tokens_per_s"].get<double>();
    const double low = (*price)["value"].get<double>();
    CHECK(c["usd_per_million_tokens"]["low"].get<double>() == Approx(2 * low / an_hour * 1e6));
  }
  CHECK(all["points"][0]["device"] == "h100-sxm");
  CHECK(all["points"][2]["device"] == "rtx-3060");
  // Without --under-load what the numbers leave out is said.
  const Ran steps = run_program("compare --model llama-3-8b --prompt 3000 --output 256 --device h100-sxm");
  CHECK(steps.out.find("decode steps alone") != std::string::npos);
  CHECK(run_program("compare" + words + "--device rtx-3060").code == 3);
}

TEST_CASE("under load tokens share steps with others' prompts, and goals hold for as many clients as are planned") {
  const std::string words = " --model llama-3-8b --prompt 4k --output 256 --device h100-sxm --engine vllm ";
  const json alone = plan(words + "--batch 32");
  const json& load = alone["load"];
  const double step = alone["tpot_ms"]["value"], token = load["tpot_ms"]["value"], first = load["ttft_ms"]["value"];
  CHECK(load["clients"] == 32);
  // Of 31 others each has one prompt in 256 tokens; together with the own one they are all of the server's time.
  CHECK(token == Approx(step + 31 * alone["ttft_ms"]["value"].get<double>() / 256).epsilon(0.03));
  CHECK(load["tokens_per_s"]["value"].get<double>() * (first + 255 * token) / 1e3 == Approx(32 * 256).epsilon(0.15));
  const std::string goal = words + "--tpot-ms 60 --under-load";
  const json best = plan(goal);
  CHECK(best["limited_by"] == "tpot");
  CHECK(best["load"]["tpot_ms"]["value"] <= 60);
  const json more = plan(goal + " --batch " + std::to_string(best["batch"].get<int>() + 1), 3);
  CHECK(more["load"]["tpot_ms"]["value"] > 60);
  CHECK(best["batch"] < plan(words + "--tpot-ms 60")["batch"]);
  // It waits for its own prompt too, whatever rows say of either.
  CHECK(load["ttft_ms"]["high80"] >= alone["ttft_ms"]["high80"]);
  for (const char* device : {"h100-sxm", "h200"}) {
    const json one = plan(" --model gemma-3-27b --engine vllm --output 4k --batch 1 --prompt 60k --device " +
                          std::string(device));
    CHECK(one["load"]["ttft_ms"]["high95"] >= one["ttft_ms"]["high95"]);
  }
  // What does not fit has no load. Of several deployments the one that makes most of a device under load is best.
  CHECK(plan(words + "--batch 100000", 3)["load"].is_null());
  const json several = plan(" --model llama-3-8b --engine vllm --device a100-80g --tp auto --prompt 4k --output 128 "
                            "--tpot-ms 40 --under-load");
  double most = 0;
  for (const json& s : several["searched"]) most = std::max(most, s["tokens_per_s_a_device"]["value"].get<double>());
  const double made = several["load"]["tokens_per_s"]["value"];
  CHECK(made / several["tensor_parallel"].get<double>() == Approx(most));
  // One client waits for its place alone: what misses a goal is said with the time that misses it.
  const Ran late = run_program("plan --model llama-3-8b --engine vllm --device h100-sxm --prompt 1k --output 128 "
                               "--ttft-ms 30 --under-load");
  CHECK(late.code == 3);
  CHECK(late.out.find("ms for a prompt under load") != std::string::npos);
}

TEST_CASE("a device that misses a goal under load is shown with the first token that misses it") {
  const std::string work = "compare --model llama-3.3-70b --device h200,b200 --engine vllm --tp 4 --dtype fp8 --kv fp8 "
                           "--prompt 8k --output 512 --batch 50 --ttft-ms 1500 --tpot-ms 90 --under-load --format json";
  const Ran ran = run_program(work);
  INFO(ran.err);
  const json answer = json::parse(ran.out);
  bool missed = false;
  for (const json& point : answer["points"]) {
    if (point["limited_by"] != "ttft" || point["batch"] > 0) continue;
    missed = true;
    CHECK(point["ttft_ms"]["value"] > 1500);
  }
  CHECK(missed);
}

TEST_CASE("what would let more sequences in is said by what limits their number") {
  const auto page = [](const std::string& words) {
    return run_program("plan --engine vllm --output 256 " + words).out;
  };
  // Weights are the largest line, and caches all that sequences take.
  const std::string gpt = page("--model gpt-oss-120b --device h200 --prompt 8k");
  CHECK(gpt.find("a smaller budget or a smaller type of the cache") != std::string::npos);
  const std::string scheduler = page("--model llama-3.1-8b --device mi300x --prompt 512");
  CHECK(scheduler.find("the engine takes no more at once") != std::string::npos);
  const std::string lifted = page("--model llama-3.1-8b --device mi300x --prompt 512 --max-num-seqs 1200");
  CHECK(lifted.find("1200 sequences at once") != std::string::npos);
}

TEST_CASE("the share of memory that an engine takes, and the types of its cache, are its own unless they are given") {
  const std::string words = " --model llama-3.1-8b --engine vllm --device h100-sxm --prompt 2k --output 256 ";
  const int by_default = plan(words)["largest_batch"];
  CHECK(plan(words + "--gpu-memory-utilization 0.9")["largest_batch"] == by_default);
  CHECK(plan(words + "--gpu-memory-utilization 0.95")["largest_batch"] > by_default);
  std::vector<std::string> types;
  const json automatic = plan(words + "--kv auto");
  for (const json& one : automatic["searched"]) types.push_back(one["kv_type"]);
  CHECK(types == std::vector<std::string>{"bf16", "fp8"});
  CHECK(run_program("plan" + words + "--kv int4").out.find("that it had this one is assumed") != std::string::npos);
}

TEST_CASE("a batch beyond what the engine takes at once is told from one that memory does not hold") {
  const std::string words = " --model llama-3.1-8b --device h100-sxm --engine vllm --batch 32 --prompt ";
  const json few = plan(words + "2k --max-num-seqs 17", 3);
  CHECK(few["answer"].get<std::string>().find("the engine takes at most 17 at once, fewer than 32") !=
        std::string::npos);
  CHECK(few["limited_by"] == "engine");
  CHECK(run_program("plan" + words + "2k --max-num-seqs 17").out.find("--max-num-seqs lets it take more") !=
        std::string::npos);
  CHECK(plan(words + "2k --max-num-seqs 32")["fits"] == true);
  // Memory holds fewer than the engine would take.
  const json many = plan(words + "32k --max-num-seqs 17", 3);
  CHECK(many["answer"].get<std::string>().find("32 sequences do not fit, at most ") != std::string::npos);
  CHECK(many["limited_by"] == "capacity");
}

TEST_CASE("of types of the cache those are advised that the engine has") {
  const std::string words = "plan --model llama-3.1-8b --device l40s --engine vllm --prompt 8k --output 512 ";
  const std::string forty = run_program(words + "--batch 40").out;
  CHECK(forty.find("`--kv fp8`") != std::string::npos);
  CHECK(forty.find("--kv int") == std::string::npos);
  CHECK(run_program(words + "--batch 64").out.find("--kv int") == std::string::npos);
}

TEST_CASE("full attention holds a prompt once, windows or not, and prompts pass in an engine's pieces") {
  // gpt-oss-120b: 18 layers see all of 131,000 tokens and 18 the last 128; k and v of 8 heads of 64 take 2,048 bytes.
  const json windows =
      plan(" --model gpt-oss-120b --device h100-sxm --engine vllm --prompt 130000 --output 1000 --batch 1");
  CHECK(windows["fits"] == true);
  CHECK(ledger_line(windows, "prefill_transient") == 0);
  CHECK(windows["kv_allocated_bytes"].get<double>() == Approx(18 * 2048 * (131000.0 + 128)).epsilon(1e-3));
  const auto activations = [](const std::string& prompt) {
    return ledger_line(plan(" --model llama-3.1-8b --dtype Q4_K_M --device rtx-4090 --engine llama-cpp --output 512 "
                            "--batch 1 --prompt " + prompt),
                       "activations");
  };
  CHECK(activations("64k") == activations("512"));
}

TEST_CASE("a step of fewer tokens lets first tokens wait longer, and activations of fewer tokens take less memory") {
  const std::string words = " --model llama-3-8b --engine vllm --device h100-sxm --prompt 4k --output 256 --batch 32 "
                            "--under-load --max-num-batched-tokens ";
  const json many = plan(words + "8k"), few = plan(words + "1k");
  CHECK(plan(words.substr(0, words.find("--max-num"))) == many);  // what vLLM takes on such a board
  CHECK(few["load"]["ttft_ms"]["value"].get<double>() > 1.1 * many["load"]["ttft_ms"]["value"].get<double>());
  CHECK(has_note(few, "a prompt is priced as one pass; in steps of 1024 tokens it takes longer"));
  CHECK_FALSE(has_note(many, "a prompt is priced as one pass"));
  const double kept = ledger_line(many, "activations").get<double>(), less = ledger_line(few, "activations");
  CHECK(less < kept);
  const Ran ran = run_program("compare" + words + "1k --format json");
  REQUIRE(ran.code == 0);
  CHECK(json::parse(ran.out)["points"][0]["ttft_ms"]["value"] == few["load"]["ttft_ms"]["value"]);
  // Parts of prompts that are smaller than that stay so, and a step has no more sequences than tokens.
  const std::string llama = " --model llama-3-8b --engine llama-cpp --device h100-sxm --prompt 4k --output 256 ";
  const json own = plan(llama + "--batch 4"), larger = plan(llama + "--batch 4 --max-num-batched-tokens 8k");
  CHECK(ledger_line(own, "activations") == ledger_line(larger, "activations"));
  CHECK(plan(words.substr(0, words.find("--batch")) + "--max-num-batched-tokens 16")["largest_batch"] == 16);
  const Ran wrong = run_program("plan" + words + "3 --draft ngram --speculate 3:0.5");
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("--max-num-batched-tokens 3 and --speculate 3: a sequence passes 4 tokens") !=
        std::string::npos);
}

TEST_CASE("a batch that does not fit is limited by memory, whatever goal it would miss") {
  const json p = plan(" --model llama-3-8b --engine vllm --device h100-sxm --prompt 4k --output 1k --batch 100 "
                      "--tpot-ms 20", 3);
  REQUIRE(p["largest_batch_in_memory"].get<int>() < 100);
  CHECK(p["fits"] == false);
  CHECK(p["limited_by"] == "capacity");
}

TEST_CASE("what takes most of a step is the same of plan and of compare, other users' prompts under load") {
  const std::string words = " --model llama-3-8b --engine vllm --device h100-sxm --prompt 4k --output 64 --batch 48 "
                            "--under-load";
  CHECK(plan(words)["step_limited_by"] == "prompts");
  CHECK(json_of("compare" + words)["points"][0]["step_limited_by"] == "prompts");
}
