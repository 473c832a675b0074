// kvroof replay --closed-loop: what a replay of a full run keeps against what a run under the policy kept.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

// A run of the demo model: a prompt of 64 tokens and 40 decoded ones.
struct Recorded {
  TemporaryFolder folder;
  std::string path = folder.file("run.kvt");

  explicit Recorded(const std::string& policy = "full") {
    std::string ids;
    for (int i = 0; i < 64; ++i) ids += std::to_string(100 + i * 37 % 900) + " ";
    const Ran ran =
        run_program("record --model " KVROOF_SOURCE_DIR "/models/demo --ids \"" + ids +
                    "\" --max-tokens 41 --ignore-eos --policy " + policy + " --backend reference -o " + path);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
  }
};

json comparison(const Recorded& open, const Recorded& closed) {
  const Ran ran = run_program("replay " + open.path + " --closed-loop " + closed.path + " --format json");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  return json::parse(ran.out)["open_closed_loop"];
}

using Sets = std::map<std::tuple<int, int, int>, std::vector<int>>;  // by step, layer and head

Sets kept_sets(const Recorded& run, const std::string& policy) {
  const std::string file = run.folder.file("kept.jsonl");
  const std::string words = run.path + " --policy " + policy + " --kept " + file + " --kept-steps all";
  REQUIRE(run_program("replay " + words).code == 0);
  Sets sets;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const json set = json::parse(line);
    sets[{set["step"], set["layer"], set["head"]}] = set["kept"].get<std::vector<int>>();
  }
  return sets;
}

}  // namespace

TEST_CASE("open against closed loop: the same sets after the prompt, and in layer 0 until a token differs") {
  const Recorded open;
  for (const char* policy : {"h2o:budget=0.3", "h2o-masked:heavy=0.1:recent=0.1", "keyformer-refcompat:budget=0.3",
                             "scissorhands-refcompat:start=20:history=3", "quest:budget=0.3:dense=0:page=4"}) {
    INFO(policy);
    const Recorded closed(policy);
    const json loop = comparison(open, closed);
    CHECK(loop["policy"] == policy);
    CHECK(loop["equal_after_prompt"] == true);
    CHECK(loop["equal_layer0_until_differing"] == true);
    for (const json& overlap : loop["overlap"][0]) CHECK(overlap == 1.0);
  }
  const Recorded closed("h2o:budget=0.3");
  const Ran text = run_program("replay " + open.path + " --closed-loop " + closed.path);
  CHECK(text.out.find("Open against closed") != std::string::npos);
  const Ran swapped = run_program("replay " + closed.path + " --closed-loop " + open.path);
  CHECK(swapped.code == 2);
  CHECK(swapped.err.find("cannot be compared") != std::string::npos);
}

TEST_CASE("the lowest overlap of a layer is that of one step of one sequence, whatever the other sequences have") {
  const TemporaryFolder folder;
  const auto recorded = [&](const std::string& name, const std::string& prompts, const std::string& policy) {
    const Ran ran = run_program("record --model " KVROOF_SOURCE_DIR "/models/demo " + prompts +
                                " --max-tokens 30 --ignore-eos --backend reference --policy " + policy + " -o " +
                                folder.file(name + policy.substr(0, 3)));
    INFO(ran.err);
    REQUIRE(ran.code == 0);
  };
  const auto lowest = [&](const std::string& name, const std::string& prompts) {
    recorded(name, prompts, "full");
    recorded(name, prompts, "h2o:budget=0.3");
    const Ran ran = run_program("replay " + folder.file(name + "ful") + " --closed-loop " + folder.file(name + "h2o") +
                                " --format json");
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    return json::parse(ran.out)["open_closed_loop"]["lowest"].get<std::vector<double>>();
  };
  std::string first = "--ids '", second = "--ids '";
  for (int i = 0; i < 48; ++i) {
    first += std::to_string(100 + i * 37 % 900) + " ";
    second += std::to_string(100 + i * i * 53 % 900) + " ";
  }
  first += "' ", second += "' ";
  const std::vector<double> one = lowest("a", first), other = lowest("b", second), both = lowest("c", first + second);
  REQUIRE(both.size() == 6);
  bool apart = false;
  for (std::size_t layer = 0; layer < both.size(); ++layer) {
    INFO(layer);
    CHECK(both[layer] == std::min(one[layer], other[layer]));
    apart = apart || one[layer] != other[layer];
  }
  CHECK(apart);
}

TEST_CASE("what a window of the layer hides is in neither loop's set") {
  TemporaryFolder folder;
  const std::string model = KVROOF_SOURCE_DIR "/tests/golden/models/mistral";  // with a window of 16
  const auto record = [&](const std::string& policy) {
    const std::string path = folder.file(policy.substr(0, 4) + ".kvt");
    const Ran ran = run_program("record --model " + model +
                                " --ids \"5 17 9 40 2 61 33 8 12 50 3 7 21 44 19 36 28 1 30 6\" -n 30 --ignore-eos"
                                " --backend reference --policy " + policy + " -o " + path);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    return path;
  };
  const std::string open = record("full"), closed = record("streaming:budget=12");
  const Ran ran = run_program("replay " + open + " --closed-loop " + closed + " --format json");
  REQUIRE(ran.code == 0);
  const json loop = json::parse(ran.out)["open_closed_loop"];
  CHECK(loop["equal_after_prompt"] == true);
  CHECK(loop["equal_layer0_until_differing"] == true);
  for (const json& step : loop["overlap"]) {
    for (const json& layer : step) CHECK(layer == 1.0);  // what streaming keeps depends on positions alone
  }
}

TEST_CASE("open and closed loops of other models or weights are refused, and those that round otherwise get a note") {
  const TemporaryFolder folder;
  const std::string models = KVROOF_SOURCE_DIR "/tests/golden/models/";
  const auto record = [&](const std::string& name, const std::string& words) {
    const std::string path = folder.file(name);
    const Ran ran = run_program("record --ids \"5 17 9 40 2 61 33 8\" -n 6 --ignore-eos -o " + path + " " + words);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    return path;
  };
  const std::string reference = " --backend reference", window = " --policy window:budget=6";
  const std::string open = record("open.kvt", "--model " + models + "llama-gqa" + reference);
  const auto replayed = [&](const std::string& closed, const std::string& words = "") {
    return run_program("replay " + open + " --closed-loop " + closed + words + " --format json");
  };
  const Ran other = replayed(record("other.kvt", "--model " + models + "llama" + reference + window));
  CHECK(other.code == 2);
  CHECK(other.err.find("layer 0 has 4 query heads, 2 KV heads") != std::string::npos);
  const std::string shape = "--random-weights " + models + "llama-gqa/config.json" + reference + window;
  const Ran seeded = replayed(record("seeded.kvt", shape + " --seed 3"));
  CHECK(seeded.code == 2);
  CHECK(seeded.err.find("as those of models with other weights do") != std::string::npos);
  const std::string same = record("same.kvt", "--model " + models + "llama-gqa" + reference + window);
  const Ran alike = replayed(same, " --policy window --budget 6");
  REQUIRE(alike.code == 0);
  CHECK(alike.out.find("differ in more than the policy") == std::string::npos);
  CHECK(alike.out.find("which none of the points is") == std::string::npos);
  CHECK(replayed(same, " --policy h2o:budget=6").out.find("which none of the points is") != std::string::npos);
  const std::string fast = record("fast.kvt", "--model " + models + "llama-gqa --kv int8 --backend fast" + window);
  const Ran rounded = replayed(fast);
  REQUIRE(rounded.code == 0);
  CHECK(rounded.out.find("more than the policy: back end (reference and fast)") != std::string::npos);
  CHECK(rounded.out.find("type of the cache (f32 and int8)") != std::string::npos);
}

TEST_CASE("open against closed loop of a policy that reads a part compares what replays of both runs read") {
  const Recorded open;
  for (const std::string policy : {"h2o-masked:heavy=0.1:recent=0.1", "scissorhands-refcompat:start=20:history=3"}) {
    INFO(policy);
    const Recorded closed(policy);
    const json overlap = comparison(open, closed)["overlap"];
    const Sets ours = kept_sets(open, policy), theirs = kept_sets(closed, policy);
    REQUIRE(ours.size() == theirs.size());
    std::map<std::pair<int, int>, std::pair<double, int>> cells;  // by step and layer: sum, heads
    for (const auto& [at, set] : ours) {
      const std::vector<int>& other = theirs.at(at);
      std::vector<int> common;
      std::ranges::set_intersection(set, other, std::back_inserter(common));
      auto& [sum, heads] = cells[{std::get<0>(at), std::get<1>(at)}];
      sum += static_cast<double>(common.size()) / static_cast<double>(std::max(set.size(), other.size()));
      heads += 1;
    }
    CHECK(cells.size() == 40 * 6);
    bool drifts = false;
    for (const auto& [at, cell] : cells) {
      const double mean = cell.first / cell.second;
      CHECK(overlap[at.first][at.second].get<double>() == Approx(mean));
      drifts = drifts || mean < 1;
    }
    CHECK(drifts);
  }
}
