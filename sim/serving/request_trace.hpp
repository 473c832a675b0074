// Request traces as others publish them: arrival, prompt and answer of each request, from CSV or JSON lines.
//
// What is read (a column or key by its name; others are ignored):
//
//   trace                         arrival                         prompt               answer
//   Azure LLM inference           TIMESTAMP (date and time)       ContextTokens        GeneratedTokens
//   BurstGPT                      Timestamp (s)                   Request tokens       Response tokens
//   Vidur                         arrived_at (s)                  num_prefill_tokens   num_decode_tokens
//   Splitwise                     arrival_timestamp (s)           prompt_size          token_size
//   BLIS                          arrival_time_us                 input_tokens         output_tokens
//   Mooncake (JSON lines)         timestamp (ms)                  input_length         output_length
//   Qwen-Bailian (JSON lines)     timestamp (s), with chat_id     input_length         output_length
//   LLMServingSim (JSON lines)    arrival_time_ns                 input_toks           output_toks
//   one's own, either form        arrival_s                       prompt               output
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/serving/requests.hpp"

namespace kvroof {

// What becomes of requests that were not answered, of which a prompt may be known all the same.
enum class Unanswered : bool { kLeftOut, kKept };

struct RequestTrace {
  std::vector<Request> requests;  // in the order of their arrival, the first at 0; at least one
  bool has_arrivals = true;        // false: all come at 0, in the order of the file
  std::size_t left_out = 0;        // rows whose prompt is empty, and of those without an answer what is left out
  std::size_t unanswered = 0;      // among the requests, where they are kept: those with an output of 0
  // Where the trace says which blocks of prompts are alike (hash_ids: of 512 tokens in Mooncake's, of 16 in Bailian's):
  // the tree of them, in which `prefix` of a request is its last. `cached` is what earlier requests began with as well:
  // what a prefix cache that loses nothing has.
  PrefixTree prefixes;
  [[nodiscard]] bool has_prefixes() const { return prefixes.size() > 1; }
};

// Fails with the line and what is expected there.
Result<RequestTrace> request_trace_from_text(std::string_view text, Unanswered unanswered = Unanswered::kLeftOut);

}  // namespace kvroof
