// Formats of weights as checkpoints are named.
#include "sim/cost/weight_format.hpp"
#include "tests/catch.hpp"

TEST_CASE("the end of a checkpoint's name says how its weights are stored, and a size is no format") {
  const std::pair<const char*, const char*> cases[] = {{"Qwen3-30B-A3B-FP8", "fp8"},
                                                       {"Llama-3.1-8B-Instruct-FP8-dynamic", "fp8"},
                                                       {"Qwen3-32B-AWQ", "int4"},
                                                       {"Qwen2.5-7B-Instruct-GPTQ-Int4", "int4"},
                                                       {"Qwen2.5-7B-Instruct-GPTQ-Int8", "int8-wo"},
                                                       {"Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "int8"},
                                                       {"llama-2-7b.Q4_K_M", "Q4_K_M"},
                                                       {"Llama-3.2-3B-Instruct-bnb-4bit", "int4"},
                                                       {"DeepSeek-R1-NVFP4", "nvfp4"}};
  for (const auto& [name, expected] : cases) {
    INFO(name);
    const auto found = kvroof::format_in_name(name);
    REQUIRE(found.has_value());
    CHECK(found->name == expected);
  }
  for (const char* plain :
       {"Llama-3.1-8B-Instruct", "gpt-j-6b", "opt-1.3b", "Kimi-K2-Instruct-0905", "phi-4", "gpt2"}) {
    INFO(plain);
    CHECK_FALSE(kvroof::format_in_name(plain).has_value());
  }
}
