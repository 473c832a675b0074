// What the engine says of models that it does not run.
#include "kernels/engine/weight_families.hpp"

#include "tests/catch.hpp"

using namespace kvroof;

TEST_CASE("a family without names of weights is refused in a sentence, unless its configuration has a nearer reason") {
  ModelConfig config;
  config.shape.family = "llama";
  CHECK(not_run(config).empty());
  config.shape.family = "mystery";
  CHECK(not_run(config) ==
        "the engine does not run model_type mystery; plan, compare and simulate take this model as it is");
  config.options.cannot_run = "the engine does not run weights of 3 bits";
  CHECK(not_run(config) == config.options.cannot_run);
}
