#include <cmath>

#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

std::string mistral4(const std::string& rotary, const std::string& more = "") {
  return R"({"model_type":"mistral4","rope_parameters":{"rope_type":"yarn","rope_theta":10000.0,"factor":128.0,)"
         R"("original_max_position_embeddings":8192,"mscale":1.0,"mscale_all_dim":1.0)" +
         rotary + "}" + more + "}";
}

std::string problem_of(const std::string& text) {
  const Result<ModelConfig> config = parse_config_json(text);
  return config.ok() ? "" : config.error();
}

}  // namespace

TEST_CASE("queries grow by the logarithm of the whole original lengths before them, and not within the first") {
  const QueryScale scale{0.1F, 16384};
  CHECK(scale.at(0) == 1);
  CHECK(scale.at(16383) == 1);
  CHECK(scale.at(16384) == Approx(1 + 0.1 * std::log(2.0)));
  CHECK(scale.at(5 * 16384 + 1) == Approx(1 + 0.1 * std::log(6.0)));
  CHECK_FALSE(QueryScale{});
}

TEST_CASE("what a file leaves out of Mistral 4 is what its class has, and is run") {
  const Result<ModelConfig> config = parse_config_json(mistral4(R"(,"llama_4_scaling_beta":0.1)"));
  REQUIRE(config.ok());
  const auto& [shape, options] = config.value();
  // By hand: a layer has 4096·1024 + 1024·32·128 + 4096·320 + 32·192·256 + 32·128·4096 in attention, 1280 in its norms,
  // 8192 in the layer's, and 129 experts of 3·4096·2048 with a router of 4096·128; 36 of them, and twice 131072·4096.
  CHECK(parameter_count(shape) == 36ULL * (28'049'408 + 1280 + 8192 + 129 * 25'165'824ULL + 524'288) + 1'073'745'920);
  CHECK(shape.head_dim == 320);
  CHECK_FALSE(shape.router_bias);
  CHECK(options.routing.scores == RouterScores::kSoftmax);
  CHECK((options.routing.renormalise && options.routing.group_best == 2));
  CHECK((options.query_scale.beta == 0.1F && options.query_scale.original == 8192));
  CHECK(options.rotary.at(0).dims == 64);
  CHECK(options.cannot_run.empty());
}

TEST_CASE("queries stay as they are where nothing says that they grow") {
  for (const char* none : {"", R"(,"llama_4_scaling_beta":0)"}) {
    const Result<ModelConfig> config = parse_config_json(mistral4(none));
    REQUIRE(config.ok());
    CHECK_FALSE(config.value().options.query_scale);
  }
}

TEST_CASE("a share of the head that turns, other than the rotated size says, is refused, and so is a negative growth") {
  CHECK(problem_of(mistral4(R"(,"partial_rotary_factor":0.5)")).empty());
  CHECK(problem_of(mistral4(R"(,"partial_rotary_factor":0.25)")).find("rope_parameters.partial_rotary_factor") == 0);
  CHECK(problem_of(mistral4("", R"(,"partial_rotary_factor":1.0)")).find("qk_rope_head_dim says that 64 of the 128") !=
        std::string::npos);
  CHECK(problem_of(mistral4(R"(,"llama_4_scaling_beta":-1)")).find("llama_4_scaling_beta") != std::string::npos);
}

TEST_CASE("what follows a zero byte is no part of a configuration, which is refused for it") {
  using namespace std::string_literals;
  CHECK(problem_of(mistral4("") + "\0}"s) == "not valid JSON");
}
