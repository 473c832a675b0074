// `kvroof simulate` with a prefix cache: what it finds, under policies that evict and under those that do not.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::simulate;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

const std::string kLlama = "--model llama-3-8b --device h100-sxm --engine vllm ";

double first_token(const json& row) { return row["ttft_ms"]["mean"]["value"].get<double>(); }
double found(const json& row) { return row["prefix_cache"]["found_share"].get<double>(); }

// Three prompts of 4,096 tokens, a minute apart: the second begins with the first's half, the third is the first again.
std::string trace_in(const TemporaryFolder& folder) {
  const char* ids[] = {"0,1,2,3,4,5,6,7", "0,1,2,3,14,15,16,17", "0,1,2,3,4,5,6,7"};
  std::ofstream file(folder.file("mooncake.jsonl"));
  for (int i = 0; i < 3; ++i) {
    file << "{\"timestamp\": " << 60000 * i << ", \"input_length\": 4096, \"output_length\": 8, \"hash_ids\": ["
         << ids[i] << "]}\n";
  }
  return "--requests " + folder.file("mooncake.jsonl") + " ";
}

}  // namespace

TEST_CASE("prompts one by one find what earlier ones began with, as a trace says, and no more than memory keeps") {
  const TemporaryFolder folder;
  const std::string words = kLlama + trace_in(folder);
  // 0, 2048 and 4095 of 4096 tokens each.
  const double all = (2048.0 + 4095.0) / (3 * 4096.0);
  const json free = simulate(words + "--cached-prompt trace --per-request " + folder.file("r.csv"))["rows"][0];
  CHECK(found(free) == Approx(all));
  CHECK(free["prefix_cache"]["evicted_blocks"] == 0);
  // The mean is of the time that steps take: the first prompt's eight blocks stay while the second is served, then
  // twelve. A token of llama-3-8b is 2 · 32 layers · 8 heads · 128 · 2 bytes.
  const double block = 512.0 * 2 * 32 * 8 * 128 * 2;
  const auto idle = free["prefix_cache"]["mean_cached_bytes"].get<double>();
  CHECK(idle > 0);
  CHECK(idle < 12 * block);
  const std::string lines = slurp(folder.file("r.csv"));
  CHECK(lines.find(",preemptions,cached,") != std::string::npos);
  CHECK(lines.find(",0,2048,0,,,,,1,bf16,none,1,1,0,,1\n") != std::string::npos);
  CHECK(lines.find(",0,4095,0,,,,,1,bf16,none,1,1,0,,1\n") != std::string::npos);
  // So does a server that computes prompts alone, whose cache is the same.
  const json apart = simulate(words + "--cached-prompt trace --replicas 2 --prefill-replicas 1")["rows"][0];
  CHECK(apart["prefix_cache"]["found_share"] == free["prefix_cache"]["found_share"]);
  CHECK(first_token(apart) == Approx(first_token(free)));
  // Infinite memory finds no more of so few; none finds nothing, and takes what no cache takes.
  CHECK(simulate(words + "--cached-prompt trace --prefix-cache infinite")["rows"][0]["ttft_ms"] == free["ttft_ms"]);
  const json none = simulate(words + "--cached-prompt trace --prefix-cache none")["rows"][0];
  const json whole = simulate(words)["rows"][0];
  CHECK(none["prefix_cache"].is_null());
  CHECK(none["ttft_ms"] == whole["ttft_ms"]);
  CHECK(first_token(free) < 0.7 * first_token(whole));
  // Four blocks: of the first prompt its first four, which both others begin with.
  const json four = simulate(words + "--cached-prompt trace --prefix-cache 0.2500001")["rows"][0];
  CHECK(block * 4 / (1 << 30) == 0.25);
  CHECK(found(four) == Approx(2 * 2048.0 / (3 * 4096.0)));
  CHECK(four["prefix_cache"]["evicted_blocks"] == 3 * 4);
  // What goes to the host is found there, later than on the device and sooner than it is computed.
  const json host = simulate(words + "--cached-prompt trace --prefix-cache 0 --host-cache 10")["rows"][0];
  CHECK(found(host) == Approx(all));
  CHECK(host["prefix_cache"]["host_read_share"].get<double>() == Approx((2048.0 + 4096.0) / (3 * 4096.0)));
  // Twelve blocks over 64 GB/s, in three requests.
  CHECK(first_token(host) - first_token(free) == Approx(12 * block / 64e9 * 1e3 / 3).epsilon(1e-6));
}

TEST_CASE("what a board with a Grace CPU finds on the host comes as fast as that CPU's memory, not as PCIe") {
  const TemporaryFolder folder;
  const double blocks = 12 * 512.0 * 2 * 32 * 8 * 128 * 2;  // as above
  const std::string words = "--model llama-3-8b --engine vllm --cached-prompt trace " + trace_in(folder);
  const auto later = [&](const std::string& device) {
    const std::string on = words + "--device " + device + " --prefix-cache ";
    return first_token(simulate(on + "0 --host-cache 10")["rows"][0]) - first_token(simulate(on + "free")["rows"][0]);
  };
  CHECK(later("gh200-96g") == Approx(blocks / 384e9 * 1e3 / 3).epsilon(1e-6));
  CHECK(later("gh200-96g:host_gb_per_s=45") == Approx(blocks / 45e9 * 1e3 / 3).epsilon(1e-6));
}

TEST_CASE("under a policy that evicts from prompts nothing is found again, unless whole ones are kept beside") {
  const TemporaryFolder folder;
  const std::string words = kLlama + trace_in(folder) + "--cached-prompt trace --policy full,h2o,window --budget 0.5 ";
  const json lost = simulate(words);
  CHECK(found(lost["rows"][0]) > 0.4);
  CHECK(found(lost["rows"][1]) == 0);
  CHECK(found(lost["rows"][2]) == found(lost["rows"][0]));  // a window passes whole blocks, which stay
  CHECK(lost["rows"][1]["prefix_cache"]["shares"] == false);
  CHECK(lost["notes"].dump().find("h2o: of a prompt that is evicted from, rows are missing") != std::string::npos);
  const json kept = simulate(words + "--evicted-prefix copy");
  CHECK(found(kept["rows"][1]) == found(kept["rows"][0]));
  CHECK(kept["notes"].dump().find("h2o, window: whole prompts are kept") != std::string::npos);
}

TEST_CASE("a share of each prompt that a cache has is not there either where the policy evicts from prompts") {
  const std::string words = kLlama + "--prompt 8k --output 8 --rate 0.1 --count 20 --policy full,h2o --budget 0.5 ";
  const json whole = simulate(words), shared = simulate(words + "--cached-prompt 0.9");
  CHECK(first_token(shared["rows"][0]) < 0.5 * first_token(whole["rows"][0]));
  CHECK(first_token(shared["rows"][1]) == first_token(whole["rows"][1]));
  CHECK(shared["notes"].dump().find("h2o: of a prompt that is evicted from, rows are missing") != std::string::npos);
}

TEST_CASE("drawn prompts that begin alike find whole blocks of what they share") {
  const std::string words = kLlama + "--prompt 1k --output 4 --rate 0.1 --arrivals constant --count 40 --spread 0 ";
  // 500 tokens are 31 blocks of 16; one group: all but the first find them.
  const json row = simulate(words + "--shared-prefix 500")["rows"][0];
  CHECK(found(row) == Approx(39 * 31 * 16 / (40 * 1024.0)));
  // Of several groups, each is computed once: fewer find it, and more than those that are not the first of four.
  const double four = found(simulate(words + "--shared-prefix 500:4")["rows"][0]);
  CHECK(four == Approx(36 * 31 * 16 / (40 * 1024.0)));
}

TEST_CASE("a drawn prompt that is no longer than what its group shares has all but its last token in common") {
  const TemporaryFolder folder;
  const json all = simulate(kLlama + "--prompt 1k --spread 0.5 --output 4 --rate 0.1 --arrivals constant --count 200 "
                                     "--shared-prefix 960 --per-request " + folder.file("r.csv"));
  std::ifstream lines(folder.file("r.csv"));
  std::string line;
  std::getline(lines, line);
  double tokens = 0, cached = 0;
  int shorter = 0, longest = 0;  // whole blocks that came before
  while (std::getline(lines, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    const int prompt = std::stoi(cells[6]), whole = std::min(960, prompt - 1) / 16;
    INFO(line);
    CHECK(std::stoi(cells[13]) == 16 * std::min(whole, longest));
    longest = std::max(longest, whole);
    shorter += prompt <= 960 ? 1 : 0;
    tokens += prompt, cached += std::stoi(cells[13]);
  }
  CHECK(shorter > 50);
  CHECK(found(all["rows"][0]) == Approx(cached / tokens));
  CHECK(all["notes"].dump().find("no longer than what they share: " + std::to_string(shorter)) != std::string::npos);
}

TEST_CASE("a way to the host is asked of the devices that have a cache alone") {
  const std::string words = "--model llama-3-8b --rate 1 --count 4 --prompt 1k --output 4 --shared-prefix 512 "
                            "--host-cache 4 --tp 4 --replicas 2 --spread 0 ";
  const std::string apart = words + "--device tpu-v5p --prefill-device h100-sxm --prefill-replicas ";
  CHECK(found(simulate(apart + "1")["rows"][0]) == Approx(3 * 512 / (4 * 1024.0)));
  const auto problem = [](const std::string& more) {
    const Ran ran = run_program("simulate " + more);
    CHECK(ran.code == 2);
    return ran.err;
  };
  // Servers that do both have a cache, too.
  CHECK(problem(apart + "0,1").find("how fast tpu-v5p reads") != std::string::npos);
  CHECK(problem(apart + "auto --ttft-ms 1000").find("how fast tpu-v5p reads") != std::string::npos);
  const std::string other = words + "--device h100-sxm --prefill-device tpu-v5p --prefill-replicas 1";
  CHECK(problem(other).find("note: --prefill-device tpu-v5p:host_gb_per_s=32 says it") != std::string::npos);
}

TEST_CASE("what a prefix cache found is in the table and in CSV, and only where there is one") {
  const std::string words = "simulate " + kLlama + "--prompt 1k --output 4 --rate 1 --count 20 --spread 0 ";
  const Ran table = run_program(words + "--shared-prefix 512 --host-cache 8");
  CHECK(table.out.find("evicted") != std::string::npos);
  CHECK(table.out.find("a prefix cache that loses nothing would find 47.5 %") != std::string::npos);
  CHECK(run_program(words).out.find("evicted blocks") == std::string::npos);
  const std::string csv = run_program(words + "--shared-prefix 512 --format csv").out;
  CHECK(csv.find(",prefix_cache_found_share,") != std::string::npos);
}

TEST_CASE("what is said of a prefix cache is true of one that there is not, and of one that loses nothing") {
  const std::string words = kLlama + "--prompt 1k --output 4 --rate 1 --count 20 --shared-prefix 512 ";
  const std::string none = simulate(words + "--prefix-cache none")["notes"].dump();
  CHECK(none.find("every prompt is computed whole") != std::string::npos);
  CHECK(none.find("is in a prefix cache") == std::string::npos);
  const std::string infinite = simulate(words + "--prefix-cache infinite")["notes"].dump();
  CHECK(infinite.find("the servers' own lose nothing") != std::string::npos);
  CHECK(infinite.find("least recently used") == std::string::npos);
}

TEST_CASE("a file that says which prompts begin alike has the option named that finds it, where it is not given") {
  const TemporaryFolder folder;
  const std::string words = kLlama + trace_in(folder);
  CHECK(simulate(words)["notes"].dump().find("(hash_ids): --cached-prompt trace has prefix caches find that") !=
        std::string::npos);
  CHECK(simulate(words + "--cached-prompt trace")["notes"].dump().find("computed whole") == std::string::npos);
  std::ofstream(folder.file("plain.csv")) << "arrival_s,prompt,output\n0,100,4\n1,100,4\n";
  const std::string plain = simulate(kLlama + "--requests " + folder.file("plain.csv"))["notes"].dump();
  CHECK(plain.find("every prompt is computed whole; --cached-prompt says") != std::string::npos);
}

TEST_CASE("blocks leave a device in the order that --prefix-eviction says") {
  // A and B come, A again, C, A again; memory for two of them. By use B goes for C, by age A.
  const TemporaryFolder folder;
  const char* ids[] = {"0,1,2,3", "4,5,6,7", "0,1,2,3", "8,9,10,11", "0,1,2,3"};
  std::ofstream file(folder.file("turns.jsonl"));
  for (int i = 0; i < 5; ++i) {
    file << "{\"timestamp\": " << 60000 * i << ", \"input_length\": 2048, \"output_length\": 1, \"hash_ids\": ["
         << ids[i] << "]}\n";
  }
  file.close();
  // 4,096 tokens of 128 KiB.
  const std::string words = kLlama + "--requests " + folder.file("turns.jsonl") +
                            " --cached-prompt trace --prefix-cache 0.5 --prefix-eviction ";
  const json by_use = simulate(words + "lru");
  CHECK(found(by_use["rows"][0]) == Approx(2 * 2047.0 / 10240));
  const json by_age = simulate(words + "fifo");
  CHECK(found(by_age["rows"][0]) == Approx(2047.0 / 10240));
  CHECK(by_age["notes"].dump().find("evict first is the one that came first") != std::string::npos);
}

TEST_CASE("of groups that no request is of there are no blocks") {
  const std::string words = "--prompt 100k --output 1 --rate 1 --count 2 --shared-prefix 90k:1000000";
  CHECK(found(simulate(kLlama + words)["rows"][0]) == 0);
}

TEST_CASE("a prefix cache that cannot be is refused in a sentence") {
  const std::string drawn = kLlama + "--rate 1 --prompt 1k --output 4 ";
  const std::pair<std::string, std::string> wrong[] = {
      {drawn + "--prefix-cache 4", "--prefix-cache: nothing says what prompts share"},
      {drawn + "--host-cache 4", "--host-cache: nothing says what prompts share"},
      {drawn + "--shared-prefix 1k", "a prompt of 1024 tokens has no room for it and a token of its own"},
      {drawn + "--shared-prefix 0", "--shared-prefix 0"},
      {drawn + "--shared-prefix 16:0", "--shared-prefix groups 0"},
      {drawn + "--shared-prefix 16 --cached-prompt trace", "--shared-prefix is of drawn requests"},
      {drawn + "--shared-prefix 16 --cached-prompt 0.5", "--shared-prefix and --cached-prompt"},
      {drawn + "--shared-prefix 16 --prefix-cache most", "--prefix-cache most: expected a number from 0"},
      {drawn + "--router prefix", "--router: nothing says what prompts share"},
      {drawn + "--shared-prefix 16 --prefix-cache none --host-cache 4", "--prefix-cache none and --host-cache"},
      {drawn + "--shared-prefix 16 --prefix-cache none --router prefix", "--prefix-cache none and --router prefix"},
      {drawn + "--shared-prefix 16 --prefix-cache infinite --host-cache 4", "--prefix-cache infinite and --host-cache"},
      {drawn + "--shared-prefix 16 --prefix-cache infinite --prefix-eviction lfu", "never evicted goes in no order"},
      {drawn + "--shared-prefix 16 --prefix-cache none --prefix-eviction lfu", "cache none and --prefix-eviction"},
      {drawn + "--shared-prefix 16 --prefix-eviction belady", "a server does not know which requests come"},
      {drawn + "--shared-prefix 16 --prefix-eviction last", "--prefix-eviction: 'last' is no order of eviction"},
      {drawn + "--prefix-eviction lfu", "--prefix-eviction: nothing says what prompts share"},
      {kLlama + "--rate 1 --prompt 100k --output 4 --count 100000 --shared-prefix 90k:100000",
       "--shared-prefix 92160:100000: 576000000 blocks of 16 tokens; expected at most 33554432"},
      {drawn + "--shared-prefix 16 --router best", "--router best: expected least or prefix"},
      {drawn + "--shared-prefix 16 --evicted-prefix all", "--evicted-prefix all: expected none or copy"},
      {"--model llama-3-8b --device tpu-v5p --rate 1 --prompt 1k --output 4 --shared-prefix 16 --host-cache 4",
       "nothing says how fast tpu-v5p reads the host's memory"}};
  for (const auto& [words, what] : wrong) {
    const Ran ran = run_program("simulate " + words);
    INFO(words << "\n" << ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.find(what) != std::string::npos);
  }
}

TEST_CASE("prompts of a model whose layers have windows find what earlier ones began with") {
  const std::string words =
      "--engine vllm --device h200 --prompt 10k --output 8 --rate 0.5 --count 20 --shared-prefix 8k:2 ";
  const json all = simulate("--model qwen3-30b-a3b " + words)["rows"][0];
  const json windows = simulate("--model gpt-oss-120b " + words)["rows"][0];
  CHECK(found(all) > 0.5);
  CHECK(found(windows) == found(all));
}
