// Requests: drawn, and read from public traces.
#include "sim/serving/requests.hpp"

#include <cmath>

#include "sim/serving/request_trace.hpp"
#include "sim/serving/simulate.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

DrawnRequests drawn_requests(double burstiness, double spread) {
  DrawnRequests drawn;
  drawn.count = 20000;
  drawn.rate = 5;
  drawn.burstiness = burstiness;
  drawn.prompt = 1000;
  drawn.output = 200;
  drawn.spread = spread;
  drawn.seed = 1;
  return drawn;
}

// Mean, and standard deviation over the mean.
std::pair<double, double> moments(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double x : values) sum += x, squares += x * x;
  const auto count = static_cast<double>(values.size());
  const double mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean) / mean};
}

TEST_CASE("drawn arrivals have the rate and the burstiness that were asked for") {
  for (const double shape : {0.25, 1.0, 4.0}) {
    const std::vector<Request> requests = draw_requests(drawn_requests(shape, 0));
    CHECK(requests.front().arrival == 0);
    std::vector<double> gaps;
    for (std::size_t i = 1; i < requests.size(); ++i) gaps.push_back(requests[i].arrival - requests[i - 1].arrival);
    const auto [mean, deviation] = moments(gaps);
    CHECK(mean == Approx(0.2).epsilon(0.03));
    CHECK(deviation == Approx(1 / std::sqrt(shape)).epsilon(0.03));  // of a gamma distribution
  }
  const std::vector<Request> even = draw_requests(drawn_requests(0, 0));
  CHECK(even[10].arrival == Approx(2));
}

TEST_CASE("drawn lengths have the mean and the spread that were asked for, or are all alike") {
  std::vector<double> prompts, outputs;
  for (const Request& r : draw_requests(drawn_requests(1, 0.5))) {
    prompts.push_back(r.prompt);
    outputs.push_back(r.output);
  }
  CHECK(moments(prompts).first == Approx(1000).epsilon(0.02));
  CHECK(moments(prompts).second == Approx(0.5).epsilon(0.03));
  CHECK(moments(outputs).first == Approx(200).epsilon(0.02));
  for (const Request& r : draw_requests(drawn_requests(1, 0))) CHECK((r.prompt == 1000 && r.output == 200));
}

TEST_CASE("the same seed draws the same requests, another seed others, and more requests begin with the same") {
  DrawnRequests drawn = drawn_requests(1, 0.5);
  drawn.count = 50;
  const std::vector<Request> requests = draw_requests(drawn);
  CHECK(draw_requests(drawn) == requests);
  drawn.count = 100;
  const std::vector<Request> more = draw_requests(drawn);
  CHECK(std::vector<Request>(more.begin(), more.begin() + 50) == requests);
  drawn.seed = 2;
  CHECK(draw_requests(drawn) != more);
}

std::vector<Request> read(const std::string& text) {
  Result<RequestTrace> trace = request_trace_from_text(text);
  INFO((trace ? "" : trace.error()));
  REQUIRE(trace);
  return trace.value().requests;
}

TEST_CASE("public traces are read in their own words and units") {
  const std::vector<Request> expected = {{0, 374, 44}, {1.5, 396, 109}};
  const char* traces[] = {
      // Azure has carriage returns and seven digits of a second.
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.5000000,374,44\r\n2023-11-17 "
      "00:00:01.0000000,396,109\r\n",
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,374,44\n"
      "2024-05-10T01:00:01.509930+01:00,396,109\n",
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,374,44,418,Conversation log\n"
      "6.5,GPT-4,396,109,505,API log\n",
      "arrived_at,num_prefill_tokens,num_decode_tokens\n4.25,374,44\n5.75,396,109\n",
      "arrival_ms,prompt,output\n4250,374,44\n5750,396,109\n",
      "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,2,0,1,1,374,44\n"
      "1,2,0,2.5,1,396,109\n",
      "request_id,input_tokens,output_tokens,arrival_time_us\nb,396,109,3500000\na,374,44,2000000\n",  // not in order
      "{\"timestamp\": 27482, \"input_length\": 374, \"output_length\": 44, \"hash_ids\": [46, 47]}\n"
      "{\"timestamp\": 28982, \"input_length\": 396, \"output_length\": 109, \"hash_ids\": []}\n",
      "{\"chat_id\":159,\"parent_chat_id\":55,\"timestamp\":61.114,\"input_length\":374,\"output_length\":44}\n\n"
      "{\"chat_id\":160,\"parent_chat_id\":-1,\"timestamp\":62.614,\"input_length\":396,\"output_length\":109}",
      "{\"input_toks\":374,\"output_toks\":44,\"arrival_time_ns\":1000000000}\n"
      "{\"input_toks\":396,\"output_toks\":109,\"arrival_time_ns\":2500000000}\n",
      "\xEF\xBB\xBF" "arrival_s,prompt,output\n0,374,44\n1.5,396,109\n",
      // As spreadsheets and data frames write them.
      "\"arrival_s\",\"prompt\",\"output\"\n\"0\",\"374\",\"44\"\n1.5,396.0,109.0\n",
      "arrival_s,note,prompt,output\n0,\"long, then \"\"short\"\"\",374,44\n1.5,,396,109\n"};
  for (const char* text : traces) {
    INFO(text);
    const std::vector<Request> requests = read(text);
    REQUIRE(requests.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(requests[i].arrival == Approx(expected[i].arrival));
      CHECK(requests[i].prompt == expected[i].prompt);
      CHECK(requests[i].output == expected[i].output);
    }
  }
}

TEST_CASE("a prefix cache that loses nothing has the blocks that earlier requests began with, never a whole prompt") {
  const auto cached = [](const std::string& text) {
    std::vector<std::uint32_t> out;
    for (const Request& r : read(text)) out.push_back(r.cached);
    return out;
  };
  const auto line = [](int ms, int tokens, const std::string& ids, const std::string& more = "") {
    return "{\"timestamp\": " + std::to_string(ms) + ", \"input_length\": " + std::to_string(tokens) +
           ", \"output_length\": 5, \"hash_ids\": [" + ids + "]" + more + "}\n";
  };
  // Blocks of 512: the second begins with two of the first's, the third with another, the fourth is the first again.
  CHECK(cached(line(0, 1500, "1,2,3") + line(1, 1500, "1,2,9") + line(2, 1500, "8,2,3") + line(3, 1536, "1,2,3")) ==
        std::vector<std::uint32_t>{0, 1024, 0, 1535});
  // What comes later in the file may have come first.
  CHECK(cached(line(5, 600, "1,2") + line(0, 600, "1,4")) == std::vector<std::uint32_t>{0, 512});
  // Bailian's blocks have 16 tokens.
  CHECK(cached(line(0, 40, "1,2,3", ",\"chat_id\":1") + line(1, 40, "1,2,5", ",\"chat_id\":2")) ==
        std::vector<std::uint32_t>{0, 32});
  CHECK_FALSE(request_trace_from_text("arrival_s,prompt,output\n0,10,5\n").value().has_prefixes());
}

TEST_CASE("hashes of blocks that are no numbers, or of another size than the prompt has place for, are refused") {
  const auto refused = [](const std::string& ids, const std::string& more = "") {
    const std::string good = R"({"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]})";
    const auto trace = request_trace_from_text(
        good + "\n" + R"({"timestamp": 1, "input_length": 64, "output_length": 5, "hash_ids": )" + ids + more + "}\n");
    return trace ? std::string() : trace.error();
  };
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  for (const auto& [ids, found] : {std::pair<std::string, std::string>{R"(["0","1"])", "\"0\""}, {"[0,-1]", "-1"},
                                   {"[0,1.0]", "1.0"}, {"7", "7"}, {"{}", "object"}, {deep, "array"}}) {
    CHECK(refused(ids) == "line 2: hash_ids: expected a list of whole numbers, found " + found);
  }
  // Blocks of 16 tokens in a file whose blocks have 512; one hash may be of what goes on behind the prompt.
  CHECK(refused("[0,1,2,3]") == "line 2: 4 hash_ids, of 512 tokens each, for a prompt of 64: expected at most 2");
  CHECK(refused("[0,1,2,3]", R"(,"chat_id":1)").empty());
  CHECK(refused("[0,1]").empty());
  CHECK(refused("null").empty());
}

TEST_CASE("requests without an answer are left out and counted, or kept and counted where prompts alone matter") {
  const std::string text = "arrival_s,prompt,output\n0,10,0\n1,10,5\n2,0,5\n";
  const Result<RequestTrace> trace = request_trace_from_text(text);
  REQUIRE(trace);
  CHECK(trace.value().left_out == 2);
  CHECK(trace.value().unanswered == 0);
  CHECK(trace.value().requests == std::vector<Request>{{0, 10, 5}});
  const Result<RequestTrace> kept = request_trace_from_text(text, Unanswered::kKept);
  REQUIRE(kept);
  CHECK(kept.value().left_out == 1);
  CHECK(kept.value().unanswered == 1);
  CHECK(kept.value().requests == std::vector<Request>{{0, 10, 0}, {1, 10, 5}});
}

TEST_CASE("JSON lines may say lengths alone, as tables may") {
  const auto trace = request_trace_from_text("{\"prompt\": 3, \"output\": 2}\n{\"prompt\": 5, \"output\": 1}\n");
  REQUIRE(trace.ok());
  CHECK_FALSE(trace.value().has_arrivals);
  CHECK(trace.value().requests == std::vector<Request>{{0, 3, 2}, {0, 5, 1}});
}

TEST_CASE("what is no request is named with its line and what is expected") {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "empty"},
      {"arrival_s,prompt\n0,10\n", "no column for the answer: expected one of output, generatedtokens"},
      {"arrival_s,prompt,output\n", "no requests"},
      {"arrival_s,prompt,output\n0,10\n", "line 2: 2 fields, but the header has 3"},
      {"arrival_s,prompt,output\n0,10,5\n\n1,ten,5\n", "line 4: prompt 'ten': expected a number of tokens"},
      {"arrival_s,prompt,output\n0,-1,5\n", "line 2: prompt '-1'"},
      {"arrival_s,prompt,output\n0,1,1e9\n", "line 2: answer '1e9'"},
      {"arrival_s,prompt,output\nnan,1,5\n", "line 2: arrival 'nan': expected a number or a date and time"},
      {"arrival_s,prompt,output\n2023-13-16 18:15:46,1,5\n", "line 2: arrival '2023-13-16 18:15:46'"},
      {"arrival_s,prompt,output\n0,1,5\n3e9,1,5\n", "expected at most"},
      {"arrival_s,prompt,output\n0,99999999999999999999,5\n", "line 2: prompt"},
      {"arrival_s,prompt,output\n0,1.5,5\n", "line 2: prompt '1.5': expected a number of tokens"},
      {"arrival_s,prompt,output\n0,inf,5\n", "line 2: prompt 'inf'"},
      {"[{\"timestamp\": 1}]\n", "line 1: a list; expected a JSON object on each line"},
      {"{\"timestamp\": 1}\n", "line 1: no key for the prompt: expected one of prompt, contexttokens, "},
      {"{\"timestamp\": 1, \"prompt\": 3}\n", "line 1: no key for the answer: expected one of output, "},
      {"{\"timestamp\": 1, \"prompt\": 3, \"output\": 2}\n{\"prompt\": 3, \"output\": 2}\n",
       "line 2: no key for the arrival: expected one of arrival_s, timestamp, "},
      {"{\"prompt\": 3, \"output\": 2}\n{\"arrival_s\": 1, \"prompt\": 3, \"output\": 2}\n",
       "line 2: arrival_s says when it arrives, and the first line does not"},
      {"{\"timestamp\": 1,\n", "line 1: expected a JSON object"}};
  for (const auto& [text, what] : wrong) {
    INFO(text);
    const Result<RequestTrace> trace = request_trace_from_text(text);
    REQUIRE_FALSE(trace);
    INFO(trace.error());
    CHECK(trace.error().find(what) != std::string::npos);
  }
}

TEST_CASE("percentiles are those of the nearest rank, and a histogram's lie within half a percent") {
  std::vector<double> seconds;
  LatencyHistogram histogram;
  for (int i = 1000; i > 0; --i) {
    seconds.push_back(i * 1e-3);
    histogram.add(i * 1e-3);
  }
  const LatencySummary s = summarise_latency(seconds);
  CHECK(s.mean == Approx(0.5005));
  CHECK(s.p50 == 0.5);
  CHECK(s.p99 == 0.99);
  CHECK(histogram.quantile(0.5) == Approx(0.5).epsilon(0.0051));
  CHECK(histogram.quantile(0.99) == Approx(0.99).epsilon(0.0051));
  CHECK(summarise_latency({7}).p99 == 7);
  CHECK(LatencyHistogram().quantile(0.5) == 0);
  LatencyHistogram alike;
  for (const double x : {2.0, 2.0, 2.0, 5.0, 2.0}) alike.add(x);
  CHECK(alike.quantile(0.8) == Approx(2).epsilon(0.0051));
  CHECK(alike.quantile(1) == Approx(5).epsilon(0.0051));
  CHECK(alike.sum() == 13);
}

}  // namespace
}  // namespace kvroof
