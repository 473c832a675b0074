// `kvroof models`, `kvroof devices` and `kvroof engines` as a user meets them.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using nlohmann::json;

TEST_CASE("models show prints the KV bytes of a batch and a context") {
  const Ran table = run_program("models show opt-175b --batch 128 --context 2k --kv f16");
  CHECK(table.code == 0);
  CHECK(table.out.find("1152.0") != std::string::npos);
  const Ran rows = run_program("models show mpt-7b --batch 4 --context 512,16k --kv f16 --format json");
  REQUIRE(rows.code == 0);
  const json points = json::parse(rows.out);
  REQUIRE(points.size() == 2);
  CHECK(points[0]["kv_bytes"] == std::uint64_t{1} << 30);
  CHECK(points[1]["kv_bytes"] == std::uint64_t{32} << 30);
  CHECK(points[0]["parameters"] == 6649286656);
}

TEST_CASE("models show reads a model folder") {
  const Ran ran = run_program(std::string("models show ") + KVROOF_SOURCE_DIR + "/models/demo --format json");
  REQUIRE(ran.code == 0);
  CHECK(json::parse(ran.out)[0]["parameters"] == 5868800);  // models/demo/PROVENANCE.md
}

TEST_CASE("the cache of models show has the type of the weights as asked for, unless another is") {
  const auto row_of = [](const std::string& words) {
    return json::parse(run_program("models show llama-3-8b --context 1 --format json " + words).out)[0];
  };
  // 32 layers, 8 KV heads of 128, k and v.
  CHECK(row_of("")["kv_bytes"] == 32 * 8 * 128 * 2 * 2);
  CHECK(row_of("--dtype f32")["kv_bytes"] == 32 * 8 * 128 * 2 * 4);
  CHECK(row_of("--dtype f32")["kv_type"] == "f32");
  CHECK(row_of("--dtype f32 --kv f16")["kv_type"] == "f16");
}

TEST_CASE("models show says which rows stand for several tokens") {
  const Ran rows = run_program("models show deepseek-v4-flash --context 4k --format json");
  REQUIRE(rows.code == 0);
  const json row = json::parse(rows.out)[0];
  // 43 windows of 128 rows; in 21 layers a row and a key of 132 bytes for 4 tokens, in 20 a row for 128.
  CHECK(row["kv_bytes"] == 43 * 128 * 1024 + 21 * 1024 * (1024 + 132) + 20 * 32 * 1024);
  CHECK(row["compressed_layers"] == 41);
  CHECK(row["weight_type"] == "fp8-mxfp4");
  const Ran table = run_program("models show deepseek-v4-flash");
  CHECK(table.out.find("one for 4 tokens in 21 layers, one for 128 tokens in 20 layers") != std::string::npos);
  CHECK(table.out.find("running attention to rows that each stand for several tokens") != std::string::npos);
}

TEST_CASE("models lists every shape and devices every device") {
  CHECK(run_program("models --format csv").out.find("\nllama-65b,llama,80,8192,64,64,128,") != std::string::npos);
  const Ran devices = run_program("devices");
  for (const char* name : {"h200", "h100-sxm", "a100-80g", "l40s", "rtx-4090"}) {
    CHECK(devices.out.find("\n" + std::string(name) + " ") != std::string::npos);
  }
}

TEST_CASE("a file of the catalog that says another name than its own is refused, of every kind") {
  const kvroof::test::TemporaryFolder folder;
  const std::filesystem::path home = folder.file("home");
  const std::filesystem::path source = KVROOF_SOURCE_DIR;
  std::filesystem::create_directories(home);
  std::filesystem::copy(source / "catalog", home / "catalog", std::filesystem::copy_options::recursive);
  const struct {
    const char *folder, *file, *words;
  } kinds[] = {{"devices", "h200", "devices"}, {"models", "gpt2", "models"}, {"engines", "vllm", "engines"}};
  for (const auto& kind : kinds) {
    const auto copy = home / "catalog" / kind.folder / "zz.yaml";
    std::filesystem::copy_file(source / "catalog" / kind.folder / (std::string(kind.file) + ".yaml"), copy);
    const Ran ran = run_program(kind.words, "KVROOF_HOME=" + home.string() + " " + KVROOF_PROGRAM);
    CHECK(ran.code == 2);
    CHECK(ran.err.find("its name is '" + std::string(kind.file) + "', expected 'zz'") != std::string::npos);
    std::filesystem::remove(copy);
  }
}

TEST_CASE("engines lists every profile, and show says what each version has other than the one after it") {
  const Ran list = run_program("engines --format json");
  REQUIRE(list.code == 0);
  const json engines = json::parse(list.out);
  const auto vllm = std::find_if(engines.begin(), engines.end(), [](const json& e) { return e["engine"] == "vllm"; });
  REQUIRE(vllm != engines.end());
  CHECK((*vllm)["versions"] > 5);
  // Before 0.8 V1 was not the default: its host took a millisecond a step, and prompts went first.
  const auto value = [](const std::string& words, const std::string& key, const std::string& holds) {
    for (const json& fact : json::parse(run_program("engines show " + words + " --format json").out)) {
      if (fact["key"] == key && fact["holds"] == holds) return fact["value"].get<std::string>();
    }
    return std::string("not there");
  };
  CHECK(value("vllm", "step_us", "today") == "151");
  CHECK(value("vllm", "step_us", "before 0.8.0 or 2025-03-18") == "1000");
  CHECK(value("vllm", "graph_sizes", "today") == "1, 2, 4, 8 to 256 by 8, 272 to 512 by 16");
  CHECK(value("vllm@0.6.3", "step_us", "0.6.3") == "1000");
  CHECK(value("vllm@0.6.3", "step_us", "before 0.8.0 or 2025-03-18") == "not there");
  CHECK(value("vllm@0.6.3", "step_us", "on CDNA3") == "6000");
  CHECK(value("tensorrt-llm", "small_cache_with", "today").starts_with("fp8, "));
  CHECK(value("llama-cpp", "graphs", "on Volta") == "false");
  CHECK(run_program("engines show vlm").err.find("did you mean vllm?") != std::string::npos);
  CHECK(run_program("engines vllm").err.find("did you mean `engines show vllm`?") != std::string::npos);
  CHECK(run_program("engines show").code == 2);
}

TEST_CASE("what an engine was on other boards is printed where it is other than everywhere, and once") {
  using Facts = std::map<std::string, std::string>;
  const auto rows_of = [](const std::string& words) {
    return json::parse(run_program("engines show " + words + " --format json").out);
  };
  const auto value_of = [](const json& row) {
    return row["value"].is_null() ? std::string() : row["value"].get<std::string>();
  };
  const json rows = rows_of("vllm");
  CHECK(rows.size() < 120);
  // Reads the rows as a person does, from today back: a row of the board holds there, else one of all boards.
  const auto read = [&](const std::string& board, const std::string& until) {
    Facts facts;
    std::vector<std::string> times;
    for (const json& row : rows) {
      const std::string holds = row["holds"], time = holds.substr(0, holds.find(", on "));
      if (holds == "today") facts[row["key"].get<std::string>()] = value_of(row);
      if (time.starts_with("before ") && std::find(times.begin(), times.end(), time) == times.end()) {
        times.push_back(time);
      }
    }
    const auto take = [&](const std::string& when) {
      for (const json& row : rows) {
        if (row["holds"] == when) facts[row["key"].get<std::string>()] = value_of(row);
      }
    };
    take("on " + board);
    for (const std::string& time : times) {
      if (time == "before 0.24.0") continue;  // of Blackwell alone, and listed behind the others
      take(time);
      take(time + ", on " + board);
      if (time.starts_with("before " + until)) break;
    }
    return facts;
  };
  for (const auto& [version, until] : {std::pair("0.10.0", "0.11.0"), {"0.7.3", "0.8.0"}, {"0.5.0", "0.6.0"}}) {
    const json then = rows_of(std::string("vllm@") + version);
    for (const std::string board : {"CDNA3", "CDNA3 from 70 GiB", "CDNA4", "Hopper", "Hopper from 70 GiB"}) {
      const Facts facts = read(board, until);
      Facts expected;
      for (const json& row : then) {
        if (row["holds"] == version) expected[row["key"].get<std::string>()] = value_of(row);
      }
      for (const json& row : then) {
        if (row["holds"] == "on " + board) expected[row["key"].get<std::string>()] = value_of(row);
      }
      INFO(version << " on " << board);
      for (const auto& [key, value] : expected) CHECK(facts.at(key) == value);
    }
  }
}

TEST_CASE("devices show gives each number a source and says whether it was printed or measured") {
  const Ran ran = run_program("devices show h100-sxm --format json");
  REQUIRE(ran.code == 0);
  const json facts = json::parse(ran.out);
  CHECK(facts.size() > 15);
  for (const json& fact : facts) {
    CHECK(fact["value"].is_number());
    CHECK(fact["source"].get<std::string>().size() > 10);
    CHECK(fact["provenance"].get<std::string>().size() > 3);
  }
}

TEST_CASE("an unknown model or device is answered with the nearest name") {
  CHECK(run_program("models show opt-13").err.find("error: unknown model 'opt-13'; did you mean opt-13b?") == 0);
  CHECK(run_program("devices show h100").err.find("did you mean h100-nvl or h100-pcie or h100-sxm?") !=
        std::string::npos);
  CHECK(run_program("models shw").code == 2);
  CHECK(run_program("devices show").code == 2);
  CHECK(run_program("models show mpt-7b --kv int9").code == 2);
  CHECK(run_program("models show mpt-7b --context 0").code == 2);
}
