#include "analysis/scoreboard.hpp"

#include <cmath>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

constexpr const char* kHeader =
    "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,batch_mode,batch,input_len,output_len,"
    "metric,value,unit,source\n";

std::vector<PublishedRow> rows_of(const std::string& lines) {
  return published_rows(kHeader + lines).or_throw("rows");
}
std::string problem_of(const std::string& csv) {
  const auto rows = published_rows(csv);
  return rows ? "" : rows.error();
}
ScoredRow score(const PublishedRow& row) {
  return Scoreboard(std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog").score(row);
}

}  // namespace

TEST_CASE("published rows: quotes hold commas, line breaks and quotes") {
  const auto rows = rows_of("m1,kernel,\"a, \"\"b\"\"\nc\",bf16,,X,2,e,kernel,1,,,kernel_time,26.5,us,s\r\n"
                            "m2,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,1e3,us,\"\"");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].model == "a, \"b\"\nc");
  CHECK(rows[0].gpus == 2);
  CHECK(rows[0].value == 26.5);
  CHECK(rows[1].value == 1000);
  CHECK(rows[1].source.empty());
}

TEST_CASE("published rows that cannot be read are refused with their line") {
  CHECK(problem_of("").find("the column row_id is missing") != std::string::npos);
  CHECK(problem_of("row_id,\"x").find("line 1: a quote is never closed") == 0);
  CHECK(problem_of(std::string(kHeader) + "a,b\n") == "line 2: 2 fields, but the header has 16");
  const std::string good = "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,1,us,s\n";
  CHECK(problem_of(kHeader + good + "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,fast,us,s\n") ==
        "line 3: value `fast` is no number");
  CHECK(problem_of(kHeader + good + "m,kernel,d,bf16,,X,1,e,kernel,1,,,kernel_time,1,,s\n") ==
        "line 3: it has no unit");
  CHECK(problem_of(kHeader + good + good).empty());
}

TEST_CASE("a matrix product is its start-up and the bytes of its weights, computed by hand") {
  const auto row =
      rows_of("m,kernel,GEMM m=1 n=4096 k=4096,bf16,,A100-SXM4-80GB,1,e,kernel,1,,,kernel_time,26.21,us,s\n");
  const ScoredRow scored = score(row[0]);
  REQUIRE(scored.predicted);
  const double by_hand = 5.3 + 4096.0 * 4096 * 2 / (0.76 * 2039e3);
  CHECK(scored.predicted->value == Approx(by_hand).epsilon(1e-6));
  CHECK(scored.error() == Approx(by_hand / 26.21 - 1).epsilon(1e-6));
}

TEST_CASE("what the model does not know is refused in words, never predicted") {
  const auto refused = [](const std::string& line) { return score(rows_of(line)[0]).refused; };
  CHECK(refused("m,kernel,GEMM m=1 n=9 k=9,bf16,,B9000,1,e,kernel,1,,,kernel_time,1,us,s\n") ==
        "no such device in the catalog");
  CHECK(refused("m,end_to_end,Llama-7B,fp8,fp8,H100-SXM-80GB,1,e,static,1,9,9,total_latency,1,ms,s\n") ==
        "weights are not of 16 bits");
  CHECK(refused("m,end_to_end,Llama-7B,fp16,fp16,A100-SXM4-80GB,2,e,static,1,9,9,total_latency,1,ms,s\n") ==
        "several devices");
  // 1 GiB in 10 us is 50 times what the memory can do.
  CHECK(refused("m,kernel,decode attention 32q/8kv heads x128,,bf16,A100-SXM4-80GB,1,e,kernel,64,4096,1,kernel_time,"
                "10,us,s\n")
            .find("faster than the memory's peak") == 0);
}

TEST_CASE("groups add up errors, their sign, and how many rows lie inside their intervals") {
  PublishedRow a, b;
  a.value = 100;
  b.value = 200;
  const Estimate far{150, 120, 187.5, 110, 204.5, CostTerm::kLinear};
  const Estimate near{190, 170, 212.4, 160, 225.6, CostTerm::kLinear};
  const ScoredRow rows[] = {{&a, "g", far, ""}, {&b, "g", near, ""}, {&a, "g", {}, "refused"}};
  const auto groups = group_scores(rows);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].rows == 2);
  CHECK(groups[0].mean_error == Approx((0.5 + 0.05) / 2));
  CHECK(groups[0].bias == Approx((0.5 - 0.05) / 2));
  CHECK(groups[0].p90_error == Approx(0.5));
  CHECK(groups[0].covered80 == Approx(0.5));
  CHECK(groups[0].covered95 == Approx(0.5));
}

}  // namespace kvroof
