// `kvroof prefixes`: what caches of several sizes find of a trace, in the order in which they evict.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

// Three prompts of 4,096 tokens: the second begins with the first's half, the third is the first again.
std::string trace_in(const TemporaryFolder& folder) {
  const char* ids[] = {"0,1,2,3,4,5,6,7", "0,1,2,3,14,15,16,17", "0,1,2,3,4,5,6,7"};
  std::ofstream file(folder.file("mooncake.jsonl"));
  for (int i = 0; i < 3; ++i) {
    file << "{\"timestamp\": " << 60000 * i << ", \"input_length\": 4096, \"output_length\": 8, \"hash_ids\": ["
         << ids[i] << "]}\n";
  }
  return folder.file("mooncake.jsonl");
}

}  // namespace

TEST_CASE("prefixes counts what a cache of each size finds under each order of eviction") {
  const TemporaryFolder folder;
  const std::string words = "prefixes " + trace_in(folder) + " --capacity 4k,11k --eviction lru,belady";
  const Ran ran = run_program(words + " --format json");
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  const json answer = json::parse(ran.out);
  CHECK(answer["prompt_tokens"] == 3 * 4096);
  CHECK(answer["distinct_tokens"] == 12 * 512);
  // All: 0, 2048 and 4095. In eight blocks the second prompt's own four push out four of the first's, which come
  // again; who foresees that gives up the second's.
  CHECK(answer["most_found_share"].get<double>() == Approx(6143.0 / 12288));
  const json& rows = answer["rows"];
  REQUIRE(rows.size() == 6);
  CHECK(rows[0]["eviction"] == "lru");
  CHECK(rows[0]["capacity_tokens"] == 4096);
  CHECK(rows[0]["found_tokens"] == 2 * 2048);
  CHECK(rows[0]["requests_found"] == 2);
  CHECK(rows[0]["evicted_blocks"] == 4 + 4);
  CHECK(rows[1]["eviction"] == "belady");
  CHECK(rows[1]["found_tokens"] == 6143);
  CHECK(rows[1]["evicted_blocks"] == 4);
  CHECK(rows[2]["found_tokens"] == 6143);
  CHECK(rows[4]["capacity_tokens"].is_null());
  // Nine tenths of 6,143 need seven blocks of the third prompt, and so eleven in all.
  CHECK(answer["knee_tokens"] == 11 * 512);
  CHECK(run_program(words + " --format json --threads 1").out == ran.out);
  const std::string table = run_program(words).out;
  CHECK(table.find("4096  33.3 %  50.0 %\n") != std::string::npos);
  CHECK(table.find("infinite  50.0 %  50.0 %\n") != std::string::npos);
  CHECK(run_program(words + " --format csv").out.find("\nbelady,4096,,6143,0.49991") != std::string::npos);
}

TEST_CASE("the size that prefixes names is one of the trace, whatever is asked for, and its own start at a block") {
  const TemporaryFolder folder;
  const std::string words = "prefixes " + trace_in(folder) + " --eviction lru --format json";
  for (const char* sizes : {"", " --capacity 1", " --capacity 5000,5700", " --capacity 5631"}) {
    INFO(sizes);
    CHECK(json::parse(run_program(words + sizes).out)["knee_tokens"] == 11 * 512);
  }
  // 12 blocks of 512 in all: halves of 8,192.
  const json rows = json::parse(run_program(words).out)["rows"];
  REQUIRE(rows.size() == 5);
  for (int i = 0; i < 4; ++i) CHECK(rows[i]["capacity_tokens"] == 512 << i);
}

TEST_CASE("prefixes counts prompts that have no answer, and reads standard input") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("failed.jsonl");
  std::ofstream(trace) << R"({"timestamp": 0, "input_length": 1024, "output_length": 0, "hash_ids": [1, 2]})" "\n"
                       << R"({"timestamp": 9, "input_length": 1024, "output_length": 4, "hash_ids": [1, 2]})" "\n"
                       << R"({"timestamp": 9, "input_length": 0, "output_length": 4, "hash_ids": []})" "\n";
  const json answer = json::parse(run_program("prefixes " + trace + " --format json").out);
  CHECK(answer["requests"] == 2);
  CHECK(answer["requests_without_answer"] == 1);
  CHECK(answer["requests_left_out"] == 1);
  CHECK(answer["most_found_share"].get<double>() == Approx(1023.0 / 2048));
  const std::string table = run_program("prefixes " + trace).out;
  CHECK(table.find("1 request without an answer is counted") != std::string::npos);
  CHECK(table.find("1 request without a prompt is left out") != std::string::npos);
  const Ran piped = run_program("prefixes - --format json)", "(cat " + trace + " | " + KVROOF_PROGRAM);
  REQUIRE(piped.code == 0);
  json expected = answer;
  expected["answer"] = "standard input" + answer["answer"].get<std::string>().substr(trace.size());
  CHECK(json::parse(piped.out) == expected);
}

TEST_CASE("prefixes says sizes in GiB of a model's cache, and takes them so") {
  const TemporaryFolder folder;
  // A token of llama-3-8b is 2 · 32 layers · 8 heads · 128 · 2 bytes, 128 KiB; in fp8 half of that.
  const std::string words = "prefixes " + trace_in(folder) + " --model llama-3-8b --gib 0.5 ";
  const Ran ran = run_program(words + "--eviction lru --svg " + folder.file("found.svg"));
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK(ran.out.find("4096  0.500  33.3 %\n") != std::string::npos);
  CHECK(ran.out.find("GiB of llama-3-8b in bf16)") != std::string::npos);
  CHECK(slurp(folder.file("found.svg")).find("GiB of llama-3-8b in bf16") != std::string::npos);
  const json answer = json::parse(run_program(words + "--kv fp8 --format json").out);
  CHECK(answer["rows"][0]["capacity_tokens"] == 8192);
}

TEST_CASE("prefixes refuses what it cannot answer") {
  const TemporaryFolder folder;
  const std::string trace = trace_in(folder);
  const auto refused = [](const std::string& words, const std::string& why) {
    const Ran ran = run_program("prefixes " + words);
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.find(why) != std::string::npos);
  };
  refused(trace + " --eviction lruu", "'lruu' is no order of eviction: expected lru | fifo");
  refused(trace + " --gib 4", "--gib: what a token takes is said by --model NAME");
  refused(trace + " --kv fp8", "--kv: whose cache is said by --model NAME");
  refused(trace + " --capacity 1k --gib 4 --model llama-3-8b", "two ways to say how large caches are");
  refused(folder.file("none.jsonl"), "none.jsonl");
  std::ofstream(folder.file("packed.jsonl.gz")) << "\x1f\x8b\x08 and so on";
  refused(folder.file("packed.jsonl.gz"), "expected CSV or JSON lines, found bytes 0 and 1 of gzip");
  std::ofstream(folder.file("plain.csv")) << "arrival_s,prompt,output\n0,10,5\n";
  refused(folder.file("plain.csv"), "nothing says which prompts begin alike");
}
