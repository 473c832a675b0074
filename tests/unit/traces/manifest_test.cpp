#include "traces/manifest.hpp"

#include "tests/catch.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/journal.hpp"

using namespace kvroof;
using kvroof::test::small_manifest;

namespace {

std::string refusal(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  const auto result = manifest_from_json(text);
  return result.ok() ? "accepted" : result.error();
}

}  // namespace

TEST_CASE("A manifest survives the way through JSON unchanged") {
  const std::string text = manifest_to_json(small_manifest());
  const TraceManifest read = manifest_from_json(text).or_throw("manifest");
  CHECK(manifest_to_json(read) == text);
  CHECK(read.seed == 18446744073709551615U);
  CHECK(read.kv_type == DType::kBF16);
  CHECK(read.layers[0].rotary.style == "half_split");
  CHECK(read.layers[0].rotary.theta == 500000.0);
  CHECK(read.layers[1].window == 4);
  CHECK(read.layers[1].softcap == 30.0F);
  CHECK(read.sequences[1].id == 7);
}

TEST_CASE("A float of the manifest keeps all its bits") {
  TraceManifest m = small_manifest();
  m.layers[0].scale = 0.088388346F;  // 1/√128 in single precision
  CHECK(manifest_from_json(manifest_to_json(m)).or_throw("m").layers[0].scale == m.layers[0].scale);
}

TEST_CASE("Sinks are those of each query head, and a layer without them says nothing of them") {
  TraceManifest m = small_manifest();
  CHECK(manifest_to_json(m).find("sinks") == std::string::npos);
  m.layers[1].attention_sinks = {-3, 0.1F};
  const TraceManifest read = manifest_from_json(manifest_to_json(m)).or_throw("m");
  CHECK(read.layers[0].sink(3) == std::nullopt);
  CHECK(read.layers[1].sink(0) == -3);
  CHECK(read.layers[1].sink(1) == 0.1F);
}

TEST_CASE("A quantised cache is named, one whose rows change with age by traces without attention alone") {
  TraceManifest m = small_manifest();
  CHECK(manifest_to_json(m).find("cache_type") == std::string::npos);
  CHECK(cache_type_of(m) == KvType(KvType::kBF16));
  m.cache_type = KvType(KvType::kInt8);
  const std::string text = manifest_to_json(m);
  CHECK(cache_type_of(manifest_from_json(text).or_throw("m")) == KvType(KvType::kInt8));
  CHECK(refusal(text, "\"int8\"", "\"int5\"").starts_with("cache_type is \"int5\", expected one of: int8, int4, "));
  CHECK(refusal(text, "\"int8\"", "\"kivi2\"").starts_with("cache_type has rows that change with age"));
  m.source = "profile";
  m.layers.clear();
  m.sequences.clear();
  m.cache_type = KvType(KvType::kKivi2);
  CHECK(cache_type_of(manifest_from_json(manifest_to_json(m)).or_throw("m")) == KvType(KvType::kKivi2));
}

TEST_CASE("A manifest is refused with the name of the field that is wrong") {
  const std::string text = manifest_to_json(small_manifest());
  CHECK(refusal(text, "\"format_version\": 1", "\"format_version\": 2") ==
        "format version 2 is newer than this program, which reads up to 1; a kvroof that knows version 2 is needed");
  CHECK(refusal(text, "\"format_version\": 1", "\"format_version\": 0").starts_with("format_version is 0, expected"));
  CHECK(refusal(text, "\"backend\"", "\"backemd\"") == "backend is missing");
  CHECK(refusal(text, "\"reference\"", "\"fpga\"") == "backend is \"fpga\", expected one of: reference, fast, cuda, ");
  CHECK(refusal(text, "\"query_heads\": 4", "\"query_heads\": 1025") ==
        "layers[0].query_heads is 1025, expected a whole number from 1 to 1024");
  CHECK(refusal(text, "\"query_heads\": 4", "\"query_heads\": 0").starts_with("layers[0].query_heads is 0"));
  CHECK(refusal(text, "\"query_heads\": 4", "\"query_heads\": -4").starts_with("layers[0].query_heads is -4"));
  CHECK(refusal(text, "\"query_heads\": 4", "\"query_heads\": 4.0").starts_with("layers[0].query_heads is 4.0"));
  CHECK(refusal(text, "\"query_heads\": 4", "\"query_heads\": \"4\"").starts_with("layers[0].query_heads is \"4\""));
  CHECK(refusal(text, "\"query_heads\": 4", "\"query_heads\": 5") ==
        "layers[0].query_heads is not a multiple of kv_heads");
  CHECK(refusal(text, "\"scale\": 0.5", "\"scale\": 1e39").starts_with("layers[0].scale is 1e+39"));
  CHECK(refusal(text, "\"scale\": 0.5", "\"scale\": 1e999") == "not valid JSON");
  CHECK(refusal(text, "\"scale\": 0.5", "\"scale\": null").starts_with("layers[0].scale is null"));
  CHECK(refusal(text, "\"dims\": 4", "\"dims\": 5").starts_with("layers[0].rotary.dims is 5"));
  CHECK(refusal(text, "0.25", "0.25, 1").find("layers[1].alibi_slopes") == 0);
  CHECK(refusal(text, "\"window\": 4", "\"window\": 4, \"attention_sinks\": [1]").find("layers[1].attention_s") == 0);
  CHECK(refusal(text, "\"window\": 4", "\"window\": 4, \"attention_sinks\": [1, -2]") == "accepted");
  CHECK(refusal(text, "\"id\": 7", "\"id\": 0") == "sequences[1].id occurs twice");
  CHECK(refusal(text, "\"prompt\": 3", "\"prompt\": 16777217").starts_with("sequences[0].prompt is 16777217"));
  CHECK(refusal(text, "\"model_shape\": {", "\"model_shape\": [], \"x\": {") ==
        "model_shape is array, expected an object or null");
  CHECK(refusal(text, "{", "{\"seed\": 1,") == "the key 'seed' occurs twice");
  CHECK(refusal(text, "\"id\": 7", "\"new_field\": 1, \"id\": 7") == "accepted");
}

TEST_CASE("A manifest must be one JSON object of bounded depth") {
  CHECK(manifest_from_json("").error() == "not valid JSON");
  CHECK(manifest_from_json("[]").error() == "not a JSON object");
  CHECK(manifest_from_json("{}").error() == "format_version is missing");
  CHECK(manifest_from_json(std::string("{}\0", 3)).error() == "not valid JSON: it holds a zero byte");
  CHECK(manifest_from_json("{\"a\":" + std::string(2'000'000, '[')).error() == "nested deeper than 16");
  std::string objects;
  for (int i = 0; i < 500'000; ++i) objects += "{\"a\":";
  CHECK(manifest_from_json(objects).error() == "nested deeper than 16");
}

TEST_CASE("A command line that is not UTF-8 still gives a valid manifest") {
  TraceManifest m = small_manifest();
  m.command_line = "caf\xe9";
  CHECK(manifest_from_json(manifest_to_json(m)).or_throw("m").command_line == "caf\xef\xbf\xbd");
}

TEST_CASE("A journal is read up to its first damaged line") {
  const std::string a = journal_line_to_json({0, 0, 3, 100, 0x1234});
  const std::string b = journal_line_to_json({1, 3, 2, 50, 0xffffffffffffffffU});
  CHECK(a ==
        "{\"segment\":0,\"file\":\"segments/00000.safetensors\",\"first_step\":0,\"steps\":3,\"bytes\":100,"
        "\"xxh3\":\"0000000000001234\"}\n");
  const Journal both = parse_journal(a + b);
  CHECK(both.problem.empty());
  REQUIRE(both.lines.size() == 2);
  CHECK(both.lines[1].xxh3 == 0xffffffffffffffffU);
  CHECK(both.lines[1].first_step == 3);
  CHECK(parse_journal("").problem.empty());
  CHECK(parse_journal(a + b.substr(0, 20)).lines.size() == 1);
  CHECK(parse_journal(a + b.substr(0, 20)).problem == "line 2 is cut off");
  CHECK(parse_journal(a + a).problem.starts_with("line 2: segment is 0"));
  CHECK(parse_journal(b).problem.starts_with("line 1: segment is 1"));
  CHECK(parse_journal(a + journal_line_to_json({1, 4, 2, 50, 1})).problem.starts_with("line 2: first_step is 4"));
  CHECK(parse_journal("\n").problem == "line 1: not valid JSON");
  std::string elsewhere = a;
  elsewhere.replace(elsewhere.find("segments/"), 9, "../../../");
  CHECK(parse_journal(elsewhere).problem == "line 1: file is not that of the segment");
}

TEST_CASE("A seal survives the way through JSON and needs all its fields") {
  const std::string text = seal_to_json({2, 20, 4096, 1, 2, 3, 4});
  const Seal seal = seal_from_json(text).or_throw("seal");
  CHECK(seal_to_json(seal) == text);
  CHECK(seal.kernels_xxh3 == 4);
  CHECK(seal_from_json("{\"format_version\":1}").error() == "segments is missing");
  CHECK(seal_from_json("{\"format_version\":2}").error().starts_with("format_version is 2"));
}

TEST_CASE("A rotation that was scaled, moved or has two tables is kept whole, and a plain one is written as ever") {
  TraceManifest m = small_manifest();
  RotaryInfo& rotary = m.layers[0].rotary;
  rotary = {"adjacent_pairs", 2, 10000.0, 2, 1.1902380F, {0.3333333F}, 4096, {0.1F}};
  m.layers[0].k_width = 4;
  const std::string text = manifest_to_json(m);
  const TraceManifest read = manifest_from_json(text).or_throw("m");
  CHECK(manifest_to_json(read) == text);
  const RotaryInfo& again = read.layers[0].rotary;
  CHECK(again.first == 2);
  CHECK(again.magnitude == 1.1902380F);
  CHECK(again.inverse_frequencies == std::vector<float>{0.3333333F});
  CHECK(again.long_from == 4096);
  CHECK(again.long_inverse_frequencies == std::vector<float>{0.1F});
  CHECK(manifest_to_json(small_manifest()).find("magnitude") == std::string::npos);
  CHECK(refusal(text, "\"first\": 2", "\"first\": 3").starts_with("layers[0].rotary.first is 3, expected"));
  CHECK(refusal(text, "\"magnitude\": 1", "\"magnitude\": -1").starts_with("layers[0].rotary.magnitude is -1"));
  CHECK(refusal(text, "\"inverse_frequencies\": [\n", "\"inverse_frequencies\": [1, \n")
            .starts_with("layers[0].rotary.inverse_frequencies"));
  CHECK(refusal(text, "\"long_inverse_frequencies\"", "\"other\"") ==
        "layers[0].rotary.long_inverse_frequencies is missing");
}
