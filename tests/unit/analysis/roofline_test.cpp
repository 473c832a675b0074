#include "analysis/roofline.hpp"

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

// A kernel of `ns` that an operator of an engine step declared.
WorkRow launch(std::uint32_t step, std::string_view operation, std::uint64_t ns, std::uint64_t bytes,
               std::uint64_t flops) {
  WorkRow row;
  row.work.start_ns = 1000;
  row.work.end_ns = 1000 + ns;
  row.meaning = KernelMeaning{step, 0, operation, "weights", ByteCounters{{bytes, 0, 0, 0, 0, 0}}, flops};
  return row;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("An operator's place in a roofline is its operations by its bytes and by its time, of each phase apart") {
  RooflineBuilder builder({{0, "prefill"}, {1, "decode"}, {2, "decode"}});
  builder.add(launch(0, "qkv", 2000, 4000, 400'000));
  for (const std::uint32_t step : {1U, 2U}) {
    builder.add(launch(step, "qkv", 1000, 2000, 4000));
    builder.add(launch(step, "norm", 400, 500, 0));
    builder.add(launch(step, "scores", 100, 0, 0));
  }
  builder.add(launch(0, "scores", 100, 10, 10));
  const Roofline r = builder.finish(20);
  CHECK(r.groups == std::vector<std::string>{"decode", "prefill"});
  REQUIRE(r.marks.size() == 5);
  const RooflineMark& decode = r.marks[0];
  CHECK(decode.name == "qkv");
  CHECK(decode.group == 0);
  CHECK(decode.flops_per_byte == Approx(2));
  CHECK(decode.flops_per_second == Approx(4e9));
  CHECK(decode.share == Approx(2000 / 5100.0));
  const RooflineMark& whole = r.marks[1];
  CHECK(whole.whole);
  CHECK(whole.flops_per_byte == Approx(8000 / 5000.0));  // the bytes of norms count, and their time
  CHECK(whole.flops_per_second == Approx(8000 / 3000e-9));
  CHECK(r.marks[2].group == 1);
  CHECK(r.marks[2].flops_per_byte == Approx(100));
  CHECK(r.left_out == std::vector<std::string>{"norm", "scores of decode"});
  CHECK(r.left_out_share == Approx(1000 / 5100.0));
}

TEST_CASE("An operator of which some launches declare nothing has no place in a roofline, nor have all kernels then") {
  RooflineBuilder builder({});
  for (const std::string_view name : {"mm", "other"}) builder.add(launch(kNoStep, name, 1000, 2000, 4000));
  WorkRow unknown;
  unknown.name = "copy";
  unknown.work = launch(0, "", 1000, 0, 0).work;
  builder.add(unknown);
  const Roofline r = builder.finish(1);
  CHECK(r.groups == std::vector<std::string>{""});
  REQUIRE(r.marks.size() == 1);  // the one of --top 1, and not all kernels
  CHECK(r.marks[0].name == "mm");
  CHECK(r.left_out == std::vector<std::string>{"copy"});
}

// The axes: x has 8 octaves from 1 to 256 (4 ridges) in 552 units, y three decades from 0.1 to 100 Tflop/s in 330.
TEST_CASE("A roofline's marks lie where their numbers say, under a roof that breaks at the ridge") {
  const Roof roof{1e12, 64e12};
  Roofline r;
  r.groups = {"decode"};
  r.marks = {{"qkv & more", 0, false, 2, 1e12, 0.25}, {"all kernels", 0, true, 4, 2e12, 1}};
  const std::string svg = roofline_svg("a run", roof, r);
  INFO(svg);
  CHECK(holds(svg, "cx=\"135.0\" cy=\"304.0\" r=\"13.0\""));  // an octave, a decade; a quarter of the area
  CHECK(holds(svg, "M204.0,264.4 l6.5,6.5"));  // 414 - 110 · log10(2 / 0.1), less half the diamond
  CHECK(holds(svg, "<path class=\"roof\" d=\"M66.0,304.0 L480.0,105.3 L618.0,105.3\"/>"));
  for (const char* text : {"1000 GB/s", "64 Tflop/s in 16 bits", "A", "qkv &amp; more", "25 %", "2", "50 %",
                           "arithmetic intensity (flop/byte)", "operations reached (Tflop/s)", "128", "0.1"}) {
    INFO(text);
    CHECK(holds(svg, std::string(">") + text + "</text>"));
  }
}

TEST_CASE("Marks of a roofline that lie upon one another share a label, from the highest to the lowest") {
  Roofline r;
  r.groups = {""};
  r.marks = {{"a", 0, false, 1, 1e12, 0.5}, {"b", 0, false, 1, 1.1e12, 0.3}, {"c", 0, false, 32, 9e12, 0.1}};
  const std::string svg = roofline_svg("", {1e12, 64e12}, r);
  CHECK(holds(svg, ">B A</text>"));
  CHECK(holds(svg, ">C</text>"));
}
