// What a user meets at the command line: help, typos, wrong values.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "traces/safetensors.hpp"

using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;

namespace {

const std::string kDemo = std::string(KVROOF_SOURCE_DIR) + "/models/demo";

// A refusal: nothing on stdout, at most five lines on stderr, the first of which starts with "error:".
void check_refused(const std::string& words, int code, const std::string& expected) {
  const Ran ran = run_program(words);
  INFO(words << "\nstdout: " << ran.out << "\nstderr: " << ran.err);
  CHECK(ran.code == code);
  CHECK(ran.out.empty());
  CHECK(ran.err.starts_with("error: "));
  CHECK(ran.err.find(expected) != std::string::npos);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') <= 5);
}

}  // namespace

TEST_CASE("The program alone says what it is for and lists its commands") {
  const Ran ran = run_program("");
  CHECK(ran.code == 0);
  for (const char* verb :
       {"run", "record", "replay", "inspect", "import", "models", "devices", "policies", "calibrate"}) {
    CHECK(ran.out.find("\n  " + std::string(verb)) != std::string::npos);
  }
}

TEST_CASE("Every command has help that shows examples first") {
  for (const char* verb :
       {"run", "record", "replay", "inspect", "import", "models", "devices", "policies", "calibrate", "tokenize"}) {
    const Ran ran = run_program(std::string("help ") + verb);
    INFO(verb);
    CHECK(ran.code == 0);
    const auto examples = ran.out.find("examples:");
    const auto options = ran.out.find("Options:");
    CHECK(examples != std::string::npos);
    CHECK((options == std::string::npos || examples < options));
    CHECK(run_program(std::string(verb) + " --help").out == ran.out);
  }
}

TEST_CASE("A mistyped command is answered with the nearest one") {
  check_refused("repaly run.kvt", 2, "did you mean replay?");
}

TEST_CASE("A mistyped option is answered with the nearest one, and abbreviations are not guessed") {
  check_refused("run --model " + kDemo + " --promt x", 2, "did you mean --prompt?");
  check_refused("run --mod " + kDemo + " --prompt x", 2, "unknown option");
}

TEST_CASE("An option of other commands is answered with those that have it") {
  check_refused("plan --shared-prefix 1k", 2,
                "unknown option '--shared-prefix' of `kvroof plan`; `kvroof simulate` has it");
  const Ran ran = run_program("replay none.kvt --engine vllm");
  CHECK(ran.code == 2);
  for (const char* verb : {"`kvroof plan`", "`kvroof compare`", "`kvroof simulate`"}) {
    CHECK(ran.err.find(verb) != std::string::npos);
  }
}

TEST_CASE("The word list after a command of the catalog does what the command does without it") {
  for (const std::string verb : {"models", "devices", "policies", "engines"}) {
    INFO(verb);
    const Ran bare = run_program(verb);
    REQUIRE(bare.code == 0);
    CHECK(run_program(verb + " list").out == bare.out);
  }
  check_refused("devices list h200", 2, "expected `devices` or `devices show NAME`");
}

TEST_CASE("A wrong number, a repeated scalar and a wrong format are refused before any work") {
  check_refused("run --model " + kDemo + " --prompt x --max-tokens many", 2, "max-tokens");
  check_refused("run --model " + kDemo + " --model " + kDemo + " --prompt x", 2, "more than once");
  check_refused("models --format jsn", 2, "did you mean json?");
}

TEST_CASE("Every number is refused with its option, its value and what is expected: signs, garbage, overflow, holes") {
  const std::string run = "run --model " + kDemo + " --prompt x ";
  const std::string models = "models ";
  const std::string replay = "replay none.kvt ";
  const std::string import = "import qkv none.safetensors -o none.kvt --prompt ";
  for (const std::string& words :
       {models + "--seed -1", models + "--seed 5x", models + "--seed 18446744073709551616", models + "--seed 1.5",
        models + "--seed ''", models + "--threads -1", models + "--threads 0", models + "--threads 4294967297",
        models + "show mpt-7b --batch -1", models + "show mpt-7b --context 1,2x", run + "--max-tokens -1",
        run + "--max-tokens 5x", run + "--max-tokens 4294967297", run + "--batch -1", run + "--batch 2,3",
        run + "--temperature -1", run + "--temperature nan", run + "--temperature 1x", run + "--top-k -3",
        run + "--top-p 1.5", run + "--top-p 1e999", replay + "--batch -1", replay + "--batch 2,3x",
        replay + "--batch 4194304k", replay + "--as mpt-7b --prompt -4k", replay + "--as mpt-7b --output 4kk",
        replay + "--kept k --kept-steps -1", replay + "--kept k --kept-steps 1..99999999999", import + "-3",
        import + "3 --scale abc", import + "3 --scale -1", import + "3 --scale inf"}) {
    const std::size_t option = words.rfind(" --") + 1;
    check_refused(words, 2, words.substr(option, words.find(' ', option) - option));
    CHECK(run_program(words).err.find("expected") != std::string::npos);
  }
  check_refused("models show mpt-7b --context 1,,2", 2, "--context '1,,2': an item of the list is empty");
}

TEST_CASE("The catalog is looked for beside and above the program, then in the current folder") {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;  // neither of which has a catalog
  const std::string copy = folder.file("kvroof"), source = KVROOF_SOURCE_DIR;
  fs::copy_file(KVROOF_PROGRAM, copy);
  const auto models_in = [&](const std::string& current) {
    return run_program("models", "cd " + current + " && env -u KVROOF_HOME " + copy);
  };
  CHECK(models_in(source).out == run_program("models").out);
  const Ran nowhere = models_in(folder.path().string());
  CHECK(nowhere.code != 0);
  CHECK(nowhere.err.find("not found beside or above the program, nor in the current folder") != std::string::npos);
}

TEST_CASE("Counts are also taken as halves of k and as m, and shares in percent") {
  const auto answer = [](const std::string& words) {
    const Ran ran = run_program(words + " -q --format csv");
    INFO(words << "\n" << ran.err);
    REQUIRE(ran.code == 0);
    return ran.out;
  };
  const std::string show = "models show mpt-7b --context ";
  CHECK(answer(show + "0.5k,1m") == answer(show + "512,1048576"));
  const std::string simulate =
      "simulate --model llama-3-8b --device h100-sxm --rate 1 --count 5 --prompt 1k --output 4 ";
  CHECK(answer(simulate + "--cached-prompt 50%") == answer(simulate + "--cached-prompt 0.5"));
  check_refused(simulate + "--cached-prompt 101%", 2, "--cached-prompt 101%: expected a number from 0 to 1, or trace");
  check_refused("models show mpt-7b --context 0.3k", 2, "--context 0.3k: expected a count from 1");
}

TEST_CASE("A number with its unit behind it is answered with the unit that the option has") {
  const std::string simulate = "simulate --model llama-3-8b --device h100-sxm --rate 1 --count 5 ";
  check_refused(simulate + "--tpot-ms 30ms", 2, "--tpot-ms 30ms: expected a number from 0.001 to 1000000000; it is in "
                                                "milliseconds, and written without a unit");
  check_refused(simulate + "--shared-prefix 16 --host-cache 80GiB", 2, "it is in GiB, and written without a unit");
  check_refused(simulate + "--usd-per-hour '$2'", 2, "it is in US dollars an hour, and written without a unit");
  check_refused("simulate --model llama-3-8b --device h100-sxm --rate 4/s", 2, "it is in requests a second");
}

TEST_CASE("Flags of a configuration file and of the environment are true or false, and print-config says which") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("wrong.yaml")) << "verify: maybe\n";
  check_refused("inspect none.kvt --config " + folder.file("wrong.yaml"), 2, "expected true or false");
  std::ofstream(folder.file("flags.yaml")) << "verify: true\nrepair: false\n";
  const Ran printed = run_program("inspect none.kvt --print-config --config " + folder.file("flags.yaml"));
  CHECK(printed.out.find("verify: true\n") != std::string::npos);
  CHECK(printed.out.find("repair: false\n") != std::string::npos);
}

TEST_CASE("A format that a command does not give is refused, and its help lists those it gives") {
  check_refused("import qkv none.safetensors --prompt 3 -o none.kvt --format csv", 2, "gives table or json");
  check_refused("run --model demo --prompt x --format csv", 2, "--format csv: `kvroof run` gives table or json");
  CHECK(run_program("help run").out.find("table | json\n") != std::string::npos);
  CHECK(run_program("help replay").out.find("table | json | csv\n") != std::string::npos);
}

TEST_CASE("An import says as JSON what it took") {
  const TemporaryFolder folder;
  const std::string tensors = "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors";
  const Ran ran = run_program("import qkv " + std::string(KVROOF_SOURCE_DIR) + tensors +
                              " --prompt 64 --format json -q -o " + folder.file("x.kvt"));
  REQUIRE(ran.code == 0);
  const auto json = nlohmann::json::parse(ran.out);
  CHECK(json["trace"] == folder.file("x.kvt"));
  CHECK(json["layers"] == 1);
  CHECK(json["query_heads"] == 8);
  CHECK(json["kv_heads"] == 2);
  CHECK(json["k_width"] == 16);
  CHECK(json["scale"] == 0.25);
  CHECK(json["prompt_tokens"] == 64);
  CHECK(json["tokens"] == 104);
  CHECK(json["kv_type"] == "f32");
}

TEST_CASE("An import with a window replays as the policy window does, one with a tiny soft-cap as even attention") {
  const TemporaryFolder folder;
  const std::string tensors =
      std::string(KVROOF_SOURCE_DIR) + "/tests/golden/policies/h2o_gqa_sum_n64_h8_kv2.safetensors --prompt 64";
  const auto point = [&](const std::string& name, const std::string& options, const std::string& policy) {
    const std::string trace = folder.file(name);
    const Ran ran = run_program("import qkv " + tensors + " --format json " + options + " -o " + trace);
    REQUIRE(ran.code == 0);
    const Ran replayed = run_program("replay " + trace + " --policy " + policy + " --format json");
    REQUIRE(replayed.code == 0);
    return nlohmann::json::parse(replayed.out)["points"][0];
  };
  // A step reads the 16 tokens that it sees, of which its own is one.
  const auto seen = point("window", "--window 16", "full");
  const auto kept = point("plain", "", "window:budget=15");
  CHECK(seen["kv_read_bytes"] == kept["kv_read_bytes"]);
  // Where all logits are alike, 32 of the t tokens have the share 32 / t: the mean over t = 65 … 104.
  double even = 0;
  for (int t = 65; t <= 104; ++t) even += 32.0 / t / 40;
  const auto capped = point("cap", "--softcap 0.00001", "window:budget=31");
  CHECK(capped["recall_mean"].get<double>() == Approx(even).margin(1e-4));
  check_refused("import qkv " + tensors + " --window 0 -o " + folder.file("no"), 2, "--window");
  check_refused("import qkv " + tensors + " --softcap 0 -o " + folder.file("no"), 2, "--softcap");
}

TEST_CASE("A name in the place of show is answered with show and that name") {
  check_refused("devices h2000", 2, "did you mean `devices show h200`?");
  check_refused("policies keyformr", 2, "did you mean `policies show keyformer`?");
  check_refused("devices shw", 2, "expected `devices` or `devices show NAME`");
  check_refused("halp", 2, "did you mean help?");
}

TEST_CASE("Tables fit 120 columns: a long last column goes on below itself, and no word of it is lost") {
  for (const char* words : {"models", "devices", "devices show h200", "engines", "engines show vllm", "policies",
                            "policies show scissorhands"}) {
    const Ran ran = run_program(words);
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);) {
      INFO(words << "\n" << line);
      CHECK(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }) <= 120);
    }
  }
  std::string shown = run_program("devices show h200").out;
  shown.erase(std::remove_if(shown.begin(), shown.end(), [](char c) { return c == ' ' || c == '\n'; }), shown.end());
  CHECK(shown.find("eachrowlinkedtothevendor'spage") != std::string::npos);
}

TEST_CASE("Verbose prints the resolved options on stderr, and the result stays the same") {
  const Ran ran = run_program("policies --verbose --format csv");
  CHECK(ran.err.find("format: csv\n") != std::string::npos);
  CHECK(ran.out == run_program("policies --format csv").out);
}

TEST_CASE("Missing models and prompts are named") {
  check_refused("run --model /nowhere --prompt x", 2, "/nowhere");
  check_refused("run --model " + kDemo + " --prompt-file /nowhere.txt", 2, "/nowhere.txt");
  check_refused("run --model " + kDemo, 2, "--prompt");
  const TemporaryFolder folder;
  std::ofstream(folder.file("empty.txt")).flush();
  check_refused("run --model " + kDemo + " --prompt-file " + folder.file("empty.txt"), 2, "empty");
}

TEST_CASE("Policies, parameters and budgets that make no sense are refused with what is expected") {
  const std::string run = "run --model " + kDemo + " --prompt hello --max-tokens 2 --policy ";
  check_refused(run + "h20:budget=0.5", 2, "did you mean h2o?");
  check_refused(run + "h2o:bugdet=0.5", 2, "did you mean budget?");
  check_refused(run + "h2o:budget=0", 2, "budget");
  check_refused(run + "h2o:budget=-3", 2, "budget");
  check_refused(run + "h2o:budget=1.5", 2, "budget");
  check_refused(run + "h2o:budget=nan", 2, "budget");
  check_refused(run + "h2o", 2, "budget");
  check_refused(run + "h2o:budget=0.5 --budget 0.5", 2, "budget");
  check_refused(run + "oracle:budget=0.5", 2, "replay");
}

TEST_CASE("Unknown devices and models are answered with the nearest one") {
  check_refused("devices show h2000", 2, "did you mean");
  check_refused("models show mpt-7", 2, "did you mean mpt-7b?");
}

TEST_CASE("A model or device that is like none is not answered with the names of the whole catalog") {
  const std::string plan = "plan --model ", on = " --device ";
  check_refused(plan + "zzzz" + on + "h200", 2, "note: `kvroof models` lists all of them");
  check_refused(plan + "mpt-7b" + on + "zzzz", 2, "note: `kvroof devices` lists all of them");
  CHECK(run_program(plan + "zzzz" + on + "h200").err.find("mpt-7b") == std::string::npos);
  CHECK(run_program(plan + "mpt-7b" + on + "zzzz").err.find("h100-sxm") == std::string::npos);
}

TEST_CASE("A configuration file says the same words as the command line, and unknown keys are refused with the line") {
  const TemporaryFolder folder;
  const std::string good = folder.file("good.yaml");
  std::ofstream(good) << "format: json\n";
  CHECK(run_program("models --config " + good).out.starts_with("["));
  CHECK(run_program("models --format csv --config " + good).out.find('[') == std::string::npos);
  const std::string bad = folder.file("bad.yaml");
  std::ofstream(bad) << "quiet: true\nfromat: json\n";
  check_refused("models --config " + bad, 2, "bad.yaml:2: unknown key 'fromat'; did you mean format?");
}

TEST_CASE("The resolved configuration is printed on request and reads back") {
  const TemporaryFolder folder;
  const Ran printed = run_program("models --format csv --print-config");
  CHECK(printed.code == 0);
  std::ofstream(folder.file("resolved.yaml")) << printed.out;
  CHECK(run_program("models --config " + folder.file("resolved.yaml")).out == run_program("models --format csv").out);
  // Defaults do not count as given where they are read back: some options go together with others alone.
  const std::string eval = "eval --model " + kDemo + " --text " + folder.file("text.txt") + " --context 64";
  std::ofstream(folder.file("text.txt")) << std::string(600, 'a');
  const Ran resolved = run_program(eval + " --print-config");
  CHECK(resolved.out.find("# max-tokens: 128\n") != std::string::npos);
  std::ofstream(folder.file("eval.yaml")) << resolved.out;
  const Ran again = run_program("eval --config " + folder.file("eval.yaml"));
  CHECK(again.code == 0);
  CHECK(again.out == run_program(eval).out);
  std::ofstream(folder.file("comments.yaml")) << "# nothing\n";
  CHECK(run_program("models --config " + folder.file("comments.yaml")).code == 0);
}

TEST_CASE("A budget that no policy can use is refused rather than ignored") {
  check_refused("run --model " + kDemo + " --prompt hello --budget 0.5 --max-tokens 2", 2, "no policy to serve");
}

TEST_CASE("A link named as the result's file is written through, not replaced") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(folder.file("real.txt"), folder.file("link.txt"));
  std::ofstream(folder.file("real.txt")) << "before";
  CHECK(run_program("models -o " + folder.file("link.txt")).code == 0);
  CHECK(std::filesystem::is_symlink(folder.file("link.txt")));
  CHECK(kvroof::test::slurp(folder.file("real.txt")) == run_program("models").out);
}

TEST_CASE("Imported tensors whose products overflow give one sentence, not numbers") {
  const TemporaryFolder folder;
  const std::vector<float> huge(std::size_t{2} * 12 * 8, 1e25F);
  const auto bytes = std::as_bytes(std::span(huge));
  const std::vector<kvroof::TensorToWrite> tensors = {{"q", kvroof::DType::kF32, {2, 12, 8}, bytes},
                                                      {"k", kvroof::DType::kF32, {2, 12, 8}, bytes},
                                                      {"v", kvroof::DType::kF32, {2, 12, 8}, bytes}};
  kvroof::write_safetensors(folder.file("huge.safetensors"), tensors, {});
  const std::string import = "import qkv " + folder.file("huge.safetensors") + " --prompt 8 -q -o ";
  check_refused(import + folder.file("none.kvt") + " --scale 1e-60", 2, "--scale");
  REQUIRE(run_program(import + folder.file("huge.kvt")).code == 0);
  for (const char* policy : {"window", "h2o", "oracle"}) {
    check_refused("replay " + folder.file("huge.kvt") + " --budget 0.5 --policy " + policy, 1,
                  "huge.kvt: q·k is beyond the range of float (sequence 0, layer 0, query head 0, token ");
  }
}

TEST_CASE("A budget in tokens holds that many on another model, also when the recorded prompt fitted it") {
  const TemporaryFolder folder;
  REQUIRE(run_program("record --model " + kDemo + " --ids '5 17 9 33 8 21' --max-tokens 6 --ignore-eos -q -o " +
                      folder.file("short.kvt"))
              .code == 0);
  const Ran ran = run_program("replay " + folder.file("short.kvt") +
                              " --policy window,h2o --budget 4,8,512 --as mpt-7b --prompt 4k --output 64 --format csv");
  REQUIRE(ran.code == 0);
  for (const char* budget : {"4", "8", "512"}) {
    for (const char* policy : {"window", "h2o"}) {
      INFO(policy << " " << budget << "\n" << ran.out);
      const auto row = ran.out.find(std::string("\n") + policy + ":budget=" + budget + ",");
      REQUIRE(row != std::string::npos);
      CHECK(ran.out.substr(row + 1, ran.out.find('\n', row + 1) - row - 1).find(std::string(",") + budget + ",") !=
            std::string::npos);
    }
  }
}

TEST_CASE("A result file appears whole or not at all") {
  const TemporaryFolder folder;
  CHECK(run_program("models -o " + folder.file("models.txt")).code == 0);
  CHECK(kvroof::test::slurp(folder.file("models.txt")) == run_program("models").out);
  check_refused("models -o /nowhere/models.txt", 1, "/nowhere/models.txt");
}
