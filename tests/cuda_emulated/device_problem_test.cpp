#include "kernels/cuda/device_problem.hpp"

#include <cstring>

#include "kernels/cuda/cuda.hpp"
#include "tests/catch.hpp"

using namespace kvroof::cuda;

TEST_CASE("no driver, an old driver, no GPU and a GPU without code are told apart") {
  DeviceFacts facts;
  facts.runtime = 13000;
  CHECK(device_problem(facts, "x") == "no NVIDIA driver is installed (libcuda.so.1 was not found)");
  facts.driver = 12040;
  CHECK(device_problem(facts, "x") ==
        "the NVIDIA driver is too old: it runs CUDA 12.4, and this program needs 13.0 or newer");
  facts.driver = 13010;
  CHECK(device_problem(facts, "system not yet initialized") == "the GPU cannot be used: system not yet initialized");
  facts.devices = 0;
  CHECK(device_problem(facts, "x") == "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES can hide them)");
  facts.devices = 1;
  CHECK(device_problem(facts, "uncorrectable ECC error") == "the GPU cannot be used: uncorrectable ECC error");
  std::strcpy(facts.name, "Tesla T4");
  facts.major = 7;
  facts.minor = 5;
  CHECK(device_problem(facts, "x") ==
        "the GPU, Tesla T4, has compute capability 7.5; this program has code for 8.0 and newer");
  facts.has_code = true;
  CHECK(device_problem(facts, "out of memory").starts_with("other programs hold nearly all memory of the GPU"));
}

TEST_CASE("policies whose rows or positions the device cannot make are named, and others are not") {
  const auto problem = [](const char* policy) {
    return kvroof::cuda_policy_problem(kvroof::parse_policies(policy).front()).value_or("");
  };
  for (const char* policy : {"quest:budget=0.5", "h2o-masked", "keyformer-refcompat:budget=0.5"}) {
    CHECK(problem(policy).ends_with(", which reads a part of what it keeps"));
  }
  CHECK(problem("d2o:budget=0.5") == "policy d2o, which merges tokens");
  CHECK(problem("streaming:budget=0.5:positions=slot") == "policy streaming with positions=slot");
  CHECK(problem("oracle-causal:budget=0.5").ends_with(", which looks ahead"));
  CHECK(problem("keyformer:budget=0.5:score=shared") == "policy keyformer, which decides for all layers at once");
  CHECK(problem("streaming:budget=0.5") == "");
  CHECK(problem("fastgen") == "");
  CHECK(problem("h2o:budget=0.5:layers=pyramid") == "");
  CHECK(problem("keyformer:budget=0.5:draw=gaussian") == "");
}
