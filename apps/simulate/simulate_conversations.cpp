#include "apps/simulate/simulate_conversations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/values.hpp"
#include "sim/serving/conversations.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

constexpr std::uint32_t kMostTurns = 1000;

// Tokens of a conversation of mean lengths.
std::uint64_t mean_length(const SimulateRequest& r) {
  const auto thoughts = static_cast<std::uint64_t>(r.thoughts * r.workload.output);
  const std::uint64_t turn = std::uint64_t{r.message} + r.workload.output - thoughts;
  return std::uint64_t{r.workload.prompt} + r.workload.output + (r.turns - 1) * turn;
}

}  // namespace

void describe_conversations(po::options_description_easy_init add) {
  add("turns", po::value<std::string>()->default_value("1"),
      "requests of a conversation, each with all that was said before in its prompt, which a prefix cache may find; "
      "--prompt is the first, --rate counts requests");
  add("message", po::value<std::string>()->default_value("256"),
      "tokens that each later turn adds to what was said");
  add("thoughts", po::value<std::string>()->default_value("0"),
      "share of an answer that later prompts leave out, as chat templates do with reasoning");
}

void set_conversations(const Arguments& arguments, SimulateRequest& request) {
  request.turns = count_value("turns", arguments.get<std::string>("turns"), 1, kMostTurns);
  request.message = count_value("message", arguments.get<std::string>("message"), 1, kMostPrompt);
  request.thoughts = share_value("thoughts", arguments.get<std::string>("thoughts"), 0, 1);
  for (const char* option : {"message", "thoughts"}) {
    if (request.in_conversations() || !arguments.has(option)) continue;
    throw usage_error(fmt::format("--{} is of conversations: --turns says how many requests one has", option));
  }
  if (!request.in_conversations()) return;
  if (arguments.has("requests")) {
    throw usage_error("--turns and --requests: the file says what is asked and when").note("leave one of the two away");
  }
  if (arguments.has("cached-prompt")) {
    throw usage_error("--turns and --cached-prompt: what a cache has of a conversation is simulated")
        .note("leave --cached-prompt away; --prefix-cache says how large the cache is, and none that there is none");
  }
  if (const std::uint64_t length = mean_length(request); length > kMostPrompt) {
    throw usage_error(fmt::format("--turns {}: a conversation of {} tokens; expected at most {}", request.turns, length,
                                  kMostPrompt));
  }
}

double hold_conversations(SimulateRequest& request) {
  if (!request.in_conversations()) return 1;
  const std::uint32_t positions = request.workload.model.max_positions;
  const auto drawn = static_cast<double>(request.requests.size());
  request.turns_left_out = add_history(request.requests, positions > 0 ? positions : kMostPrompt);
  // Fewer turns a conversation: conversations begin as much sooner after each other.
  const double kept = static_cast<double>(request.requests.size()) / drawn;
  for (Request& r : request.requests) r.arrival *= kept;
  request.mean_turns = kept * request.turns;
  return kept;
}

std::string conversations_text(const SimulateRequest& request) {
  if (!request.in_conversations()) return "";
  const std::string left_out =
      request.thoughts > 0 ? fmt::format(", without {:g} % of each answer", 100 * request.thoughts) : "";
  return fmt::format(" in conversations of {} turns, with messages of {} after the first{}", request.turns,
                     request.message, left_out);
}

}  // namespace kvroof
