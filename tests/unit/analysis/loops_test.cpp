// Loops of clients, open and closed: what they make of prompts and steps.
#include <fmt/format.h>

#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/scored_rows.hpp"

namespace kvroof {

TEST_CASE("clients in a closed loop get one answer each in the time of all their prompts and an answer's steps") {
  // Under an engine whose requests have their places at once.
  const auto of = [](int clients, int output, const std::string& metric) {
    const std::string unit = metric.starts_with("output") ? "tok/s" : "s";
    return predicted(fmt::format("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,lmdeploy,continuous_fixed_concurrency,"
                                 "{},1000,{},{},,{},s\n",
                                 clients, output, metric, unit));
  };
  const double prompt = of(1, 201, "ttft"), step = of(16, 201, "itl_median");
  CHECK(of(1, 201, "output_tokens_per_s") == Approx(201 / of(1, 201, "e2e_mean")));
  // Prompts of 1,000 tokens take as long together as one by one, but for a little of their starts.
  CHECK(of(16, 201, "output_tokens_per_s") == Approx(16 * 201 / (16 * prompt + 200 * step)).epsilon(0.02));
  // Most tokens wait for no prompt, unless there are prompts in most steps.
  CHECK(of(16, 201, "itl_mean") == Approx(step + 15 * prompt / 201).epsilon(0.02));
  CHECK(of(16, 20, "itl_median") == Approx(of(16, 20, "itl_mean")));
}

TEST_CASE("a first token waits for some steps, a twentieth of the clients' prompts and those that ended with it") {
  const auto of = [](const char* engine, int clients, const char* metric, const char* conditions = "") {
    // Four prompts, or more, fit in a step.
    return predicted(fmt::format("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,{},continuous_fixed_concurrency,{},"
                                 "{},200,{},,s,s\n", engine, clients, std::string(engine) == "vLLM" ? 500 : 1000,
                                 metric), conditions);
  };
  const auto steps = [&](const char* engine, int clients) { return of(engine, clients, "itl_median"); };
  const double one = of("lmdeploy", 1, "ttft_mean");
  // No more than the other client's prompt; at 20 clients three, and the twentieth of the burst that begins the loop.
  CHECK(of("lmdeploy", 2, "ttft_mean") == Approx(2 * one + 1.5 * steps("lmdeploy", 2)).epsilon(0.003));
  CHECK(of("lmdeploy", 20, "ttft_mean") == Approx((1 + 3 + 1) * one + 1.5 * steps("lmdeploy", 20)).epsilon(0.06));
  // vLLM takes a request into the step after the next, and prompts share its chunks.
  const double arrival = 0.0156, prompt = of("vLLM", 1, "ttft_mean") - arrival, step = steps("vLLM", 20);
  CHECK(of("vLLM", 20, "ttft_mean") == Approx((1 + 1 + 1) * prompt + arrival + 2.5 * step).epsilon(0.06));
  // Answers that end at any time: Pollaczek and Khinchine's wait for prompts of one length, at their share of a token.
  const char* drawn = "ShareGPT";
  const double token = of("vLLM", 20, "itl_mean", drawn), busy = 1 - step / token;
  CHECK(of("vLLM", 20, "ttft_mean", drawn) ==
        Approx((1 + 1 + busy / (2 * (1 - busy))) * prompt + arrival + 2.5 * step).epsilon(0.03));
}

TEST_CASE("equal answers behind prompts that go first end together: half of the prompts are before the first token") {
  const auto of = [](int clients, const std::string& metric, const std::string& conditions = "") {
    const std::string unit = metric.starts_with("output") ? "tok/s" : "s";
    return predicted(fmt::format("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,SGLang,continuous_fixed_concurrency,"
                                 "{},1000,201,{},,{},s\n", clients, metric, unit), conditions);
  };
  // Eight prompts of 1,000 tokens are a pass: sixteen clients wait for one pass or two, and then for one or none.
  const double pass = of(8, "ttft_mean"), step = of(16, "itl_median");
  CHECK(of(16, "ttft_mean") == Approx(1.5 * pass).epsilon(0.003));
  CHECK(of(16, "tpot_mean") == Approx(step + 0.5 * pass / 200).epsilon(0.003));
  // Little's law: so many clients are there as answers end in the time that one takes.
  CHECK(of(16, "output_tokens_per_s") * of(16, "e2e_mean") == Approx(16 * 201).epsilon(0.01));
  // Where an answer is one token its prompt is all there is: more clients get no more of them than there are prompts.
  const auto one_token = [](int clients) {
    return predicted(fmt::format("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,SGLang,continuous_fixed_concurrency,"
                                 "{},1000,1,output_tokens_per_s,,tok/s,s\n", clients));
  };
  CHECK(one_token(64) == Approx(8 / pass).epsilon(0.02));
  // Lengths that are drawn end at any time: each token has its share of all the others' prompts.
  const std::string drawn = "ShareGPT";
  CHECK(of(16, "tpot_mean", drawn) == Approx(step + 15 * pass / 8 / 201).epsilon(0.01));
  CHECK(of(64, "ttft_mean", drawn) < 0.5 * of(64, "ttft_mean"));
}

TEST_CASE("what the conditions say of lengths and of graphs is read: a mean share of them, launches one by one") {
  const auto of = [](const char* lengths, const char* conditions) {
    return predicted(fmt::format("m,end_to_end,Llama-3.2-1B,bf16,,H100-SXM-80GB,1,vLLM,continuous_fixed_concurrency,4,"
                                 "{},tpot_mean,,ms,s\n", lengths), conditions);
  };
  CHECK(of("1000,500", "random lengths 0.8 to 1.0 of the nominal") == of("900,450", "lengths vary"));
  CHECK(of("1000,500", "random lengths 0.8 to 3 of the nominal") == of("1000,500", "lengths vary"));
  CHECK(of("64,64", "lengths vary") < 3);
  for (const char* on : {"--enforce-eager=False; lengths vary", "--disable-cuda-graph-padding; lengths vary"}) {
    CHECK(of("64,64", on) < 3);
  }
  // 16 layers of 12 launches of 42 us, and the engine's step; its prompts are launched so as well.
  for (const char* off : {"--enforce-eager; lengths vary", "eager mode (no CUDA graphs) and lengths vary"}) {
    CHECK(of("64,4000", off) == Approx(16 * 12 * 0.042 + 0.151 + 4 * 0.004).epsilon(0.02));
  }
}

TEST_CASE("prompts of clients whose answers end in the same step share a pass") {
  const auto token = [](int clients, int output) {
    return predicted(fmt::format("m,end_to_end,Qwen2.5-3B,bf16,,H200-SXM-141GB,1,SGLang,continuous_fixed_concurrency,"
                                 "{},16,{},tpot_mean,,ms,s\n", clients, output), "ShareGPT");
  };
  // A short prompt is 36 layers of 12 launches of 42 us, as long for a few as for one.
  const double pass = 36 * 12 * 0.042 + 0.15;
  const auto more = [&](int clients) { return token(clients, 4) - token(clients, 4000); };
  CHECK(token(5, 4000) < 6);
  // Each of the others asks in one of the 4 steps of its answer.
  CHECK(more(5) == Approx((1 - std::pow(0.75, 4)) * pass).epsilon(0.02));
  CHECK(more(17) == Approx((1 - std::pow(0.75, 16)) * pass).epsilon(0.02));
}

TEST_CASE("clients are as many as the rate of answers times the time of one, with the way to the server") {
  const auto of = [](int clients, int output, const char* metric) {
    return predicted(fmt::format("m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1,vLLM,continuous_fixed_concurrency,"
                                 "{},512,{},{},,{},s\n", clients, output, metric,
                                 std::string_view(metric).ends_with("_s") ? "tok/s" : "ms"), "ShareGPT");
  };
  const auto answer = [&](int clients, int output) {
    return of(clients, output, "ttft_mean") + (output - 1) * (output > 1 ? of(clients, output, "tpot_mean") : 0);
  };
  // One client's prompt is alone in its step, and 15.6 ms pass until it gets there.
  for (const int output : {1, 2, 8, 64}) {
    INFO(output);
    CHECK(1e3 * output / of(1, output, "output_tokens_per_s") == Approx(answer(1, output)).epsilon(1e-3));
  }
  CHECK(of(1, 1, "ttft_mean") > 15.6 + of(1, 2, "tpot_mean"));
  // All prompts of clients that want one token are ahead of each other.
  CHECK(256e3 / of(256, 1, "output_tokens_per_s") == Approx(answer(256, 1)).epsilon(1e-3));
  CHECK(of(256, 1, "ttft_mean") > 30 * of(1, 1, "ttft_mean"));
  for (const int output : {4, 16}) {
    INFO(output);
    CHECK(256e3 * output / of(256, output, "output_tokens_per_s") == Approx(answer(256, output)).epsilon(0.08));
  }
}

TEST_CASE("most tokens of a closed loop wait for the host as long with others' prompts as without") {
  // A host that launches for longer than the device computes; a prompt is in one step of 64.
  const auto of = [](int clients, const std::string& metric) {
    return predicted(fmt::format("m,end_to_end,Llama-3.2-1B,fp16,,H100-SXM-80GB,1,transformers,"
                                 "continuous_fixed_concurrency,{},16,1000,{},,ms,s\n", clients, metric));
  };
  CHECK(of(1, "itl_median") == of(1, "itl_mean"));
  CHECK(of(16, "itl_median") == Approx(of(1, "itl_mean")));
}

TEST_CASE("without a number of clients a server under its greatest load has tokens at the pace of its fullest batch") {
  const std::string server = "m,end_to_end,Llama-3.1-8B,bf16,,A100-SXM4-80GB,1,vLLM,";
  const double one = predicted(server + "continuous_fixed_concurrency,1,1000,200,tpot_mean,,ms,s\n");
  // The most that vLLM takes at once on A100 is 256.
  const double most = predicted(server + "continuous_fixed_concurrency,256,1000,200,tpot_mean,,ms,s\n");
  CHECK(most > 1.5 * one);
  CHECK(predicted(server + "continuous_max_load,max,1000,200,tpot_mean,,ms,s\n") == most);
  for (const char* waits : {"continuous_max_load,max,1000,200,ttft_mean,,ms,s\n",
                            "continuous_max_load,max,1000,200,e2e_mean,,ms,s\n",
                            "continuous_open_loop,8 req/s,1000,200,output_tokens_per_s_total,,tok/s,s\n",
                            "continuous_open_loop,8 req/s,1000,200,decode_tokens_per_s,,tok/s,s\n"}) {
    INFO(waits);
    CHECK_FALSE(score(rows_of(server + waits)[0]).predicted.has_value());
  }
}

TEST_CASE("an engine that admits by the prompt holds answers half written, one that reserves them holds whole ones") {
  const auto most = [](const char* engine, int input, int output) {
    const auto token = [&](int clients) {
      return predicted(fmt::format("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,{},continuous_fixed_concurrency,"
                                   "{},{},{},tpot_mean,,ms,s\n", engine, clients, input, output));
    };
    int clients = 1;
    while (clients < 4096 && token(clients + 1) != token(clients)) ++clients;  // more wait, and slow no token
    return clients;
  };
  CHECK(most("vLLM", 1000, 2000) == most("vLLM", 1999, 2));
  CHECK(most("TensorRT-LLM", 1000, 2000) == most("TensorRT-LLM", 2999, 2));
}

TEST_CASE("stages of a server work on different sequences at once: two make almost twice the tokens of one") {
  const auto rate = [](const char* engine, const char* devices) {
    return predicted(fmt::format("m,end_to_end,Llama-2-13B,fp16,,H200-SXM-141GB,{},{},continuous_max_load,max,500,500,"
                                 "output_tokens_per_s_total,,tok/s,s\n", devices, engine));
  };
  const double one = rate("TensorRT-LLM", "1");
  // llama.cpp has layers one after another by itself, and one step goes through all of them.
  CHECK(predicted("m,end_to_end,Llama-2-13B,fp16,,H200-SXM-141GB,2,llama.cpp,continuous_max_load,max,500,500,"
                  "output_tokens_per_s_total,,tok/s,s\n") < 1.4 * rate("llama.cpp", "1"));
  const auto rows = published_rows(
      "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,batch_mode,batch,input_len,output_len,"
      "metric,value,unit,source,parallelism\nm,end_to_end,Llama-2-13B,fp16,,H200-SXM-141GB,2,TensorRT-LLM,"
      "continuous_max_load,max,500,500,output_tokens_per_s_total,,tok/s,s,PP2\n");
  const double two = score(rows.value()[0]).predicted->value;
  CHECK(two > 1.7 * one);
  CHECK(two < 2.6 * one);  // more memory for sequences, too
}

TEST_CASE("loops of which not one sequence fits are refused, as a full server is") {
  const std::string row = "m,end_to_end,Llama-3.1-405B,bf16,,A100-SXM4-80GB,1,vLLM,";
  for (const char* rest : {"continuous_fixed_concurrency,8,1000,200,tpot_mean,,ms,s\n",
                           "continuous_fixed_concurrency,8,1000,200,output_tokens_per_s_total,,tok/s,s\n",
                           "continuous_open_loop,1 req/s,1000,200,ttft_mean,,ms,s\n",
                           "continuous_max_load,max,1000,200,output_tokens_per_s_total,,tok/s,s\n"}) {
    INFO(rest);
    CHECK(score(rows_of(row + rest)[0]).refused == "not even one sequence fits");
  }
}

TEST_CASE("medians between tokens of an open loop have prompts once they are in half of the steps, tails are refused") {
  const std::string row = "m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,lmdeploy,continuous_open_loop,";
  const auto of = [&](int rate, const std::string& metric) {
    return predicted(fmt::format("{}{} req/s,1000,20,{},,ms,s\n", row, rate, metric));
  };
  CHECK(of(1, "itl_median") < of(1, "itl_mean"));
  CHECK(of(12, "itl_median") == Approx(of(12, "itl_mean")));
  const auto tail = rows_of("m,end_to_end,Llama-2-7B,fp16,,A100-SXM4-80GB,1,lmdeploy,continuous_fixed_concurrency,8,"
                            "1000,20,itl_p99,,ms,s\n");
  CHECK(score(tail[0]).refused == "a tail is not predicted, means and medians are: itl_p99");
}

TEST_CASE("an open loop holds as many sequences as arrive while one is served, an unstated load widens intervals") {
  const std::string row = "m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1,vLLM,continuous_open_loop,";
  const std::string rest = ",500,200,tpot_mean,,ms,s\n";
  const double idle = predicted(row + "0.01 req/s" + rest), busy = predicted(row + "20 req/s" + rest);
  CHECK(idle < busy);
  const auto unknown = rows_of(row + rest), alone = rows_of(row + "0.01 req/s" + rest);
  const Estimate wide = *score(unknown[0]).predicted, narrow = *score(alone[0]).predicted;
  CHECK(wide.high80 / wide.low80 > narrow.high80 / narrow.low80);
  CHECK(wide.low80 <= narrow.value);
}

TEST_CASE("a request waits for its place before its prompt: a time of the engine, seen by first tokens alone") {
  const auto of = [](const char* mode, const char* batch, const char* metric) {
    return predicted(std::string("m,end_to_end,Llama-3.1-8B,bf16,,H100-SXM-80GB,1,vLLM,") + mode + "," + batch +
                     ",500,200," + metric + ",,ms,s\n");
  };
  const double alone = of("single_stream", "1", "first_token_latency");
  CHECK(of("continuous_fixed_concurrency", "1", "ttft_mean") == Approx(alone + 15.6).epsilon(1e-3));
  CHECK(of("continuous_open_loop", "0.01 req/s", "ttft_mean") > alone + 15.6);
  CHECK(of("continuous_fixed_concurrency", "1", "e2e_mean") ==
        Approx(alone + 15.6 + 199 * of("continuous_fixed_concurrency", "1", "tpot_mean")).epsilon(1e-3));
}

TEST_CASE("a saturated server of more memory serves no fewer tokens") {
  const auto of = [](const char* gpu) {
    return predicted(std::string("m,end_to_end,Llama-3.1-70B,fp8,fp8,") + gpu +
                     ",1,TensorRT-LLM,continuous_max_load,max,1000,1000,output_tokens_per_s_total,,tok/s,s\n");
  };
  CHECK(of("H200-SXM-141GB") > 2 * of("H100-SXM-80GB"));
}

TEST_CASE("a batch that starts together has its prompts together before its first token, and steps without others'") {
  const auto of = [](const std::string& mode, const std::string& metric, const std::string& unit = "s") {
    return predicted("m,end_to_end,Llama-3-8B,bf16,,H100-SXM-80GB,1,vLLM," + mode + ",32,2048,257," + metric + ",," +
                     unit + ",s\n");
  };
  const double step = of("static", "tpot_mean");
  CHECK(32 / step == Approx(of("static", "decode_tokens_per_s", "tok/s")));
  CHECK(of("static", "itl_median") == step);
  CHECK(of("static", "ttft_mean") == Approx(of("static", "first_token_latency")));
  CHECK(of("static", "e2e_mean") == Approx(of("static", "total_latency")));
  CHECK(of("static", "e2e_mean") == Approx(of("static", "ttft_mean") + 256 * step));
  // Clients that ask again have others' prompts in their tokens.
  CHECK(of("continuous_fixed_concurrency", "tpot_mean") > 1.3 * step);
}

}  // namespace kvroof
