// Speculative decoding on the command line: plan, compare and simulate with drafts, and without them as before.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::value;
using nlohmann::json;

namespace {

const std::string kLlama = "--model llama-3.1-8b --device h100-sxm --engine vllm --prompt 4k --output 512 ";
const std::string kModel = "--draft llama-3.2-1b ";

}  // namespace

TEST_CASE("no tokens drafted is what a plan, a comparison and a simulation say without the option") {
  for (const char* format : {"table", "json", "csv"}) {
    const std::string as = std::string(" --format ") + format;
    CHECK(run_program("plan " + kLlama + "--speculate 0" + as).out == run_program("plan " + kLlama + as).out);
    CHECK(run_program("compare " + kLlama + "--speculate 0" + as).out == run_program("compare " + kLlama + as).out);
    const std::string load = "simulate " + kLlama + "--rate 2 --count 20";
    CHECK(run_program(load + " --speculate 0" + as).out == run_program(load + as).out);
  }
}

TEST_CASE("a plan says what drafts make of a token, a batch and the memory") {
  const std::string batch = "plan " + kLlama + "--batch 8 ";
  const json plain = json_of(batch), drafted = json_of(batch + kModel + "--speculate 4:0.8");
  const json& s = drafted["speculation"];
  CHECK_FALSE(plain.contains("speculation"));
  CHECK(s["tokens_a_step"].get<double>() == Approx(3.3616));
  CHECK(value(s["tpot_without_ms"]) == Approx(value(plain["tpot_ms"])));
  CHECK(value(drafted["tpot_ms"]) == Approx(value(s["step_ms"]) / 3.3616));
  CHECK(value(s["drafting_ms"]) < value(s["step_ms"]));
  CHECK(s["times_as_fast"].get<double>() == Approx(value(plain["tpot_ms"]) / value(drafted["tpot_ms"])));
  CHECK(value(drafted["tokens_per_s"]) == Approx(8e3 / value(drafted["tpot_ms"])));
  CHECK(drafted["largest_batch"] < plain["largest_batch"]);
  CHECK(s["largest_batch_without"] == plain["largest_batch"]);
  CHECK(s["batch_without"] == 8);
  std::map<std::string, double> ledger;
  for (const json& line : drafted["ledger"]) ledger[line["name"]] = line["bytes"].get<double>();
  CHECK(ledger["draft_weights"] == 2 * 1235814400.0);
  CHECK(ledger["draft_cache"] == 8.0 * (4096 + 512 + 4) * 32768);
  // Under load a token has its share of prompts, of which there are fewer a step as answers take fewer steps.
  CHECK(value(drafted["load"]["tpot_ms"]) < value(plain["load"]["tpot_ms"]));
  CHECK(value(drafted["load"]["tpot_ms"]) > value(drafted["tpot_ms"]));
}

TEST_CASE("drafts pay up to the batch that a plan says, and no further") {
  const std::string words = "plan --model llama-3.1-8b --device h100-sxm --engine vllm --prompt 256 --output 128 " +
                            kModel + "--speculate 3:0.5 ";
  const json largest = json_of(words);
  REQUIRE(largest["speculation"]["pays"].size() == 1);
  const std::uint64_t last = largest["speculation"]["pays"][0]["to_batch"].get<std::uint64_t>();
  REQUIRE(last < largest["largest_batch"].get<std::uint64_t>());
  const auto times = [&](double batch) {
    const std::string n = std::to_string(static_cast<std::uint64_t>(batch));
    return json_of(words + "--batch " + n)["speculation"]["times_as_fast"].get<double>();
  };
  CHECK(times(static_cast<double>(last)) > 1);
  CHECK(times(1.02 * static_cast<double>(last) + 1) < 1.001);
  CHECK(largest["speculation"]["pays"][0]["from_batch"] == 1);
  CHECK(largest["answer"].get<std::string>().find("they pay up to a batch of " + std::to_string(last)) !=
        std::string::npos);
}

TEST_CASE("where drafts pay for few sequences and for many, and not between, a plan says so") {
  // The experts that a few sequences ask for are other ones with each drafted token; many ask for all of them anyhow.
  const std::string words = "plan --model qwen3-30b-a3b --device h200 --engine vllm --dtype fp8 --prompt 8k "
                            "--draft ngram --speculate 4:0.3 --batch ";
  const json few = json_of(words + "4");
  const json& pays = few["speculation"]["pays"];
  REQUIRE(pays.size() > 1);
  CHECK(few["speculation"]["times_as_fast"].get<double>() < 1);
  for (const json& range : pays) CHECK((range["to_batch"] < 4 || range["from_batch"] > 4));
  CHECK(json_of(words + "1")["speculation"]["times_as_fast"].get<double>() > 1);
  CHECK(few["answer"].get<std::string>().find("they pay at batches of 1") != std::string::npos);
}

TEST_CASE("a host that launches each kernel launches those of drafts as well") {
  const std::string words =
      "plan --model llama-3.1-8b --engine huggingface --device h100-sxm --prompt 1k --batch 1 --draft ";
  const json drafted = json_of(words + "eagle --speculate 8:0.7"), free = json_of(words + "ngram --speculate 8:0.7");
  const json& s = drafted["speculation"];
  // Kernels of drafts wait for each other as well, which is no time of the host.
  CHECK(value(s["step_ms"]) > value(free["speculation"]["step_ms"]) + 0.8 * value(s["drafting_ms"]));
}

TEST_CASE("of several drafts a plan takes those that make most tokens a second, or none") {
  const json few = json_of("plan " + kLlama + "--draft eagle3 --batch 1 --speculate 0,2:0.4,12:0.4");
  CHECK(few["searched"].size() == 3);
  CHECK(few["speculation"]["drafted_tokens"] == 2);
  const json none = json_of("plan " + kLlama + kModel + "--batch 1 --speculate 0,8:0.1");
  CHECK_FALSE(none.contains("speculation"));
  CHECK(none["answer"].get<std::string>().find("With one sequence: 8 tokens of llama-3.2-1b drafted") !=
        std::string::npos);
}

TEST_CASE("a policy that observes attention gains less from drafts, and says what full attention gains") {
  const std::string words = "plan " + kLlama + "--draft ngram --speculate 4:0.7 --batch 16 ";
  const json full = json_of(words), h2o = json_of(words + "--policy h2o:budget=0.5");
  CHECK(h2o["speculation"]["times_as_fast"] < full["speculation"]["times_as_fast"]);
  CHECK(h2o["speculation"]["times_as_fast_under_full"].get<double>() ==
        Approx(full["speculation"]["times_as_fast"].get<double>()).epsilon(1e-3));
  CHECK(h2o["answer"].get<std::string>().find("times under full attention") != std::string::npos);
  CHECK(full["answer"].get<std::string>().find("under full attention") == std::string::npos);
}

TEST_CASE("a comparison ranks deployments with drafts beside those without, each with its gain") {
  const json j = json_of("compare " + kLlama + "--policy full,h2o --budget 0.5 --batch 4 --draft eagle --speculate "
                         "0,3:0.7");
  REQUIRE(j["points"].size() == 4);
  CHECK(j["points"][0]["speculation"]["times_as_fast"].get<double>() > 1);
  CHECK(j["points"][3]["speculation"].is_null());
  const auto rows = run_program("compare " + kLlama + "--draft eagle --speculate 0,3:0.7 --format csv").out;
  CHECK(rows.find("times_as_fast") != std::string::npos);
}

TEST_CASE("a plan's CSV has as many cells in rows with drafts as in those without") {
  const std::string csv = run_program("plan " + kLlama + "--draft mtp --speculate 0,1:0.9 --format csv").out;
  std::size_t commas = 0;
  for (std::size_t begin = 0; begin < csv.size();) {
    const std::size_t end = csv.find('\n', begin);
    std::size_t count = 0;
    bool quoted = false;
    for (std::size_t i = begin; i < end; ++i) {
      if (csv[i] == '"') quoted = !quoted;
      if (csv[i] == ',' && !quoted) ++count;
    }
    if (begin > 0) CHECK(count == commas);
    commas = count;
    begin = end + 1;
  }
}

TEST_CASE("a simulated loop of clients with drafts has the token that a plan computes by a formula") {
  const std::string work = kLlama + kModel + "--speculate 4:0.7 ";
  const json row = json_of("simulate " + work + "--clients 16 --count 320 --spread 0.3")["rows"][0];
  const json plan = json_of("plan " + work + "--batch 16");
  CHECK(row["tokens_a_step"].get<double>() == Approx(2.7731).epsilon(0.01));
  CHECK(value(row["tpot_ms"]["mean"]) == Approx(value(plan["load"]["tpot_ms"])).epsilon(0.1));
  // Tokens of a step come together, so that gaps are as long as steps.
  CHECK(value(row["itl_ms"]["mean"]) > 2 * value(row["tpot_ms"]["mean"]));
}

TEST_CASE("what drafts change is said of servers that are looked for, however many and of what kind each row has") {
  const std::string work =
      "simulate --model llama-3.1-8b --device h100-sxm --engine vllm --draft eagle3 --speculate 0,3:0.7 ";
  const Ran ran = run_program(work + "--prompt 2k --output 256 --rate 40 --count 100 --replicas auto --ttft-ms 2000 "
                                     "--tpot-ms 15 --format json");
  const std::string few = json::parse(ran.out)["answer"];
  CHECK(few.find("; without drafts ") != std::string::npos);
  CHECK(few.ends_with("of h100-sxm."));
  const Ran wrong = run_program(work + "--rate 1 --max-num-batched-tokens 3");
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("a sequence passes 4 tokens a step") != std::string::npos);
}

TEST_CASE("an answer of one step gains nothing from drafts, in a simulation nor in a plan of a loop") {
  const std::string work = "--model llama-3.1-8b --device h100-sxm --engine vllm --prompt 4k --output 2 ";
  const auto under_load = [&](const std::string& drafts) {
    return value(json_of("plan " + work + "--batch 1 " + drafts)["load"]["tokens_per_s"]);
  };
  CHECK(under_load("--draft ngram --speculate 64:1") <= under_load(""));
}

TEST_CASE("a simulation with drafts prints the same bytes for any number of threads, and says whether they pay") {
  const std::string words = "simulate " + kLlama + "--draft eagle3 --speculate 0,3:0.7 --rate 2 --count 60 ";
  const std::string one = run_program(words + "--threads 1").out;
  CHECK(one.find("without drafts") != std::string::npos);
  CHECK(run_program(words + "--threads 2").out == one);
  CHECK(run_program(words + "--seed 9").out != one);
}

TEST_CASE("drafts that mean nothing are refused in a sentence") {
  struct Refusal {
    std::string words, says;
  };
  for (const Refusal& r :
       {Refusal{"--speculate 4:0.8", "--speculate needs --draft"}, Refusal{"--draft mtp", "--draft needs --speculate"},
        Refusal{"--draft mtp --speculate 4", "how often a drafted token is accepted is missing"},
        Refusal{"--draft mtp --speculate 4:1.2", "--speculate 4:ACCEPT 1.2: expected a number from 0 to 1"},
        Refusal{"--draft mtp --speculate 4:", "--speculate 4:ACCEPT "},
        Refusal{"--draft mtp --speculate :0.5", "--speculate"},
        Refusal{"--draft mtp --speculate 65:0.8", "--speculate 65"},
        Refusal{"--draft mtp --speculate 0", "nothing is drafted"},
        Refusal{"--draft nothing-like-it --speculate 4:0.8", "nothing-like-it"},
        Refusal{"--draft gpt2 --speculate 4:0.8", "it has a vocabulary of 50257 tokens and llama-3.1-8b one of 128256"},
        Refusal{"--draft ngram --speculate 4:0.8,", "--speculate"},
        Refusal{"--draft ngram --speculate 4:0.8,0:x", "--speculate 0:ACCEPT x"},
        Refusal{"--draft none --speculate 4:0.8", "--draft none: expected mtp, eagle, eagle3, ngram or a model"}}) {
    const Ran ran = run_program("plan " + kLlama + r.words);
    INFO(r.words << ": " << ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.find(r.says) != std::string::npos);
  }
}
