// Files that a command line names: none is written over another, over what is read, or half.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::has_part_file;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;

namespace {

const std::string kSimulate = "simulate --model llama-3-8b --device h100-sxm --rate 1 --count 4 --output 4 ";
const std::string kCompare = "compare --model llama-3-8b --device h100-sxm ";

void check_refused(const std::string& words, int code, const std::string& expected) {
  const Ran ran = run_program(words);
  INFO(words << "\n" << ran.err);
  CHECK(ran.code == code);
  CHECK(ran.out.empty());
  CHECK(ran.err.starts_with("error: "));
  CHECK(ran.err.find(expected) != std::string::npos);
}

bool is_empty(const TemporaryFolder& folder) { return std::filesystem::is_empty(folder.path()); }

}  // namespace

TEST_CASE("two results of one name are refused before anything is written") {
  const TemporaryFolder folder;
  const std::string file = folder.file("r.csv"), again = folder.path().string() + "/./r.csv";
  check_refused(kSimulate + "--per-request " + file + " --svg " + file, 2,
                "--svg and --per-request " + file + ": one would overwrite the other");
  check_refused(kSimulate + "--per-request " + file + " -o " + again, 2, "--out and --per-request");
  check_refused(kCompare + "--svg " + again + " -o " + file, 2, "--out and --svg");
  check_refused("eval --model demo --text x --details " + file + " -o " + file, 2, "--out and --details");
  CHECK(is_empty(folder));
  const std::string device = folder.file("null");  // which takes any number of texts
  std::filesystem::create_symlink("/dev/null", device);
  CHECK(run_program(kCompare + "--svg " + device + " -o " + device).code == 0);
  CHECK(std::filesystem::is_symlink(device));
}

TEST_CASE("a result does not replace a file that is read for it") {
  const TemporaryFolder folder;
  const std::string file = folder.file("in");
  std::ofstream(file) << "arrival_s,prompt,output\n0,8,2\n";
  const std::string trace = "simulate --model llama-3-8b --device h100-sxm --requests " + file;
  check_refused(trace + " --per-request " + file, 2, "would replace the file of --requests, which is read");
  check_refused("tokenize --model demo --jsonl " + file + " -o " + file, 2, "the file of --jsonl");
  check_refused("eval --model demo --text " + file + " -o " + file, 2, "the file of --text");
  check_refused("validate --rows " + file + " -o " + file, 2, "the file of --rows");
  check_refused("models show " + file + " -o " + file, 2, "would replace " + file);
  const std::string model = "--model llama-3-8b --device h100-sxm ";
  check_refused("plan --model llama-3-8b --device " + file + ":l2_mib=2 -o " + file, 2, "the file of --device");
  check_refused("compare --model " + file + " --device h100-sxm --svg " + file, 2, "the file of --model");
  check_refused("plan " + model + "--speculate 2:0.5 --draft " + file + " -o " + file, 2, "the file of --draft");
  const std::string ids = "run --model demo --ids '5 6' --max-tokens 2 ";
  check_refused("run --model demo --prompt hi --prompt-file " + file + " -o " + file, 2, "the file of --prompt-file");
  check_refused("run --model demo --prompt-file " + file + " --dump-logits " + file, 2, "the file of --prompt-file");
  check_refused("run --random-weights " + file + " --ids '5' -o " + file, 2, "the file of --random-weights");
  check_refused(ids + "--policy duo:heads=" + file + " -o " + file, 2, "the file of --policy");
  CHECK(slurp(file) == "arrival_s,prompt,output\n0,8,2\n");
  CHECK(run_program(trace + " -o " + folder.file("out")).code == 0);
}

TEST_CASE("a result does not replace a file of a trace or a model that is read, and may lie beside them") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), manifest = trace + "/manifest.json";
  REQUIRE(run_program("record --model demo --ids '5 17 9' --max-tokens 3 --ignore-eos -o " + trace).code == 0);
  const std::string before = slurp(manifest);
  for (const std::string part : {"/manifest.json", "/seal.json", "/../run.kvt/segments/00000.safetensors"}) {
    check_refused("replay " + trace + " --kept " + trace + part, 2, "would replace a file of " + trace);
  }
  check_refused("inspect " + trace + " -o " + manifest, 2, "would replace a file of " + trace);
  const std::string plan = "plan --model llama-3-8b --device h100-sxm --trace " + trace;
  check_refused(plan + " -o " + manifest, 2, "would replace a file of " + trace);
  CHECK(slurp(manifest) == before);
  CHECK(run_program("inspect --verify " + trace).code == 0);
  const std::string beside = "inspect " + trace + " -o " + trace + "/note.txt";
  for (int twice = 0; twice < 2; ++twice) CHECK(run_program(beside).code == 0);

  const std::string model = folder.file("model"), config = model + "/config.json";
  std::filesystem::create_directory(model);
  std::filesystem::copy_file(std::string(KVROOF_SOURCE_DIR) + "/models/demo/config.json", config);
  check_refused("models show " + model + " -o " + config, 2, "would replace a file of " + model);
  check_refused("plan --model " + model + " --device h100-sxm -o " + config, 2, "would replace a file of " + model);
}

TEST_CASE("a result does not replace tensors of a model or of kept rows, under any name that they have") {
  const TemporaryFolder folder;
  for (const std::string name : {"model-00002-of-00002.safetensors", "s0.l0.safetensors"}) {
    const std::string shard = folder.file(name);
    std::ofstream(shard) << "tensors";
    const std::string home = folder.path().string();
    check_refused("run --model " + home + " --ids 5 --dump-logits " + shard, 2, "would replace a file of " + home);
    check_refused("replay run.kvt --row-cache " + home + " -o " + shard, 2, "would replace a file of " + home);
    CHECK(slurp(shard) == "tensors");
  }
}

TEST_CASE("a result goes to standard output under the name -, which nothing beside it and no folder can have") {
  const TemporaryFolder folder;
  const std::string words = "models show llama-3-8b --format json";
  const Ran plain = run_program(words), dash = run_program(words + " -o -");
  CHECK(dash.code == 0);
  CHECK(dash.out == plain.out);
  check_refused("record --model demo --ids '5' --max-tokens 1 -o -", 2,
                "--out -: expected a name, for this is the trace, a new folder");
  check_refused(kCompare + "--svg -", 2, "--svg -");
  CHECK_FALSE(std::filesystem::exists("-"));
}

TEST_CASE("a recording whose text nobody reads any more, and one whose terminal goes, end sealed") {
  const TemporaryFolder folder;
  const std::string record =
      std::string(KVROOF_PROGRAM) + " record -q --model demo --ids '5 17 9' --ignore-eos --max-tokens ";
  std::ofstream(folder.file("run.sh")) << record << "60 -o " << folder.file("a.kvt") << " | head -c 1 >/dev/null\n"
      << record << "4000 -o " << folder.file("b.kvt") << " >/dev/null & p=$!\nwhile [ ! -e " << folder.file("b.kvt")
      << "/manifest.json ]; do sleep 0.01; done\nkill -HUP $p\nwait $p\n";
  CHECK(run_program(folder.file("run.sh"), "sh").code == 129);
  for (const char* trace : {"a.kvt", "b.kvt"}) CHECK(run_program("inspect --verify " + folder.file(trace)).code == 0);
}

TEST_CASE("a result that cannot be written is told before the work, and leaves no other") {
  const TemporaryFolder folder;
  const std::string nowhere = folder.file("none/r");
  std::ofstream(folder.file("t.txt")) << "The quick brown fox jumps over the lazy dog.";
  const std::string eval = "eval --model demo --text " + folder.file("t.txt") + " --details " + folder.file("d");
  check_refused(eval + " -o " + nowhere, 1, nowhere + ": cannot be written: No such file or directory");
  check_refused(kCompare + "--svg " + folder.file("p.svg") + " -o " + folder.path().string(), 1, "Is a directory");
  std::filesystem::remove(folder.file("t.txt"));
  CHECK(is_empty(folder));
}

TEST_CASE("a signal ends a replay and takes what was written of its kept sets with it") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt"), kept = folder.file("kept.jsonl");
  const std::string prompt = std::string(KVROOF_SOURCE_DIR) + "/models/demo/prompts/sqlite-rbu.txt";
  const std::string record = "record --model demo --ignore-eos --max-tokens 64 -o " + trace;
  REQUIRE(run_program(record + " --prompt-file " + prompt).code == 0);
  std::ofstream(folder.file("run.sh")) << KVROOF_PROGRAM << " replay " << trace
      << " --policy h2o,keyformer,tova,scissorhands,a2sf,d2o --budget 0.1,0.2,0.3,0.4,0.5 --kept-steps all --kept "
      << kept << " & p=$!\nuntil ls " << kept << ".*.part || ! kill -0 $p; do sleep 0.01; done 2>/dev/null\n"
      << "kill -TERM $p\nwait $p\n";
  const Ran ran = run_program(folder.file("run.sh"), "sh");
  CHECK(ran.code == 128 + 15);
  CHECK_FALSE(has_part_file(folder.path()));
  CHECK_FALSE(std::filesystem::exists(kept));
}

TEST_CASE("a picture that is written to a link goes where the link leads, and the link stays") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("picture.svg", folder.file("link.svg"));
  REQUIRE(run_program(kCompare + "--svg " + folder.file("link.svg")).code == 0);
  CHECK(std::filesystem::is_symlink(folder.file("link.svg")));
  CHECK(slurp(folder.file("picture.svg")).starts_with("<svg"));
  CHECK_FALSE(has_part_file(folder.path()));
}

TEST_CASE("a configuration that is a folder or a device is refused by its name") {
  const TemporaryFolder folder;
  check_refused("policies --config " + folder.path().string(), 2,
                folder.path().string() + ": the configuration file cannot be read");
  check_refused("policies --config /dev/zero", 2, "/dev/zero: the configuration file cannot be read");
}

TEST_CASE("tokenize knows the bundled model by its name, and a line that never ends") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("t.jsonl")) << "{\"text\": \"Hello\"}\n{\"text\": \"a\"}";  // the last without an end
  const std::string jsonl = " --jsonl " + folder.file("t.jsonl");
  const Ran named = run_program("tokenize --model demo" + jsonl);
  CHECK(named.code == 0);
  CHECK(std::count(named.out.begin(), named.out.end(), '\n') == 2);
  CHECK(named.out == run_program("tokenize --model " + std::string(KVROOF_SOURCE_DIR) + "/models/demo" + jsonl).out);
  check_refused("tokenize --model dmo" + jsonl, 2, "--model dmo: no such folder; did you mean demo?");
  check_refused("tokenize --model demo --jsonl /dev/zero", 1, "/dev/zero: line 1 is longer than 67108864 bytes");
}
