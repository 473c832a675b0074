// kvroof replay as a user types it: the keys of its JSON, its table, its kept sets, its refusals.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "tests/catch.hpp"
#include "tests/support/json_lines.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::has_part_file;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

const std::string kDemo = std::string(KVROOF_SOURCE_DIR) + "/models/demo";
const std::string kGolden =
    std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";

// A run of the demo model: a prompt of 64 tokens and 40 decoded ones.
struct Recorded {
  TemporaryFolder folder;
  std::string path = folder.file("run.kvt");

  explicit Recorded(const std::string& policy = "full", const std::string& backend = "reference") {
    std::string ids;
    for (int i = 0; i < 64; ++i) ids += std::to_string(100 + i * 37 % 900) + " ";
    const Ran ran =
        run_program("record --model " + kDemo + " --ids \"" + ids + "\" --max-tokens 41 --ignore-eos --policy " +
                    policy + " --backend " + backend + " -o " + path);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
  }
};

// The same tensors as any framework would give them.
struct Imported {
  TemporaryFolder folder;
  std::string path = folder.file("x.kvt");
  Imported() { REQUIRE(run_program("import qkv " + kGolden + " --prompt 64 -o " + path).code == 0); }
};

Ran replay_ok(const std::string& words) {
  Ran ran = run_program("replay " + words);
  INFO(words << "\n" << ran.err);
  REQUIRE(ran.code == 0);
  return ran;
}

json replay_json(const std::string& words) { return json::parse(replay_ok(words + " --format json").out); }

void check_refused(const std::string& words, int code, const std::string& expected) {
  const Ran ran = run_program("replay " + words);
  INFO(words << "\nstdout: " << ran.out << "\nstderr: " << ran.err);
  CHECK(ran.code == code);
  CHECK(ran.out.empty());
  CHECK(ran.err.starts_with("error: "));
  CHECK(ran.err.find(expected) != std::string::npos);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') <= 5);
}

// Terminal columns of the widest line: a UTF-8 letter counts once.
std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto letters = std::count_if(line.begin(), line.end(),
                                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
    widest = std::max(widest, static_cast<std::size_t>(letters));
  }
  return widest;
}

const std::string kAll = "full,window,streaming,h2o,keyformer,scissorhands,random,oracle";

}  // namespace

TEST_CASE("a point of a replay has every promised key, without a device those of time are null") {
  const Recorded run;
  const json out = replay_json(run.path + " --policy " + kAll + " --budget 0.2,0.5");
  REQUIRE(out["points"].size() == 15);  // full has no budget
  for (const json& p : out["points"]) {
    for (const char* key :
         {"point", "policy", "budget", "device", "batch", "kept_tokens", "kv_resident_bytes", "kv_read_bytes",
          "recall_mean", "recall_worst1", "position", "output_error", "step_ms", "tokens_per_s", "largest_batch",
          "limited_by"}) {
      CHECK(p.contains(key));
    }
    for (const char* key : {"device", "step_ms", "tokens_per_s", "largest_batch", "limited_by"})
      CHECK(p[key].is_null());
    CHECK(p["recall_mean"] >= p["recall_worst1"]);
  }
  for (const json& p : out["points"]) CHECK(p["position"].is_null() == (p["policy"] == "full"));
  const json& full = out["points"][0];
  CHECK(full["policy"] == "full");
  CHECK(full["budget"].is_null());
  CHECK(full["recall_mean"] == 1.0);
  CHECK(full["output_error"] == 0.0);
  // 6 layers of 4 heads of 64 in fp32: 12,288 bytes a token; the mean of 65 … 104 tokens.
  CHECK(full["kept_tokens"] == 84.5);
  CHECK(full["kv_resident_bytes"] == 84.5 * 12288);
  const json& h2o = *std::find_if(out["points"].begin(), out["points"].end(),
                                  [](const json& p) { return p["point"] == "h2o:budget=0.5"; });
  CHECK(h2o["kept_tokens"] == 32.0);
  CHECK(h2o["kv_resident_bytes"] == 32 * 12288);
  CHECK(h2o["kv_read_bytes"] == 33 * 12288);
  CHECK(out["manifest"]["seed"] == 0);
  CHECK(out["manifest"]["policies"].size() == 15);
}

TEST_CASE(
    "devices and batches multiply the points, times come with their interval, the largest batch fits and one more does "
    "not") {
  const Recorded run;
  const json out = replay_json(
      run.path +
      " --policy full,h2o --budget 0.5 --as llama-2-7b --prompt 2k --output 2k --device h200,l40s --batch 1,16,max");
  REQUIRE(out["points"].size() == 2 * 2 * 3);
  for (const json& p : out["points"]) {
    CHECK(p["model"] == "llama-2-7b");
    CHECK(p["largest_batch"].get<int>() > 0);
    if (p["batch"].get<int>() > p["largest_batch"].get<int>()) {
      CHECK(p["step_ms"].is_null());
      CHECK(p["limited_by"] == "capacity");
      continue;
    }
    const json& interval = p["step_ms_interval"];
    CHECK(interval["value"] == p["step_ms"]);
    CHECK(interval["low95"] <= interval["low80"]);  // both may end where the datasheet does
    CHECK(interval["low80"] < interval["value"]);
    CHECK(interval["high80"] > interval["value"]);
    CHECK(interval["high95"] > interval["high80"]);
    const std::set<std::string> limits = {"weights", "KV", "compute", "launches", "capacity"};
    CHECK(limits.count(p["limited_by"]) == 1);
    if (p["batch_is_max"]) CHECK(p["batch"] == p["largest_batch"]);
  }
}

TEST_CASE(
    "projected on another model, full reads three times what 50 % of the prompt does when as much is generated, "
    "quality stays") {
  const Recorded run;
  const json own = replay_json(run.path + " --policy full,keyformer:budget=0.5,h2o:budget=0.9");
  const json as =
      replay_json(run.path + " --policy full,keyformer:budget=0.5,h2o:budget=0.9 --as mpt-7b --prompt 4k --output 4k");
  const auto read = [&](int i) { return as["points"][i]["kv_read_bytes"].get<double>(); };
  CHECK(read(0) / read(1) == Approx(3.0).epsilon(0.02));
  CHECK(read(0) / read(2) == Approx(1.67).epsilon(0.02));
  for (int i = 0; i < 3; ++i) {
    CHECK(as["points"][i]["recall_mean"] == own["points"][i]["recall_mean"]);
    CHECK(as["points"][i]["output_error"] == own["points"][i]["output_error"]);
  }
  CHECK(as["manifest"]["notes"].dump().find("recorded model") != std::string::npos);
}

TEST_CASE(
    "projected on another model, a budget in tokens holds as many tokens whatever the prompt, and never more than "
    "there are") {
  const Recorded run;
  const auto kept = [&](const std::string& lengths) {
    const json out = replay_json(run.path + " --policy h2o:budget=20,window:budget=20 --as mpt-7b " + lengths);
    CHECK(out["points"][0]["kept_tokens"] == out["points"][1]["kept_tokens"]);
    return out["points"][0]["kept_tokens"].get<double>();
  };
  CHECK(kept("--prompt 4k --output 1k") == 20);
  CHECK(kept("--prompt 64 --output 40") == 20);
  // From 8 tokens on: 9, 10, … 20 in the first twelve steps, then 20.
  CHECK(kept("--prompt 8 --output 24") == Approx((9 + 20) / 2.0 * 12 / 24 + 20.0 * 12 / 24));
}

TEST_CASE("projected on another model, a share of the prompt is rounded for that prompt") {
  const TemporaryFolder folder;
  const std::string seven = folder.file("seven.kvt");
  const std::string record = "record --model " + kDemo + " --ids '5 17 9 33 8 21 40' -n 6 --ignore-eos -q -o ";
  REQUIRE(run_program(record + seven).code == 0);
  const std::string as = " --as mpt-7b --prompt 4k --output 1k";
  const json out = replay_json(seven + " --policy h2o --budget 0.5,0.3,0.5@current" + as);
  CHECK(out["points"][0]["kept_tokens"] == 2048);  // half of 7 is 3, and 3/7 of 4096 were 1755
  CHECK(out["points"][1]["kept_tokens"] == 1228);
  // floor((4096 + i) / 2) for i = 1 … 1024
  CHECK(out["points"][2]["kept_tokens"] == 2048 + (511.0 * 512 + 512) / 1024);
  const json compressed = replay_json(seven + " --policy h2o:compression=0.7" + as);
  CHECK(compressed["points"][0]["kept_tokens"] == 1228);
}

TEST_CASE("a point, device or batch that is named twice is computed once") {
  const Recorded run;
  const std::string twice = " --policy h2o,window,h2o --budget 0.5,0.2,0.5 --device l40s,l40s --batch 2,2";
  const json out = replay_json(run.path + twice);
  CHECK(out["points"].size() == 4);
}

TEST_CASE("bytes that lie far apart have units of their own in the table") {
  const Imported trace;
  const Ran ran = replay_ok(trace.path + " --policy full --device h200 --batch 1,max");
  CHECK(ran.out.find(" KiB") != std::string::npos);
  CHECK(ran.out.find(" GiB") != std::string::npos);
}

TEST_CASE("the largest batch of a small cache is found, not a cap of the search") {
  const Imported trace;
  const json out = replay_json(trace.path + " --policy h2o --budget 16 --device h200,l40s --batch max");
  for (const json& p : out["points"]) CHECK(p["largest_batch"].get<std::uint64_t>() > 1U << 20);
  CHECK(out["points"][0]["largest_batch"] > out["points"][1]["largest_batch"]);
  CHECK(out["manifest"]["notes"].dump().find("holds nothing else") != std::string::npos);
}

TEST_CASE("the table fits 120 columns, with devices and long policies as well") {
  const Recorded run;
  for (const char* more :
       {"", " --as opt-175b --prompt 4k --output 4k --batch 1,max --device h100-sxm,rtx-4090,a100-pcie-80g"}) {
    const Ran ran =
        replay_ok(run.path + " --policy " + kAll + ",keyformer:noise=query:tau=1..2:recent=0.2 --budget 0.5,12" + more);
    INFO(ran.out);
    CHECK(widest_line(ran.out) <= 120);
    CHECK(ran.out.find("[1] keyformer:noise=query:tau=1..2:recent=0.2") != std::string::npos);
    CHECK(ran.out.find("0.5 = 50 % of the prompt") != std::string::npos);
  }
}

TEST_CASE("CSV has a header, a line for each point, and nothing else on stdout") {
  const Recorded run;
  const Ran ran = replay_ok(run.path + " --policy full,h2o --budget 0.2,0.5 --format csv");
  std::istringstream lines(ran.out);
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(line.starts_with("point,policy,budget,model,device,batch,kept_tokens,kv_resident_bytes"));
  const auto commas = std::count(line.begin(), line.end(), ',');
  int points = 0;
  while (std::getline(lines, line)) {
    ++points;
    CHECK(std::count(line.begin(), line.end(), ',') == commas);
  }
  CHECK(points == 3);
}

TEST_CASE("the JSON and the kept sets are the same bytes for 1, 2 and 5 threads") {
  const Recorded run;
  std::set<std::string> outputs;
  std::set<std::string> kept;
  for (const char* threads : {"1", "2", "5"}) {
    const std::string file = run.folder.file("kept.jsonl");
    outputs.insert(replay_ok(run.path + " --policy " + kAll + " --budget 0.3 --device h200 --format json --threads " +
                             threads + " --kept " + file + " --kept-steps all")
                       .out);
    kept.insert(slurp(file));
  }
  CHECK(outputs.size() == 1);
  CHECK(kept.size() == 1);
}

TEST_CASE("the file of --kept has a line for each storage head, layer and step that was asked for") {
  const Recorded run;
  const std::string file = run.folder.file("kept.jsonl");
  const auto lines_of = [&](const std::string& steps) {
    replay_ok(run.path + " --policy window:budget=10,h2o:budget=10:group=none --kept " + file + steps);
    return kvroof::test::json_lines_of(file);
  };
  const auto all = lines_of(" --kept-steps all");
  std::size_t windows = 0;
  for (const json& line : all) {
    const std::vector<std::string> keys = {"point", "policy", "sequence", "step", "layer", "head", "head_kind", "kept"};
    for (const std::string& key : keys) CHECK(line.contains(key));
    CHECK(line["kept"].size() == 10);
    CHECK(std::is_sorted(line["kept"].begin(), line["kept"].end()));
    const int newest = 63 + line["step"].get<int>();
    CHECK(line["kept"].back() == newest);
    if (line["policy"] != "window") continue;
    ++windows;
    CHECK(line["point"] == "window:budget=10");
    CHECK(line["kept"].front() == newest - 9);
  }
  const auto last = lines_of("");
  CHECK(windows * 2 >= all.size());
  CHECK(all.size() == last.size() * 41);
  for (const json& line : last) CHECK(line["step"] == 40);
  CHECK(lines_of(" --kept-steps 0..2").size() == last.size() * 3);
  CHECK(lines_of(" --kept-steps 0").front()["step"] == 0);
}

TEST_CASE("a range of kept steps ends with the recorded ones and says so, one that begins past them is refused") {
  const Recorded run;
  const std::string file = run.folder.file("kept.jsonl");
  const std::string words = run.path + " --policy window:budget=10 --kept " + file + " --kept-steps ";
  check_refused(words + "41..50", 2, "the trace has steps 0 to 40");
  CHECK_FALSE(std::filesystem::exists(file));
  const Ran clipped = replay_ok(words + "39..50");
  CHECK(clipped.err.find("note: --kept-steps 39..50: the trace has steps 0 to 40; written are 39..40") == 0);
  const std::string kept = slurp(file);
  CHECK(std::count(kept.begin(), kept.end(), '\n') == 2 * 6 * 4);
  CHECK(replay_ok(words + "39..40").err.find("note:") == std::string::npos);
}

TEST_CASE("a bound has no kept set after the prompt: asking for that alone is refused, and leaves no file") {
  const Recorded run;
  const std::string file = run.folder.file("kept.jsonl");
  check_refused(run.path + " --policy oracle:budget=10 --kept-steps 0 --kept " + file, 2, "no policy keeps a set");
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK_FALSE(has_part_file(run.folder.path()));
}

TEST_CASE("scissorhands without a choice within its budget says so once a point, on stderr and in the JSON") {
  const Recorded run;
  const Ran ran = replay_ok(run.path + " --policy scissorhands --budget 12,40 --format json");
  const std::string note = "scissorhands:budget=12: recent 10 and drop 6 leave no choice within a budget of 12";
  CHECK(ran.err.find("note: " + note) == 0);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  CHECK(json::parse(ran.out)["manifest"]["notes"].dump().find(note) != std::string::npos);
  // After the first compression while decoding, it is what a window of 10 to 12 tokens keeps: recent ones alone.
  const std::string file = run.folder.file("kept.jsonl");
  replay_ok(run.path + " --policy scissorhands:budget=12 --kept-steps all -q --kept " + file);
  std::istringstream lines(slurp(file));
  for (std::string line; std::getline(lines, line);) {
    const json set = json::parse(line);
    if (set["step"] == 0) continue;
    const int newest = 63 + set["step"].get<int>();
    CHECK(set["kept"].front() == newest + 1 - static_cast<int>(set["kept"].size()));
  }
}

TEST_CASE("imported tensors name no model: bytes cover attention alone, and the output says so") {
  const Imported trace;
  const json out = replay_json(trace.path + " --policy full,h2o --budget 16 --device h200");
  // One layer of two KV heads of 16 in fp32: 256 bytes a token.
  CHECK(out["points"][1]["kv_resident_bytes"] == 16 * 256);
  CHECK(out["points"][1]["kv_read_bytes"] == 17 * 256);
  CHECK(out["points"][1]["step_ms"].get<double>() > 0);
  CHECK(out["manifest"]["notes"].dump().find("attention alone") != std::string::npos);
  CHECK(replay_ok(trace.path + " --policy full").out.find("attention alone") != std::string::npos);
  CHECK(replay_ok(trace.path + " --policy full --as mpt-7b").out.find("attention alone") == std::string::npos);
}

TEST_CASE("a trace recorded under a policy: its evictions are reproduced, and quality is said to be of that run") {
  for (const char* policy : {"h2o:budget=0.4", "keyformer:budget=0.4", "scissorhands:budget=30:prompt=stream"}) {
    const Recorded run(policy);
    const json out = replay_json(run.path + " --policy full," + policy);
    CHECK(out["policies"][1]["reproduction"]["differences"] == 0);
    CHECK(out["policies"][1]["reproduction"]["holds"] == true);
    CHECK(out["policies"][1]["reproduction"]["decisions"].get<int>() > 0);
    CHECK(out["policies"][0].contains("reproduction") == false);
    CHECK(out["manifest"]["quality"]["relative_to"].get<std::string>().find(policy) != std::string::npos);
    CHECK(out["manifest"]["notes"].dump().find("not with a full-attention run") != std::string::npos);
  }
}

TEST_CASE("wrong policies, budgets, devices, models, batches and steps are refused by name") {
  const Recorded run;
  const std::string h2o = run.path + " --policy h2o";
  check_refused(run.path + " --policy h20 --budget 0.5", 2, "did you mean h2o?");
  check_refused(h2o, 2, "budget");
  check_refused(run.path + " --policy h2o:budget=0.5 --budget 0.5", 2, "budget");
  for (const char* budget : {"0", "-1", "1.5", "0.0", "many", "''", "0.5,,0.2"})
    check_refused(h2o + " --budget " + budget, 2, "budget");
  check_refused(h2o + " --budget 0.5 --device h201", 2, "did you mean");
  check_refused(h2o + " --budget 0.5 --as mpt-7", 2, "did you mean");
  check_refused(h2o + " --budget 0.5 --batch max", 2, "--device");
  check_refused(h2o + " --budget 0.5 --batch 0", 2, "--batch 0");
  check_refused(h2o + " --budget 0.5 --prompt 4k", 2, "--as");
  check_refused(h2o + " --budget 0.5 --kv int7", 2, "--kv int7");
  check_refused(h2o + " --budget 0.5 --kept-steps all", 2, "--kept");
  check_refused(h2o + " --budget 0.5 --kept " + run.folder.file("k") + " --kept-steps 5..2", 2, "--kept-steps");
  check_refused(h2o + " --budget 0.5 --kept " + run.folder.file("no/such/folder/k"), 1, "cannot be written");
  check_refused(run.folder.file("none.kvt") + " --policy full", 1, "none.kvt");
  CHECK_FALSE(std::filesystem::exists(run.folder.file("k")));
}

TEST_CASE("what an option asks for and the output cannot show is refused, not left out") {
  const Imported trace;
  const std::string words = trace.path + " --policy h2o --budget 16 ";
  check_refused(words + "--format csv --accounting", 2, "--accounting: --format csv holds one table");
  check_refused(words + "--format csv --closed-loop " + trace.path, 2, "--closed-loop: --format csv holds one table");
  check_refused(words + "--dtype f32", 2, "add --device or --as");
  CHECK(replay_ok(words + "--dtype f32 --device h200").code == 0);
}

TEST_CASE("a damaged trace ends with exit code 4 and no number") {
  const Recorded run;
  std::string segment;
  for (const auto& entry : std::filesystem::directory_iterator(run.path + "/segments")) segment = entry.path().string();
  std::fstream file(segment, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-5000, std::ios::end);
  const auto byte = static_cast<char>(file.peek() ^ 1);
  file.seekp(-5000, std::ios::end);
  file.put(byte);
  file.close();
  const std::string kept = run.folder.file("kept.jsonl");
  check_refused(run.path + " --policy full,h2o:budget=0.5 --kept " + kept, 4, "checksum");
  CHECK_FALSE(std::filesystem::exists(kept));
}
