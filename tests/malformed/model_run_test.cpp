// What `run` and `record` say to bad input: one sentence, the right exit code, nothing on stdout.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

const std::string kSource = KVROOF_SOURCE_DIR;
const std::string kDemo = "--model " + kSource + "/models/demo ";
const std::string kGolden = "--model " + kSource + "/tests/golden/models/llama-gqa ";

void check_refused(const std::string& words, int code, const std::string& part) {
  const Ran ran = run_program(words);
  INFO(words << "\n" << ran.err);
  CHECK(ran.code == code);
  CHECK(ran.out.empty());
  CHECK(ran.err.starts_with("error: "));
  CHECK(ran.err.find(part) != std::string::npos);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') <= 5);
}

}  // namespace

TEST_CASE("run refuses a model that is not there") {
  check_refused("run --ids 5", 2, "--model DIR is missing");
  check_refused("run --model /nowhere/x --ids 5", 2, "--model /nowhere/x: no such folder");
  check_refused("run --model demmo --ids 5", 2, "did you mean demo?");
  check_refused("run --model " + kSource + "/README.md --ids 5", 2, "no such model folder");
  check_refused("run --model " + kSource + "/tests --ids 5", 2, "no config.json");
}

TEST_CASE("run refuses prompts that are empty, unreadable or not of this model") {
  check_refused("run " + kDemo, 2, "no prompt");
  check_refused("run " + kDemo + "--prompt ''", 2, "the prompt is empty");
  check_refused("run " + kDemo + "--prompt-file /dev/null", 2, "/dev/null");
  check_refused("run " + kDemo + "--prompt-file /nowhere.txt", 2, "/nowhere.txt");
  check_refused("run " + kDemo + "--prompt-file /tmp", 2, "a folder, expected a file");
  check_refused("run " + kDemo + "--ids ''", 2, "the prompt is empty");
  check_refused("run " + kDemo + "--ids '5 x'", 2, "expected token ids");
  check_refused("run " + kDemo + "--ids '5 99999999999999999999'", 2, "expected token ids");
  check_refused("run " + kDemo + "--ids '5 4096'", 2, "token 1 has id 4096, but the model knows ids 0 to 4095");
  check_refused("run " + kDemo + "--ids ' -1'", 2, "token 0 has id -1");
  check_refused("run " + kDemo + "--prompt-file " + kSource + "/models/demo/held-out.txt", 2,
                "but the context of the model is 4096");
  check_refused("run " + kGolden + "--prompt hello", 2, "no tokenizer.json");
}

TEST_CASE("run refuses a tokenizer of another model") {
  const TemporaryFolder folder;
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy_file(kSource + "/tests/golden/models/llama-gqa/" + name, folder.path() / name);
  }
  fs::copy_file(kSource + "/models/demo/tokenizer.json", folder.path() / "tokenizer.json");
  check_refused("run --model " + folder.path().string() + " --prompt 'the quick brown fox'", 2,
                "but the model knows ids 0 to 223");
}

TEST_CASE("run refuses policies and budgets that make no sense") {
  const std::string words = "run " + kDemo + "--ids '5 6 7' --policy ";
  check_refused(words + "oracle:budget=0.5", 2, "policy oracle looks ahead");
  check_refused(words + "h2o", 2, "needs a budget");
  check_refused(words + "h2o:budget=0", 2, "budget");
  check_refused(words + "h2o --budget=-1", 2, "budget");
  check_refused(words + "h2o --budget nan", 2, "nan");
  check_refused(words + "h2o --budget 1.5", 2, "at most 1");
  check_refused(words + "h2o:budget=0.5 --budget 0.5", 2, "budget");
  check_refused(words + "h2oo:budget=1", 2, "did you mean h2o?");
  check_refused(words + "h2o:budget=4,full", 2, "a run follows one");
  check_refused(words + "h2o --budget 4,8", 2, "give 2 points");
}

TEST_CASE("run refuses values out of range") {
  const std::string words = "run " + kDemo + "--ids 5 ";
  check_refused(words + "--max-tokens 0", 2, "--max-tokens 0");
  check_refused(words + "--max-tokens -5", 2, "--max-tokens -5");
  check_refused(words + "--batch 0", 2, "--batch 0");
  check_refused(words + "--batch 5000", 2, "--batch 5000");
  check_refused(words + "--temperature -1", 2, "--temperature -1");
  check_refused(words + "--temperature nan", 2, "--temperature nan");
  check_refused(words + "--temperature 1 --top-p 0", 2, "--top-p 0");
  check_refused(words + "--top-k 5", 2, "add --temperature");
  check_refused(words + "--backend refrence", 2, "did you mean reference?");
  check_refused(words + "--dtype int8", 2, "--dtype int8");
  check_refused(words + "--kv int3", 2, "--kv int3");
  check_refused(words + "--format csv", 2, "--format csv");
  check_refused(words + "--modell x", 2, "did you mean --model?");
}

TEST_CASE("products of the CUDA back end are not asked for in vain where the CPU runs the model") {
  const std::string run = "run " + kDemo + "--ids \"5\" -n 1 --linear ";
  for (const std::string linear : {"own", "cublaslt"}) {
    check_refused(run + linear, 2, "--linear " + linear + ": it is of the CUDA back end, but the fast back end runs");
  }
  CHECK(run_program(run + "auto").code == 0);
}

TEST_CASE("dumped logits are f32 of one prompt") {
  const TemporaryFolder folder;
  const std::string words = "run " + kDemo + "--ids 5 --dump-logits " + folder.file("l.safetensors") + " ";
  check_refused(words + "--dtype bf16", 2, "leave out --dtype bf16");
  check_refused(words + "--kv f16", 2, "leave out --kv f16");
  check_refused(words + "--ids 6", 2, "takes one prompt, not 2");
  CHECK_FALSE(fs::exists(folder.file("l.safetensors")));
  check_refused("run " + kDemo + "--ids 5 --max-tokens 1 --dump-logits /nowhere/l.safetensors", 1, "/nowhere/l");
}

TEST_CASE("record refuses a missing, existing or unwritable place for its trace") {
  const TemporaryFolder folder;
  const std::string words = "record " + kDemo + "--ids 5 --max-tokens 2 -q ";
  check_refused(words, 2, "-o run.kvt is missing");
  std::ofstream(folder.file("file.kvt")) << "x";
  check_refused(words + "-o " + folder.file("file.kvt"), 2, "exists already");
  CHECK(slurp(folder.file("file.kvt")) == "x");
  CHECK(run_program(words + "-o " + folder.file("run.kvt")).code == 0);
  check_refused(words + "-o " + folder.file("run.kvt"), 2, "exists already");
  check_refused(words + "-o /proc/run.kvt", 1, "/proc/run.kvt");
}

TEST_CASE("A signal that ends a recording leaves a sealed trace and a shell's exit code: Ctrl-C 130, SIGTERM 143") {
  const std::vector<std::pair<std::string, int>> signals = {{"INT", 130}, {"TERM", 143}, {"HUP", 129}};
  for (const auto& [signal, code] : signals) {
    INFO(signal);
    const TemporaryFolder folder;
    const std::string trace = folder.file("run.kvt");
    // Job control gives the program a process group of its own, in which SIGINT is not ignored.
    const std::string record = fmt::format("{} record {} --ids \"0 5 17\" --max-tokens 4000 --ignore-eos "
                                           "--backend reference -q -o {}", KVROOF_PROGRAM, kDemo, trace);
    const std::string command = fmt::format(
        "bash -c 'set -m; {0} >{1} & pid=$!; while [ ! -s {1} ]; do sleep 0.05; done; kill -{2} $pid; wait $pid' "
        "2>/dev/null",
        record, folder.file("text"), signal);
    const int status = std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == code);
    CHECK(fs::exists(trace + "/seal.json"));
    const auto manifest = nlohmann::json::parse(slurp(trace + "/manifest.json"));
    CHECK(manifest["sequences"][0]["stop_reason"] == "interrupted");
    CHECK(manifest["sequences"][0]["tokens"] > 3);
  }
}

TEST_CASE("a trace that was interrupted among its prompts is replayed as far as it goes") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const std::string prompt = kSource + "/models/demo/prompts/sqlite-rbu.txt";
  const std::string record = fmt::format("{} record {} --prompt-file {} --batch 200 --backend reference -q -o {}",
                                         KVROOF_PROGRAM, kDemo, prompt, trace);
  const std::string command = fmt::format(
      "bash -c 'set -m; {} >{} & pid=$!; while [ ! -e {}/segments/00000.safetensors ]; do sleep 0.05; done; "
      "kill -INT $pid; wait $pid' 2>/dev/null",
      record, folder.file("text"), trace);
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  const auto manifest = nlohmann::json::parse(slurp(trace + "/manifest.json"));
  CHECK(manifest["sequences"][0]["tokens"] == manifest["sequences"][0]["prompt"]);
  CHECK(manifest["sequences"][199]["tokens"] == 0);
  const Ran replayed = run_program("replay " + trace + " --policy h2o:budget=0.5 --format json -q");
  INFO(replayed.err);
  CHECK(replayed.code == 0);
}
