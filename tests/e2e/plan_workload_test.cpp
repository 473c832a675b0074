// What plan takes a model, a budget and its devices to be.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/support/gguf_bytes.hpp"
#include "tests/support/program_json.hpp"
#include "tests/support/run_program.hpp"

using kvroof::test::has_note;
using kvroof::test::json_of;
using kvroof::test::Ran;
using kvroof::test::run_program;
using kvroof::test::TemporaryFolder;
using nlohmann::json;

namespace {

json plan(const std::string& words) { return json_of("plan " + words); }

}  // namespace

TEST_CASE("a bundled model has its name in predictions, as it has in runs") {
  const std::string words = " --device h200 --prompt 1k --output 64";
  const json named = plan("--model demo" + words), folder = plan("--model " KVROOF_SOURCE_DIR "/models/demo" + words);
  CHECK(named == folder);
  const Ran shown = run_program("models show demo");
  INFO(shown.err);
  CHECK(shown.code == 0);
  CHECK(shown.out == run_program("models show " KVROOF_SOURCE_DIR "/models/demo").out);
}

TEST_CASE("a policy that looks ahead is served by no engine: predictions refuse it, with a trace and without") {
  const TemporaryFolder folder;
  const std::string trace = folder.file("run.kvt");
  const Ran made = run_program("record --model demo --ids '5 17 9 33 8 21' --max-tokens 4 --ignore-eos -o " + trace);
  REQUIRE(made.code == 0);
  for (const std::string verb : {"plan", "compare", "simulate --rate 1"}) {
    for (const std::string policy : {"oracle", "oracle-causal"}) {
      for (const std::string& more : {std::string(), " --trace " + trace}) {
        const Ran ran = run_program(verb + " --model llama-3-8b --device h200 --prompt 1k --output 64 --policy " +
                                    policy + ":budget=0.5" + more);
        INFO(verb << more << ": " << ran.err);
        CHECK(ran.code == 2);
        CHECK(ran.err.find("policy " + policy + " looks ahead and is a bound") != std::string::npos);
      }
    }
  }
}

TEST_CASE("a budget in tokens is the share of the prompt that it is, however long the prompt") {
  const std::string work = "--model llama-3.1-8b --device h200 --prompt 128k --output 256 --policy ";
  const std::pair<const char*, const char*> same[] = {{"h2o:budget=0.1:when=512", "h2o:budget=13107:when=512"},
                                                      {"r-kv:budget=0.1", "r-kv:budget=13107"},
                                                      {"scissorhands:budget=0.25", "scissorhands:budget=32768"}};
  for (const auto& [share, tokens] : same) {
    INFO(share);
    const json a = plan(work + share), b = plan(work + tokens);
    CHECK(a["largest_batch"] == b["largest_batch"]);
    CHECK(a["batch"] == b["batch"]);
    // At most 13,107 tokens and the 512 since the last eviction, of 32 layers of 8 heads of 4 KiB a token and layer.
    if (std::string(share).find("when=512") != std::string::npos) {
      const double rows = 141.0 * (1ULL << 30) / ((13107 + 256 + 1) * 32 * 4096.0);
      CHECK(b["largest_batch"].get<double>() < rows);
      CHECK(b["largest_batch"].get<double>() > 0.6 * rows);
    }
  }
}

TEST_CASE("plan says how little of a cache a policy can take where rows stand for several tokens") {
  const std::string words = "--model deepseek-v4-flash --engine sglang --device h200 --tp 4 --prompt 8k --output 128 "
                            "--batch 16 --policy ";
  const json evicting = plan(words + "h2o:budget=0.5"), full = plan(words + "full");
  // 43 windows of 128 rows; 8,320 tokens are 2,080 rows in 21 layers and 65 in 20.
  CHECK(has_note(evicting, "act on the 44980 that stand for several tokens each, of which budgets are, and 5504 of "
                           "windows stay; the cache is small before anything is evicted"));
  CHECK_FALSE(has_note(full, "before anything is evicted"));
}

TEST_CASE("a recording of layers with windows is projected on its own shape as it is") {
  const TemporaryFolder folder;
  const std::string model = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/gpt_oss";
  const std::string trace = folder.file("a.kvt");
  std::string ids;
  for (int i = 0; i < 40; ++i) ids += std::to_string((7 * i + 3) % 64) + " ";
  const Ran recorded =
      run_program("record -q --model " + model + " --ids '" + ids + "' -n 30 --ignore-eos -o " + trace);
  INFO(recorded.err);
  REQUIRE(recorded.code == 0);
  const auto held = [&](const std::string& as) {
    const Ran ran = run_program("replay " + trace + " --policy r-kv:when=8:window=2:budget=40,scissorhands:budget=40,"
                                "scissorhands:budget=6:recent=2,h2o:budget=6,full --format json" + as);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    std::vector<double> bytes;
    const json points = json::parse(ran.out)["points"];
    for (const json& p : points) bytes.push_back(p["kv_resident_bytes"].get<double>());
    return bytes;
  };
  CHECK(held("").size() == 5);
  CHECK(held(" --as " + model) == held(""));
}

TEST_CASE("weights are as the checkpoint is stored where its name or its publisher says so, and the answer says it") {
  const std::string alone = " --device h100-sxm --prompt 2k --output 128", work = alone + " --engine vllm";
  const json named = plan("--model Qwen/Qwen3-30B-A3B-FP8" + work);
  const json asked = plan("--model qwen3-30b-a3b --dtype fp8" + work);
  CHECK(named["largest_batch"] == asked["largest_batch"]);
  CHECK(has_note(named, "weights are taken in fp8"));
  CHECK_FALSE(has_note(asked, "weights are taken in"));
  const json published = plan("--model openai/gpt-oss-20b" + work);
  CHECK(published["largest_batch"] == plan("--model gpt-oss-20b --dtype mxfp4" + work)["largest_batch"]);
  CHECK(has_note(published, "weights are taken in mxfp4"));
  CHECK(plan("--model gpt-oss-20b --dtype bf16" + work)["largest_batch"] < published["largest_batch"]);
  CHECK_FALSE(has_note(plan("--model llama-3.1-8b" + work), "weights are taken in"));
  const std::string models = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/models/";
  const std::string here = " --device h100-sxm --prompt 64 --output 16 --engine vllm";
  CHECK(has_note(plan("--model " + models + "deepseek_v3-fp8" + here), "weights are taken in fp8"));
  CHECK(has_note(plan("--model " + models + "gpt_oss-mxfp4/config.json" + here), "weights are taken in mxfp4"));
  CHECK_FALSE(has_note(plan("--model " + models + "deepseek_v3" + here), "weights are taken in"));
  // Our own engine runs them in 16 bits.
  const json own = plan("--model openai/gpt-oss-20b" + alone);
  CHECK(own["largest_batch"] == plan("--model gpt-oss-20b --dtype bf16" + alone)["largest_batch"]);
  CHECK(has_note(own, "this checkpoint is stored in mxfp4; kvroof's own engine runs it in 16 bits"));
}

TEST_CASE("beyond the devices that links join a network is taken, which is slower and is said") {
  const std::string work = "--model llama-3.1-405b --dtype fp8 --batch 8 --prompt 2k --output 256 --tp 16 --device ";
  const json two_servers = plan(work + "h100-sxm"), rack = plan(work + "h100-sxm:link_devices=16");
  CHECK(has_note(two_servers, "the links of h100-sxm join 8"));
  CHECK_FALSE(has_note(rack, "the links of"));
  const auto step = [](const json& p) { return p["tpot_ms"]["value"].get<double>(); };
  CHECK(step(two_servers) > 1.3 * step(rack));
}

TEST_CASE("servers of several sizes are compared by what each of their devices makes, as a plan chooses among them") {
  const std::string work =
      " --model llama-3.1-70b --dtype fp8 --engine vllm --device h100-sxm --prompt 2k --output 256 ";
  const auto first = [&](const std::string& by) {
    const Ran ran = run_program("compare" + work + "--tp 4,8 --format json" + by);
    INFO(ran.err);
    REQUIRE(ran.code == 0);
    return json::parse(ran.out);
  };
  const json ranked = first("");
  CHECK(ranked["by"] == "tokens_per_s_a_device");
  CHECK(ranked["points"][0]["tensor_parallel"] == plan(work + "--tp 4,8 --under-load")["tensor_parallel"]);
  CHECK(ranked["points"][0]["tokens_per_s_a_device"] >= ranked["points"][1]["tokens_per_s_a_device"]);
  CHECK(first(" --by tokens_per_s")["points"][0]["tensor_parallel"] == 8);
  const json alike = json::parse(run_program("compare" + work + "--tp 4 --format json").out);
  CHECK(alike["by"] == "tokens_per_s");
}

TEST_CASE("a plan leaves no temporary files, also when it is interrupted, and says where it wants them") {
  const TemporaryFolder folder;
  const std::string program = "TMPDIR=" + folder.path().string() + " timeout -k 20 -s INT ";
  const std::string words = "plan --model llama-3.1-8b --device h200 --prompt 128k --output 1k --policy h2o:budget=0.3";
  for (const char* seconds : {"0.2 ", "0.5 ", "100 "}) {
    const Ran ran = run_program(words, program + seconds + KVROOF_PROGRAM);
    INFO(seconds << ran.err);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
  const json wide = plan("--model llama-3.1-8b --device h200 --prompt 128k --policy streaming:budget=8192:sinks=4096");
  CHECK(wide["batch"] > 0);
  const Ran nowhere = run_program(words, "TMPDIR=/no/such/folder " KVROOF_PROGRAM);
  CHECK(nowhere.code == 2);
  CHECK(nowhere.err.starts_with("error: the folder for temporary files is not there\n"));
}

TEST_CASE("a GGUF file and a config.json of AWQ are planned with the bytes that such files have") {
  const TemporaryFolder folder;
  kvroof::test::GgufBytes file = kvroof::test::llama_gguf({2, 256, 4, 2, 512, 1024, 4096}, 12, 256, 144);
  file.size("general.file_type", 15);
  std::string bytes = file.header();
  bytes.resize(file.file_size());
  std::ofstream(folder.file("tiny.gguf"), std::ios::binary) << bytes;
  const std::string work = " --device rtx-4090 --prompt 64 --output 16";
  const json gguf = plan("--model " + folder.file("tiny.gguf") + work + " --engine llama-cpp");
  CHECK(gguf["weight_type"] == "Q4_K_M");
  CHECK(has_note(gguf, "weights are taken in Q4_K_M"));
  // Two layers of 589,824 and two matrices of 262,144 in blocks of 256 in 144 bytes, five norms in f32.
  CHECK(gguf["ledger"][0]["bytes"] == (2 * 589824 + 2 * 262144) / 256 * 144 + 5 * 256 * 4);

  std::filesystem::create_directory(folder.file("awq"));
  std::ofstream(folder.file("awq/config.json")) << R"({"model_type": "llama", "hidden_size": 256, "vocab_size": 1024,
      "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "torch_dtype": "float16",
      "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true}})";
  const json awq = plan("--model " + folder.file("awq") + work + " --engine vllm");
  CHECK(awq["weight_type"] == "int4");
  // Layers and norms at 4 + 20 / 128 bits, embedding and head in 16.
  CHECK(awq["ledger"][0]["bytes"] == static_cast<std::uint64_t>((2 * 589824 + 5 * 256) * (4 + 20.0 / 128) / 8) +
                                         2 * 262144 * 2);
  const Ran run = run_program("run --model " + folder.file("awq") + " --prompt hello");
  CHECK(run.code == 2);
  CHECK(run.err.find("quantised checkpoints are run in FP8 (E4M3)") != std::string::npos);
}

TEST_CASE("a checkpoint stored in a way that nobody here knows is priced as --dtype says it is, or refused") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("config.json")) << R"({"model_type": "llama", "hidden_size": 256, "vocab_size": 1024,
      "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "torch_dtype": "float16",
      "quantization_config": {"quant_method": "hqq", "weight_quant_params": {"nbits": 4}}})";
  const std::string words =
      "plan --model " + folder.file("") + " --device rtx-4090 --prompt 64 --output 16 --engine vllm";
  const Ran refused = run_program(words);
  CHECK(refused.code == 2);
  CHECK(refused.err.find("config.json: quantization_config.quant_method is \"hqq\"; of quant_method are known ") !=
        std::string::npos);
  CHECK(refused.err.find("--dtype says how weights are stored") != std::string::npos);
  CHECK(json_of(words + " --dtype int4")["weight_type"] == "int4");
}

TEST_CASE("a GGUF file whose windows nothing names is counted without them, and plan and models show say so") {
  const TemporaryFolder folder;
  kvroof::test::GgufBytes file =
      kvroof::test::llama_gguf({2, 256, 4, 2, 512, 1024, 4096}, 12, 256, 144, "of-next-year");
  file.size("of-next-year.attention.sliding_window", 32);
  std::string bytes = file.header();
  bytes.resize(file.file_size());
  std::ofstream(folder.file("tiny.gguf"), std::ios::binary) << bytes;
  const std::string words = "which layers of 'of-next-year' slide over 32 tokens is not known";
  const std::string work = " --device rtx-4090 --prompt 64 --output 16 --engine llama-cpp";
  CHECK(has_note(plan("--model " + folder.file("tiny.gguf") + work), words));
  const Ran shown = run_program("models show " + folder.file("tiny.gguf"));
  CHECK(shown.out.find(words) != std::string::npos);
  CHECK(json_of("models show " + folder.file("tiny.gguf"))[0]["unknown_windows"].get<std::string>().starts_with(words));
}

TEST_CASE("weights of a type that a board does not multiply are told from those whose rate is not known") {
  const auto on = [](const std::string& device) {
    return plan("--model llama-3.2-1b --engine vllm --prompt 64 --output 16 --dtype int8 --device " + device);
  };
  CHECK(has_note(on("v100-32g"), "weights in int8 on v100-32g: this hardware multiplies no such numbers"));
  CHECK(has_note(on("rx-7900-xtx"), "no rate of such numbers is known for this hardware"));
  for (const char* device : {"a10", "t4", "rtx-3090", "h100-nvl", "gb200", "mi300x", "tpu-v5e"}) {
    INFO(device);
    CHECK_FALSE(has_note(on(device), "such numbers"));
  }
}
