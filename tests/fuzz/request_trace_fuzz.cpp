// Fuzz target: any bytes as a trace of requests.
#include <cstdint>
#include <string_view>

#include "sim/serving/request_trace.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = kvroof::request_trace_from_text({reinterpret_cast<const char*>(data), size});
  if (!trace) {
    kvroof::check(!trace.error().empty() && trace.error().size() < 1000, "a refusal is one sentence");
    return 0;
  }
  double before = 0;
  for (const kvroof::Request& request : trace.value().requests) {
    kvroof::check(request.arrival >= before, "requests come one after the other, the first at 0 or later");
    kvroof::check(request.prompt > 0 && request.output > 0, "a request has a prompt and an answer");
    before = request.arrival;
  }
  kvroof::check(!trace.value().requests.empty(), "a trace has a request");
  return 0;
}
