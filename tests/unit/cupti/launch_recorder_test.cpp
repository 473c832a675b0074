// Launches that the engine explains, met by records of a made CUPTI: one by one, and as the nodes of a graph.
#include "kernels/cupti/launch_recorder.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "kernels/cupti/late_sink.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cupti/made_cupti.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

LaunchMeaning meaning_of(const char* operation, std::int32_t layer, Cause cause, std::uint64_t bytes) {
  return {operation, layer, cause, moved(cause, bytes)};
}

// Recorder and launches over a made CUPTI.
struct Recording {
  Recording() {
    ActivityOptions options;
    options.monotonic_clock = true;
    options.nodes = &launches;
    recorder.emplace(cupti, sink, options);
    REQUIRE(recorder->start().empty());
    launches.set_recorder(&*recorder);
  }
  // A graph of two launches, as CUPTI tells of it: nodes 11 and 12 are captured, 21 and 22 are their copies.
  void note_two() {
    launches.begin_capture();
    for (std::uint64_t node : {11, 12}) {
      launches.begin_launch(meaning_of("noted", 0, Cause::kWeights, 1));
      cupti.graphs->created(node);
      launches.end_launch();
    }
    cupti.graphs->cloned(21, 11);
    cupti.graphs->cloned(22, 12);
    launches.end_capture();
  }
  MadeCupti cupti;
  KeepingSink sink;
  LaunchRecorder launches;
  std::optional<ActivityRecorder> recorder;
};

}  // namespace

TEST_CASE("A launch brings a record for each cause of its bytes, with step, layer and sequence") {
  Recording r;
  r.launches.set_step(5);
  LaunchMeaning meaning = meaning_of("qkv", 2, Cause::kWeights, 800);
  meaning.declared.bytes.add(Cause::kActivations, 40);
  meaning.declared.flops = 1600;
  meaning.sequence = 3;
  r.launches.begin_launch(meaning);
  r.cupti.launch(7, 100);
  r.launches.end_launch();
  r.launches.begin_launch({"rotary", -1, Cause::kActivations, {}});
  r.cupti.launch(8, 200);
  r.launches.end_launch();
  r.recorder->stop();
  REQUIRE(r.sink.operators.size() == 3);
  const auto& [weights, activations, rotary] =
      std::tie(r.sink.operators[0], r.sink.operators[1], r.sink.operators[2]);
  CHECK((weights.correlation == 7 && weights.step == 5 && weights.layer == 2 && weights.sequence == 3));
  CHECK((weights.cause == "weights" && weights.declared_bytes == 800 && weights.declared_flops == 1600));
  CHECK((activations.cause == "activations" && activations.declared_bytes == 40 && activations.declared_flops == 0));
  CHECK((rotary.correlation == 8 && rotary.cause == "activations" && rotary.declared_bytes == 0));
}

TEST_CASE("Kernels of a graph are told apart by the copies of the nodes that were captured, in every launch anew") {
  Recording r;
  r.note_two();
  for (std::uint32_t step = 0; step < 3; ++step) {
    r.launches.set_step(step);
    const std::array meanings = {meaning_of("qkv", 0, Cause::kWeights, 500),
                                 meaning_of("attention", 0, Cause::kKvRead, 100 + step)};
    r.launches.begin_graph_launch(meanings);
    r.cupti.launch_graph(40 + step, 1000 * (step + 1), {21, 22});
    r.launches.end_launch();
  }
  r.recorder->stop();
  CHECK(r.sink.kernels.size() == 6);
  REQUIRE(r.sink.operators.size() == 6);  // none while the graph was captured
  for (std::uint32_t step = 0; step < 3; ++step) {
    const OperatorRecord& qkv = r.sink.operators[2 * step];
    const OperatorRecord& attention = r.sink.operators[2 * step + 1];
    CHECK((qkv.graph_node == 21 && qkv.correlation == 40 + step && qkv.declared_bytes == 500 && qkv.step == step));
    CHECK((attention.graph_node == 22 && attention.correlation == 40 + step));
    CHECK((attention.declared_bytes == 100 + step && attention.name == "attention"));
  }
  CHECK(r.launches.unexplained() == 0);
}

TEST_CASE("Several nodes of one launch have its meaning, and the first of them says what they move together") {
  Recording r;
  r.launches.begin_capture();
  r.launches.begin_launch(meaning_of("noted", 0, Cause::kWeights, 1));
  for (std::uint64_t node : {11, 12, 13}) r.cupti.graphs->created(node);
  r.launches.end_launch();
  r.launches.begin_launch(meaning_of("noted", 0, Cause::kWeights, 1));
  r.cupti.graphs->created(14);
  r.launches.end_launch();
  for (std::uint64_t node : {11, 12, 13, 14}) r.cupti.graphs->cloned(10 + node, node);
  r.launches.end_capture();
  LaunchMeaning down = meaning_of("down", 3, Cause::kWeights, 500);
  down.declared.bytes.add(Cause::kActivations, 60);
  down.declared.flops = 7000;
  r.launches.begin_graph_launch(std::array{down, meaning_of("append", 4, Cause::kKvWrite, 9)});
  r.cupti.launch_graph(40, 1000, {21, 22, 23, 24});
  r.launches.end_launch();
  r.recorder->stop();
  CHECK(r.launches.unexplained() == 0);
  CHECK(r.sink.kernels.size() == 4);
  std::uint64_t bytes = 0, flops = 0, of_down = 0;
  for (const OperatorRecord& record : r.sink.operators) {
    const bool is_down = record.graph_node < 24;
    CHECK((record.name == (is_down ? "down" : "append") && record.layer == (is_down ? 3 : 4)));
    of_down += is_down;
    bytes += record.declared_bytes;
    flops += record.declared_flops;
    CHECK((record.declared_bytes == 0 || record.graph_node == 21 || record.graph_node == 24));
  }
  CHECK(of_down == 6);  // two causes of each of the three nodes
  CHECK(bytes == 500 + 60 + 9);
  CHECK(flops == 7000);
}

TEST_CASE("A copy of a copy of a node has its meaning, and each of two copies of the same node") {
  for (const auto& [from, runs] : {std::pair<std::uint64_t, std::uint64_t>{21, 31}, {11, 21}, {11, 31}}) {
    Recording r;
    r.launches.begin_capture();
    r.launches.begin_launch(meaning_of("noted", 0, Cause::kWeights, 1));
    r.cupti.graphs->created(11);
    r.launches.end_launch();
    r.cupti.graphs->cloned(21, 11);
    r.cupti.graphs->created(31);  // within the instantiation, of no launch
    r.cupti.graphs->cloned(31, from);
    r.launches.end_capture();
    r.launches.begin_graph_launch(std::array{meaning_of("down", 3, Cause::kWeights, 500)});
    r.cupti.launch_graph(40, 1000, {runs});
    r.launches.end_launch();
    r.recorder->stop();
    CHECK(r.launches.unexplained() == 0);
    CHECK(r.sink.operators.size() == (from == 21 ? 1 : 2));
    const auto of_kernel = std::find_if(r.sink.operators.begin(), r.sink.operators.end(),
                                        [runs = runs](const OperatorRecord& o) { return o.graph_node == runs; });
    REQUIRE(of_kernel != r.sink.operators.end());
    CHECK((of_kernel->name == "down" && of_kernel->declared_bytes == 500));
  }
}

TEST_CASE("Where CUPTI tells of no copies of a graph's nodes, its kernels are those of the captured nodes") {
  Recording r;
  r.launches.begin_capture();
  for (const std::uint64_t node : {11, 12}) {
    r.launches.begin_launch(meaning_of("noted", 0, Cause::kWeights, 1));
    r.cupti.graphs->created(node);
    r.launches.end_launch();
  }
  r.launches.end_capture();
  r.launches.begin_graph_launch(
      std::array{meaning_of("qkv", 0, Cause::kWeights, 500), meaning_of("attention", 0, Cause::kKvRead, 90)});
  r.cupti.launch_graph(40, 1000, {11, 12});
  r.launches.end_launch();
  r.recorder->stop();
  CHECK(r.launches.unexplained() == 0);
  REQUIRE(r.sink.operators.size() == 2);
  CHECK((r.sink.operators[0].graph_node == 11 && r.sink.operators[0].name == "qkv"));
  CHECK((r.sink.operators[1].graph_node == 12 && r.sink.operators[1].declared_bytes == 90));
}

TEST_CASE("A graph whose nodes CUPTI did not tell of is counted, and its kernels are recorded without a meaning") {
  Recording r;
  r.launches.begin_capture();
  r.launches.begin_launch(meaning_of("qkv", 0, Cause::kWeights, 1));
  r.launches.end_launch();
  r.launches.end_capture();
  r.cupti.graphs->created(5);  // of someone else's graph
  r.launches.begin_graph_launch(std::array{meaning_of("qkv", 0, Cause::kWeights, 1)});
  r.cupti.launch_graph(1, 100, {31});
  r.launches.end_launch();
  r.recorder->stop();
  CHECK(r.sink.kernels.size() == 1);
  CHECK(r.sink.operators.empty());
  CHECK(r.launches.unexplained() == 1);
}

TEST_CASE("A clock that CUPTI does not take, and nodes that it does not tell of, are noted, the rest is recorded") {
  for (const auto& [refused, noted] : {std::pair("clock", "the clock of the steps (no)"),
                                       std::pair("nodes", "nodes of graphs (no)")}) {
    MadeCupti cupti;
    KeepingSink sink;
    LaunchRecorder launches;
    ActivityOptions options;
    options.monotonic_clock = true;
    options.nodes = &launches;
    cupti.refuse = refused;
    ActivityRecorder recorder(cupti, sink, options);
    REQUIRE(recorder.start().empty());
    cupti.launch(1, 100);
    recorder.stop();
    CHECK(sink.kernels.size() == 1);
    CHECK(sink.notes.at("not_recorded") == noted);
  }
}

TEST_CASE("Records that come before there is a place for them wait for it, without one they are dropped") {
  for (const bool attached : {true, false}) {
    MadeCupti cupti;
    KeepingSink sink;
    LateSink late;
    ActivityOptions options;
    options.buffer_bytes = 216;  // one kernel
    ActivityRecorder recorder(cupti, late, options);
    REQUIRE(recorder.start().empty());
    for (std::uint32_t i = 1; i <= 20; ++i) cupti.launch(i, i * 100);
    CHECK(sink.kernels.empty());
    attached ? late.attach(sink) : late.close();
    recorder.stop();
    CHECK(sink.kernels.size() == (attached ? 20 : 0));
    CHECK(sink.notes.count("dropped") == (attached ? 1 : 0));
  }
}
