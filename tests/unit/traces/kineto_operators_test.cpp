#include "traces/kineto_operators.hpp"

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/import_profile.hpp"
#include "traces/null_sink.hpp"

namespace kvroof {
namespace {

using namespace kvroof::test;
using Shapes = std::vector<std::vector<std::uint64_t>>;

std::optional<ShapedOperator> shaped(const std::string& name, const Shapes& shapes,
                                     std::vector<std::string> types = {}) {
  KinetoEvent event;
  event.name = name;
  event.shapes = shapes;
  types.resize(shapes.size(), "c10::BFloat16");
  event.types = types;
  return shaped_operator(event);
}

}  // namespace

TEST_CASE("A product of matrices reads both operands and writes the result once, for two operations a multiplication") {
  const auto mm = shaped("aten::mm", {{4, 4096}, {4096, 6144}});
  REQUIRE(mm);
  CHECK(mm->name == "aten::mm 4x4096 4096x6144");
  CHECK(mm->bytes == 2ULL * (4 * 4096 + 4096 * 6144 + 4 * 6144));
  CHECK(mm->flops == 2ULL * 4 * 4096 * 6144);
  const auto addmm = shaped("aten::addmm", {{6144}, {4, 4096}, {4096, 6144}, {}, {}});
  REQUIRE(addmm);
  CHECK(addmm->name == "aten::addmm 4x4096 4096x6144");
  CHECK((addmm->bytes == mm->bytes && addmm->flops == mm->flops));
  const auto bmm = shaped("aten::bmm", {{32, 1, 128}, {32, 128, 999}});
  REQUIRE(bmm);
  CHECK(bmm->bytes == 32 * 2ULL * (128 + 128 * 999 + 999));
  CHECK(bmm->flops == 32 * 2ULL * 128 * 999);
  // The peak that kernels are held to is that of 16 bits.
  const auto single = shaped("aten::mm", {{4, 8}, {8, 2}}, {"float", "float"});
  REQUIRE(single);
  CHECK(single->bytes == 4 * (32 + 16 + 8));
  CHECK(single->flops == 0);
}

TEST_CASE("Shapes that no tensor has, or whose products leave 64 bits, say nothing of what an operator moves") {
  constexpr std::uint64_t kHuge = 4294967297;  // whose square is 2^33 + 1 in 64 bits
  CHECK_FALSE(shaped("aten::mm", {{kHuge, kHuge}, {kHuge, 2}}));
  CHECK_FALSE(shaped("aten::mm", {{2, kHuge}, {kHuge, kHuge}}));
  CHECK_FALSE(shaped("aten::_flash_attention_forward", {{kHuge, kHuge, 1}, {kHuge, kHuge, 1}, {kHuge, kHuge, 1}}));
  CHECK_FALSE(shaped("aten::mm", {{0, 4}, {4, 8}}));
  CHECK(shaped("aten::mm", {{1U << 24U, 1U << 24U}, {1U << 24U, 1}}));
}

TEST_CASE("A product in 8 bits moves its operands, their scales, and a result whose type the call says") {
  KinetoEvent event;
  event.name = "aten::_scaled_mm";
  event.shapes = {{16, 4096}, {4096, 6144}, {}, {}, {}, {}, {}, {}};
  event.types = {"c10::Float8_e4m3fn", "c10::Float8_e5m2", "float", "float", "", "", "Scalar", "Scalar"};
  event.values = {"", "", "", "", "", "", "15", "True"};  // bfloat16
  const auto tensors = shaped_operator(event);
  REQUIRE(tensors);
  CHECK(tensors->name == "aten::_scaled_mm 16x4096 4096x6144");
  CHECK(tensors->bytes == 16 * 4096 + 4096 * 6144 + 2 * 16 * 6144 + 2 * 4);
  CHECK(tensors->flops == 0);
  event.values[6] = "";
  CHECK(shaped_operator(event)->bytes == 16 * 4096 + 4096 * 6144 + 16 * 6144 + 2 * 4);
  event.shapes[2] = {16, 32};  // of blocks of 128
  event.shapes[3] = {32, 48};
  event.values[6] = "6";  // float
  CHECK(shaped_operator(event)->bytes == 16 * 4096 + 4096 * 6144 + 4 * 16 * 6144 + 4 * 32 * (16 + 48));
  event.types[2] = event.types[3] = "c10::Float8_e8m0fnu";
  CHECK(shaped_operator(event)->bytes == 16 * 4096 + 4096 * 6144 + 4 * 16 * 6144 + 32 * (16 + 48));
  const KinetoEvent right = event;
  event.values[6] = "4";  // integers
  CHECK_FALSE(shaped_operator(event));
  event.values.clear();  // what the result is was not recorded
  CHECK_FALSE(shaped_operator(event));
  event = right;
  event.types = {"c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "c10::BFloat16", "Scalar", "float", "float", "", "Scalar"};
  CHECK_FALSE(shaped_operator(event));  // before PyTorch 2.5: bias, type and scales
  event.types = {"c10::Float4_e2m1fn_x2", "c10::Float4_e2m1fn_x2", "float", "float", "", "", "Scalar", "Scalar"};
  CHECK_FALSE(shaped_operator(event));
}

TEST_CASE("What a product in 8 bits must move is read from a profile, and no kernel without a time moves it") {
  const TemporaryFolder folder;
  const std::string file = folder.file("trace.json");
  write_file(file, R"j({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::_scaled_mm", "ts": 1, "dur": 1,
      "args": {"External id": 7, "Input Dims": [[16, 4096], [4096, 6144], [], [], [], [], [], []],
      "Concrete Inputs": ["", "", "", "", "", "", "15", "True"], "Input Strides": [[4096, 1], [1, 4096]],
      "Input type": ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "", "Scalar", "Scalar"]}},
      {"ph": "X", "cat": "kernel", "name": "gemm", "args": {"External id": 7, "correlation": 69}},
      {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "args": {"External id": 7, "correlation": 70}}]})j");
  struct : NullSink {
    using NullSink::add;
    void add(const OperatorRecord& record) override { bytes = record.declared_bytes; }
    std::uint64_t bytes = 0;
  } sink;
  const auto counts = read_kineto(file, sink);
  REQUIRE(counts);
  CHECK(counts.value().of_operators == 1);
  CHECK(sink.bytes == 16 * 4096 + 4096 * 6144 + 2 * 16 * 6144 + 2 * 4);
}

TEST_CASE("External ids are of operators unless they are the correlations in every kernel of a file") {
  const auto kernel = [](std::uint64_t external, std::uint64_t correlation) {
    KinetoEvent event;
    event.phase = "X";
    event.category = "kernel";
    event.external = external;
    event.correlation = correlation;
    return event;
  };
  KinetoEvent mm;
  mm.phase = "X";
  mm.category = "cpu_op";
  mm.name = "aten::mm";
  mm.shapes = {{4, 8}, {8, 2}};
  mm.types = {"c10::Half", "c10::Half"};
  struct : NullSink {
    using NullSink::add;
    void add(const OperatorRecord& record) override { told.emplace_back(record.correlation, record.declared_bytes); }
    std::vector<std::pair<std::uint32_t, std::uint64_t>> told;
  } sink;
  KinetoOperators older, newer;
  for (KinetoOperators* operators : {&older, &newer}) {
    for (const std::uint64_t id : {7, 8}) {
      mm.external = id;
      CHECK(operators->see(mm, sink) == 0);
      CHECK(operators->see(kernel(id, id), sink) == 0);
    }
  }
  CHECK(sink.told.empty());
  CHECK(newer.see(kernel(99, 20), sink) == 2);  // of no operator, but its two numbers tell what the others' are
  CHECK(newer.see(kernel(7, 21), sink) == 1);
  mm.external = 30;
  newer.see(mm, sink);
  CHECK(newer.see(kernel(30, 30), sink) == 1);
  constexpr std::uint64_t kBytes = 2 * (32 + 16 + 8);
  CHECK(sink.told == decltype(sink.told){{7, kBytes}, {8, kBytes}, {21, 0}, {30, kBytes}});
}

TEST_CASE("Attention reads q, k and v and writes as much as q has, its operations are not known") {
  for (const char* name : {"aten::_scaled_dot_product_flash_attention", "aten::_cudnn_attention_forward"}) {
    const auto attention = shaped(name, {{2, 32, 1, 128}, {2, 8, 4096, 128}, {2, 8, 4096, 128}, {}},
                                  {"c10::Half", "c10::Half", "c10::Half", "double"});
    REQUIRE(attention);
    CHECK(attention->bytes == 2ULL * (2 * 2 * 32 * 128 + 2 * 2 * 8 * 4096 * 128));
    CHECK(attention->flops == 0);
  }
  // The operators that these call in PyTorch have tokens before heads.
  for (const char* name : {"aten::_flash_attention_forward", "aten::_efficient_attention_forward"}) {
    const auto attention = shaped(name, {{2, 1, 32, 128}, {2, 4096, 8, 128}, {2, 4096, 8, 128}, {}, {}});
    REQUIRE(attention);
    CHECK(attention->name == std::string(name) + " 2x1x32x128 2x4096x8x128 2x4096x8x128");
    CHECK(attention->bytes == 2ULL * (2 * 2 * 32 * 128 + 2 * 2 * 8 * 4096 * 128));
  }
}

TEST_CASE("Nothing is said of operators, shapes and types that are not what such a call has") {
  CHECK_FALSE(shaped("aten::add", {{4, 8}, {8, 2}}));
  CHECK_FALSE(shaped("aten::mm", {}));
  CHECK_FALSE(shaped("aten::mm", {{4, 8}}));
  CHECK_FALSE(shaped("aten::mm", {{4, 8}, {9, 2}}));
  CHECK_FALSE(shaped("aten::mm", {{4, 8}, {8}}));
  CHECK_FALSE(shaped("aten::mm", {{4, 8}, {8, 2}}, {"c10::Half", "float"}));
  CHECK_FALSE(shaped("aten::mm", {{4, 8}, {8, 2}}, {"long int", "long int"}));
  CHECK_FALSE(shaped("aten::mm", {{0, 8}, {8, 2}}));
  CHECK_FALSE(shaped("aten::bmm", {{4, 1, 8}, {5, 8, 2}}));
  const std::uint64_t huge = std::uint64_t{1} << 40U;
  CHECK_FALSE(shaped("aten::mm", {{huge, huge}, {huge, huge}}));
  CHECK_FALSE(shaped("aten::mm", {{huge, 1}, {1, huge}}));
}

}  // namespace kvroof
