// kvroof record --cupti: the engine's own launches, from the recorder to the report, on the emulator.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof::test;

namespace {

const std::string kModel = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/llama-gqa";
const std::string kRun =
    " --dtype f16 --model " + kModel + " --ids \"5 17 9 40 2 30 31 32\" --ids \"7 8 9\" -n 6 --ignore-eos ";

std::string record(const TemporaryFolder& folder, const std::string& name, const std::string& options) {
  const std::string trace = folder.file(name);
  const Ran ran = run_program("record -o " + trace + kRun + options, KVROOF_EMULATED);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  return trace;
}

std::string ask(const std::string& trace, const std::string& sql) { return query(trace + "/kernels.sqlite", sql); }

std::string note_of(const std::string& trace, const std::string& key) {
  return ask(trace, "SELECT value FROM kvroof_note WHERE key = '" + key + "'");
}

}  // namespace

TEST_CASE("Every kernel of a recorded run is explained, and the steps' bytes are those that its launches declare") {
  const TemporaryFolder folder;
  for (const char* capture : {"", " --no-capture"}) {
    INFO(capture);
    const std::string trace = record(folder, *capture == 0 ? "a.kvt" : "b.kvt",
                                     std::string("-q --cupti trace --policy h2o:budget=4") + capture);
    CHECK(note_of(trace, "level") == "trace\n");
    CHECK(note_of(trace, "dropped") == "0\n");
    CHECK(note_of(trace, "graphs_unexplained").empty());
    CHECK(note_of(trace, "emulated").find("not a GPU's") != std::string::npos);
    CHECK(ask(trace, "SELECT name FROM TARGET_INFO_GPU") == "emulator\n");
    // Every kernel of a step (weights come before the first) has one operator.
    CHECK(ask(trace, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE start >= (SELECT min(start_ns) FROM "
                     "kvroof_step) AND NOT EXISTS (SELECT 1 FROM kvroof_operator o WHERE o.correlation = "
                     "k.correlationId AND o.graph_node = coalesce(k.graphNodeId, 0))") == "0\n");
    // Decode steps: what the engine counted is what its launches declared, cause by cause.
    for (const char* cause : {"weights", "kv_read", "kv_write", "scores", "activations"}) {
      const std::string sum = std::string("(SELECT sum(declared_bytes) FROM kvroof_operator o WHERE o.step = s.step "
                                          "AND cause = '") + cause + "')";
      CHECK(ask(trace, "SELECT count(*) FROM kvroof_step s WHERE phase = 'decode' AND coalesce(" + sum + ", 0) <> " +
                           cause + "_bytes") == "0\n");
    }
    // Kernels run between the start and the end of their step: one clock.
    CHECK(ask(trace, "SELECT count(*) FROM kvroof_operator o JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON o.correlation = "
                     "k.correlationId AND o.graph_node = coalesce(k.graphNodeId, 0) JOIN kvroof_step s ON s.step = "
                     "o.step WHERE k.start < s.start_ns OR k.end > s.end_ns") == "0\n");
    CHECK(run_program("inspect " + trace + " --verify").code == 0);
  }
}

TEST_CASE("Kernels that cuBLASLt launches within a graph have the layer and the operator of their declaration") {
  setenv("KVROOF_EMULATED_LIBRARIES", KVROOF_MADE_LIBRARIES, 1);
  const TemporaryFolder folder;
  const std::string own = record(folder, "a.kvt", "-q --cupti trace --no-capture --linear own");
  const std::string library = record(folder, "b.kvt", "-q --cupti trace --no-capture --linear cublaslt");
  unsetenv("KVROOF_EMULATED_LIBRARIES");
  CHECK(note_of(library, "graphs_unexplained").empty());
  CHECK(ask(library, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE start >= (SELECT min(start_ns) FROM "
                     "kvroof_step) AND NOT EXISTS (SELECT 1 FROM kvroof_operator o WHERE o.correlation = "
                     "k.correlationId AND o.graph_node = coalesce(k.graphNodeId, 0))") == "0\n");
  // The vectors are rounded and the product is made in two launches: three nodes for each of the same meaning.
  constexpr const char* kNodes = "SELECT count(DISTINCT graph_node) FROM kvroof_operator WHERE graph_node > 0 AND "
                                 "name = 'output' AND layer = 1";
  CHECK(std::stoi(ask(library, kNodes)) == 3 * std::stoi(ask(own, kNodes)));
  // Our own product of q, k and v appends as well; the library's is followed by a launch that does.
  constexpr const char* kDeclared =
      "SELECT step, CASE WHEN name IN ('qkv', 'append') THEN 'qkv_append' ELSE name END, layer, sum(declared_bytes), "
      "sum(declared_flops) FROM kvroof_operator GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
  CHECK(ask(library, kDeclared) == ask(own, kDeclared));
  CHECK(run_program("inspect " + library).out.find("cublaslt 13.1.99") != std::string::npos);
  CHECK(run_program("inspect " + own).out.find("cublaslt") == std::string::npos);
}

TEST_CASE("Without queries, keys and values the steps are graphs, a prompt's launches name their sequence") {
  const TemporaryFolder folder;
  const std::string single = record(folder, "a.kvt", "-q --cupti trace");
  const std::string graphs = record(folder, "b.kvt", "-q --cupti trace --no-capture");
  constexpr const char* kNodes = "SELECT count(*) > 0 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL";
  CHECK(ask(single, kNodes) == "0\n");
  CHECK(ask(graphs, kNodes) == "1\n");
  // The same launches either way.
  constexpr const char* kLaunches =
      "SELECT step, name, layer, sum(declared_bytes) FROM kvroof_operator GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
  CHECK(ask(single, kLaunches) == ask(graphs, kLaunches));
  CHECK(ask(graphs, "SELECT DISTINCT step, sequence FROM kvroof_operator WHERE step < 3 ORDER BY 1") ==
        "0|0\n1|1\n2|NULL\n");
  CHECK(run_program("replay " + single + " --policy full").code == 0);
  const Ran refused = run_program("replay " + graphs + " --policy full");
  CHECK(refused.code == 2);
  CHECK(refused.err.find("without queries, keys and values") != std::string::npos);
}

TEST_CASE("The report of a recorded run has operators with bytes and rates, the policy's own time, and its steps") {
  const TemporaryFolder folder;
  const std::string trace = record(folder, "run.kvt", "-q --cupti trace --no-capture --policy h2o:budget=4");
  const Ran ran = run_program("report-kernels " + trace + " --format json --device h100-sxm");
  REQUIRE(ran.code == 0);
  CHECK(ran.err.find("emulated") != std::string::npos);  // no figure of a GPU
  const auto report = nlohmann::json::parse(ran.out);
  std::vector<std::string> names;
  for (const auto& row : report["operators"]) {
    names.push_back(row["name"]);
    if (row["name"] != "qkv") continue;
    CHECK(row["bytes"].get<double>() > 0);
    CHECK(row["bytes_per_second"].get<double>() > 0);
    CHECK(row["limit_percent"].get<double>() > 0);
    CHECK(row["flops_per_byte"].get<double>() > 0);
    CHECK(row["roof_percent"].get<double>() > 0);
  }
  for (const char* name :
       {"qkv", "qkv_append", "attention", "top_k", "scores", "head", "policy: scores and compaction"}) {
    INFO(name);
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
  // Prompts and decode steps have marks of their own, and letters of one operator in both.
  const std::string svg = folder.file("roofline.svg");
  const Ran drawn = run_program("report-kernels " + trace + " -q --device h100-sxm --svg " + svg);
  REQUIRE(drawn.code == 0);
  CHECK(drawn.err.empty());
  const std::string picture = slurp(svg);
  for (const char* text : {"decode", "prefill", "attention", "all kernels"}) {
    CHECK(picture.find(std::string(">") + text + "</text>") != std::string::npos);
  }
  CHECK(picture.find("emulated") != std::string::npos);  // no figure of a GPU
  REQUIRE(report["steps"].size() == 7);  // two prompts, five steps of both
  for (const char* column : {"weights_ns", "kv_ns", "policy_ns", "declared_bytes"}) {
    CHECK(report["steps"][3][column].get<double>() > 0);
  }
}

TEST_CASE("A run that CUPTI cannot watch is recorded all the same, and says what kept it") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran ran = run_program("record -o " + trace + kRun + "--cupti trace --backend fast", KVROOF_EMULATED);
  CHECK(ran.code == 0);
  CHECK(ran.err.find("cupti: none; trace: the run was on the CPU (back end fast)\n") != std::string::npos);
  CHECK(note_of(trace, "level") == "none\n");
  CHECK(note_of(trace, "why") == "trace: the run was on the CPU (back end fast)\n");
  CHECK(run_program("inspect " + trace + " --verify").code == 0);
  const Ran all = run_program("record -o " + folder.file("all.kvt") + kRun + "--cupti all", KVROOF_EMULATED);
  CHECK(all.code == 0);
  constexpr const char* kSaid =
      "cupti: trace; counters: the emulator has no counters; pm: the emulator has no counters (emulated)\n";
  CHECK(all.err.find(kSaid) != std::string::npos);
  const Ran alone = run_program("record -q -o " + folder.file("pm.kvt") + kRun + "--cupti pm", KVROOF_EMULATED);
  CHECK(alone.code == 0);
  CHECK(note_of(folder.file("pm.kvt"), "level") == "none\n");
  CHECK(run_program("report-kernels " + folder.file("pm.kvt") + " --format csv").out ==
        "kernels,level,why\n0,none,pm: the emulator has no counters\n");
  // Nothing was to be recorded here.
  REQUIRE(run_program("record -q -o " + folder.file("plain.kvt") + kRun, KVROOF_EMULATED).code == 0);
  CHECK(run_program("report-kernels " + folder.file("plain.kvt")).code == 2);
  const Ran unknown = run_program("record -o " + folder.file("b.kvt") + kRun + "--cupti trac");
  CHECK(unknown.code == 2);
  CHECK(unknown.err.find("did you mean") != std::string::npos);
}
