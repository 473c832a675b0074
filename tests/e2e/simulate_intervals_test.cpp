// What the intervals of `kvroof simulate` are made of: times, queues, measured runs, and the first minute of a server.
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

json simulated(const std::string& words, const std::string& program = KVROOF_PROGRAM) {
  return json_of("simulate --engine vllm --device h100-sxm " + words, 0, program);
}

double end(const json& estimate, const char* name) { return estimate[name].get<double>(); }
double width(const json& e) { return end(e, "high80") / end(e, "value"); }

// A home in which every measured run took `factor` times as long.
std::string home_with_runs(const TemporaryFolder& folder, double factor) {
  namespace fs = std::filesystem;
  const fs::path source = KVROOF_SOURCE_DIR, home = folder.file("home");
  fs::create_directories(home / "validation");
  fs::create_directory_symlink(source / "catalog", home / "catalog");
  fs::create_symlink(source / "validation/published.csv", home / "validation/published.csv");
  std::ofstream out(home / "validation/serving.csv");
  out << "experiment,set,device,engine,model,dtype,tp,rate_per_s,prompt,output,metric,measured_ms,kvroof_ms\n";
  for (const char* model : {"llama-2-7b", "llama-3.1-8b", "qwen3-14b", "llama-2-70b"}) {
    for (const char* metric : {"e2e_mean", "e2e_p90", "e2e_p99"}) {
      out << model << ",stage,h100-sxm,vllm," << model << ",bf16,1,1,1000,1000," << metric << "," << 1e4 * factor
          << ",10000\n";
    }
  }
  return "KVROOF_HOME=" + home.string() + " " + KVROOF_PROGRAM;
}

// The rows of the shipped runs, by column.
std::vector<std::map<std::string, std::string>> shipped_rows() {
  std::ifstream file(std::string(KVROOF_SOURCE_DIR) + "/validation/serving.csv");
  std::vector<std::string> header;
  std::vector<std::map<std::string, std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) fields.push_back(field);
    if (header.empty()) {
      header = fields;
      continue;
    }
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < fields.size(); ++i) row[header.at(i)] = fields[i];
  }
  return rows;
}

}  // namespace

TEST_CASE("predictions that ship beside measured runs are those that simulate makes") {
  // After a change of what is predicted: scripts/simulate-peers --update.
  for (const char* run : {"26-llama-3-1-8b-tp2-general-2", "10-mixtral-8x7b-tp2-codegen"}) {
    json result;
    int compared = 0;
    for (auto& row : shipped_rows()) {
      if (row["experiment"] != run) continue;
      if (result.is_null()) {
        result = simulated("--model " + row["model"] + " --dtype " + row["dtype"] + " --tp " + row["tp"] + " --rate " +
                           row["rate_per_s"] + " --prompt " + row["prompt"] + " --output " + row["output"] +
                           " --count " + row["requests"] + " --spread 0 --max-num-seqs 128 --max-num-batched-tokens " +
                           row["max_num_batched_tokens"] + " --cached-prompt 0.97")["rows"][0];
      }
      const std::string metric = row["metric"];
      const std::size_t cut = metric.find('_');
      INFO(run << " " << metric);
      CHECK(end(result[metric.substr(0, cut) + "_ms"][metric.substr(cut + 1)], "value") ==
            Approx(std::stod(row["kvroof_ms"])).epsilon(0.005));
      ++compared;
    }
    CHECK(compared == 7);
  }
}

TEST_CASE("a first minute of experts ends later by seconds, and is no other prediction") {
  const std::string words =
      "--model mixtral-8x7b --tp 2 --rate 5 --prompt 566 --output 247 --count 200 --spread 0 --cached-prompt 0.97 ";
  const json warm = simulated(words)["rows"][0], cold = simulated(words + "--cold")["rows"][0];
  for (const char* metric : {"ttft_ms", "tpot_ms", "e2e_ms"}) {
    for (const char* figure : {"mean", "p99"}) {
      INFO(metric << " " << figure);
      const json &before = warm[metric][figure], &after = cold[metric][figure];
      for (const char* same : {"value", "low80", "low95"}) CHECK(end(after, same) == end(before, same));
      CHECK(end(after, "high80") > end(before, "high80"));
    }
  }
  // By seconds: the slowest answers as late as their tokens together.
  const double answer = end(cold["e2e_ms"]["p99"], "high80") - end(cold["e2e_ms"]["p99"], "value");
  const double token = end(cold["tpot_ms"]["p99"], "high80") - end(cold["tpot_ms"]["p99"], "value");
  CHECK(answer == Approx(246 * token).epsilon(1e-6));
  CHECK(cold["p99_wide_by"] == json{{"ttft", "cold start"}, {"tpot", "cold start"}, {"itl", "cold start"},
                                    {"e2e", "cold start"}});
}

TEST_CASE("near the highest rate queues make the slowest wide, far from it what measured runs err by") {
  const std::string words = "--model llama-3-8b --prompt 4k --output 512 --count 300 --rate ";
  const json far = simulated(words + "0.5")["rows"][0], near = simulated(words + "4")["rows"][0];
  CHECK(far["p99_wide_by"]["ttft"] == "measured runs");
  CHECK(far["p99_wide_by"]["e2e"] != "queues");
  CHECK(near["p99_wide_by"]["ttft"] == "queues");
  CHECK(near["p99_wide_by"]["e2e"] == "queues");
  CHECK(width(near["e2e_ms"]["p99"]) > 1.5 * width(far["itl_ms"]["p50"]));
  CHECK(width(near["ttft_ms"]["p99"]) > width(far["ttft_ms"]["p99"]));
  const std::string note = simulated(words + "4")["notes"].back();
  CHECK(note.find("What makes p99 wide: first tokens queues, tokens queues, answers queues") != std::string::npos);
}

TEST_CASE("what measured answers are off by is a factor of every step: rates and shares in time know it too") {
  const std::string words = "--model llama-3-8b --prompt 1k --output 512 --count 200 --tpot-ms 15 --rate ";
  const TemporaryFolder right, wrong;
  const std::string as_predicted = home_with_runs(right, 1), slower = home_with_runs(wrong, 1.9);
  const json narrow = simulated(words + "max", as_predicted)["rows"][0]["highest_rate_per_s"];
  const json wide = simulated(words + "max", slower)["rows"][0]["highest_rate_per_s"];
  CHECK(end(wide, "value") == end(narrow, "value"));
  CHECK(end(wide, "low80") < 0.8 * end(narrow, "low80"));
  const std::string rate = std::to_string(0.8 * end(narrow, "value"));
  const json sure = simulated(words + rate, as_predicted)["rows"][0];
  const json unsure = simulated(words + rate, slower)["rows"][0];
  CHECK(end(unsure["attained"], "low80") < end(sure["attained"], "low80"));
  // A lone step that takes 1.9 times as long; at a rate more run at once, and it takes longer still.
  CHECK(end(unsure["tpot_ms"]["mean"], "high80") >= 1.9 * end(unsure["tpot_ms"]["mean"], "value") * (1 - 1e-9));
}
