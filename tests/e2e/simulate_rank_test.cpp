// `kvroof simulate` over many servers: which is best, and what is said of them together.
#include "tests/support/program_json.hpp"

using kvroof::test::has_note;
using kvroof::test::run_program;
using kvroof::test::simulate;
using nlohmann::json;

namespace {

json rows_of(const std::string& words) { return simulate(words)["rows"]; }
bool says(const json& text, const std::string& what) { return text.get<std::string>().find(what) != std::string::npos; }

std::size_t times(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

const std::string kFew =
    "--model llama-3-8b --engine vllm --prompt 2k --output 64 --count 150 --tpot-ms 60 --replicas auto ";
const std::string kSlow = kFew + "--rate 20 --ttft-ms 800 ";

}  // namespace

TEST_CASE("servers that are looked for stand in the order of what they cost an hour, those that miss the goals last") {
  const json rows = rows_of(kSlow + "--device l40s,h100-sxm,t4,h200 --usd-per-hour l40s=1,h100-sxm=2,h200=9,t4=1");
  REQUIRE(rows.size() == 4);
  double before = 0;
  for (const json& row : rows) {
    if (!row["meets_goals"].get<bool>()) continue;
    const double usd = row["usd_per_hour"]["high"];
    const double each = row["device"] == "l40s" ? 1 : row["device"] == "h200" ? 9 : 2;
    CHECK(usd == each * row["devices"].get<int>());
    CHECK(row["devices"] == row["replicas"]);
    CHECK(usd >= before);
    before = usd;
  }
  CHECK(before > 0);
  CHECK(rows.back()["device"] == "t4");
  CHECK(rows.back()["usd_per_hour"].is_null());
}

TEST_CASE("by device the fewest devices come first, by usd the cheapest") {
  const std::string words = kSlow + "--device l40s,h200 --usd-per-hour l40s=0.1,h200=9 ";
  const json answer = simulate(words), cheapest = answer["rows"], fewest = rows_of(words + "--by device");
  CHECK(cheapest[0]["device"] == "l40s");
  CHECK(fewest[0]["device"] == "h200");
  CHECK(fewest[0]["devices"].get<int>() < cheapest[0]["devices"].get<int>());
  CHECK(rows_of(words + "--by usd") == cheapest);
  CHECK(says(answer["answer"], "of l40s under full have 90 % of the requests in a burst of 150, of a rate that lasts "
                               "fewer, in time"));
  CHECK(says(answer["answer"], "; next h200 under full (1 device, $9.00 an hour)."));
}

TEST_CASE("of highest rates the highest for each device comes first, or with --by usd the highest for the money") {
  const std::string words = "--model llama-3-8b --engine vllm --prompt 2k --output 64 --count 150 --rate max --ttft-ms "
                            "800 --device l40s,h200 --usd-per-hour l40s=0.1,h200=9 ";
  CHECK(rows_of(words)[0]["device"] == "h200");
  CHECK(rows_of(words + "--by usd")[0]["device"] == "l40s");
}

TEST_CASE("servers of one price are told apart by the share of requests that they have in time") {
  const json rows = rows_of(kFew + "--device h100-sxm,h200 --usd-per-hour 1 --rate 60 --ttft-ms 300");
  CHECK(rows[0]["device"] == "h200");
  REQUIRE(rows[0]["devices"] == rows[1]["devices"]);
  CHECK(rows[0]["attained"]["value"].get<double>() > rows[1]["attained"]["value"].get<double>());
}

TEST_CASE("under a policy that takes fewer servers, how many full attention takes is said") {
  const json answer = simulate("--model llama-3-8b --device l40s --engine vllm --prompt 8k --output 1k --count 200 "
                                "--rate 2 --replicas auto --tpot-ms 45 --ttft-ms 20000 --policy full,window --budget "
                                "0.1");
  const json rows = answer["rows"];
  REQUIRE(rows[0]["policy"] == "window:budget=0.1");
  REQUIRE(rows[1]["replicas"].get<int>() > rows[0]["replicas"].get<int>());
  CHECK(says(answer["answer"], "; under full it takes " + std::to_string(rows[1]["replicas"].get<int>()) + " of them"));
}

TEST_CASE("the first table has every row, the others and notes the best, and what is said of several is said once") {
  const std::string words = "--model llama-3-8b --engine vllm --prompt 2k --output 64 --count 100 --rate 20 --ttft-ms "
                            "2000 --replicas auto --device a100-80g,h100-sxm,h200 --tp 1,2 --dtype bf16,fp8 ";
  const std::string out = run_program("simulate " + words + "--top 2").out;
  const json rows = rows_of(words);
  REQUIRE(rows.size() == 12);
  CHECK(out.find("are of the best 2 (--top)") != std::string::npos);
  CHECK(times(out, "\nh200  ") + times(out, "\nh200 x 2  ") + times(out, " of h200  ") + times(out, " of h200 x 2  ") >=
        4);
  const std::string all = run_program("simulate " + words).out, edge = "is waited for";
  CHECK(times(all, edge) <= 1);
  CHECK(times(out, "full, ") < times(all, "full, "));
  CHECK(run_program("simulate " + words + "--top 12").out.find("(--top)") == std::string::npos);
}

TEST_CASE("every GPU of the catalog is asked with --device all, but for those that the engine does not run on") {
  const std::string words = "--model llama-3-8b --engine tensorrt-llm --prompt 1k --output 8 --count 20 --rate 1 "
                            "--device all ";
  const json answer = simulate(words);
  CHECK(answer["rows"].size() > 20);
  CHECK(has_note(answer, "mi300x"));
  for (const json& row : answer["rows"]) CHECK(row["device"] != "mi300x");
}

TEST_CASE("what ranks must be known, and money needs prices") {
  const auto error = [](const std::string& words) { return run_program("simulate " + words).err; };
  CHECK(says(error(kSlow + "--device h100-sxm --by price"), "--by price: expected device (what is served on each) or"));
  CHECK(says(error(kSlow + "--device a10g --by usd"), "--by usd: no --device has a price"));
}
