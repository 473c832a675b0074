#include "sim/serving/request_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "sim/core/csv.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

constexpr double kMostTokens = 1U << 27;
constexpr double kMostSeconds = 1e9;

// The same column in a file's words, and the seconds of its unit.
struct Column {
  std::string_view name;
  double seconds = 1;
};
constexpr std::array kArrivals = {
    Column{"arrival_s"},         Column{"timestamp"},
    Column{"arrived_at"},        Column{"arrival_timestamp"},
    Column{"arrival_ms", 1e-3},  Column{"arrival_time_ms", 1e-3},
    Column{"timestamp_ms", 1e-3}, Column{"arrival_time_us", 1e-6},
    Column{"arrival_time_ns", 1e-9}};
constexpr std::array kPrompts = {Column{"prompt"},       Column{"contexttokens"}, Column{"request tokens"},
                                 Column{"num_prefill_tokens"}, Column{"prompt_size"},   Column{"input_tokens"},
                                 Column{"input_length"}, Column{"input_toks"}};
constexpr std::array kOutputs = {Column{"output"},       Column{"generatedtokens"}, Column{"response tokens"},
                                 Column{"num_decode_tokens"}, Column{"token_size"},  Column{"output_tokens"},
                                 Column{"output_length"}, Column{"output_toks"}};

// "2023-11-16 18:15:46.6805900", also with a T, and with an offset as +00:00 or Z, in seconds since 1970.
std::optional<double> seconds_of_date(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') ||
      text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const auto part = [&](std::size_t at, std::size_t size) { return parse_number<unsigned>(text.substr(at, size)); };
  const auto year = part(0, 4), month = part(5, 2), day = part(8, 2), hour = part(11, 2), minute = part(14, 2);
  std::size_t end = text.find_first_of("+-Zz", 19);
  if (end == std::string_view::npos) end = text.size();
  const auto second = parse_number<double>(text.substr(17, end - 17));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)), std::chrono::month(*month),
                                         std::chrono::day(*day)};
  if (!date.ok() || *hour > 23 || *minute > 59 || !(*second >= 0 && *second < 61)) return std::nullopt;
  double offset = 0;
  const std::string_view zone = text.substr(end);
  if (zone.size() == 6 && zone[3] == ':') {
    const auto hours = parse_number<unsigned>(zone.substr(1, 2)), minutes = parse_number<unsigned>(zone.substr(4, 2));
    if (!hours || !minutes) return std::nullopt;
    offset = (zone[0] == '-' ? -60.0 : 60.0) * (*hours * 60 + *minutes);
  } else if (!zone.empty() && zone != "Z" && zone != "z") {
    return std::nullopt;
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + *hour * 3600 + *minute * 60 + *second - offset;
}

// A field as a message quotes it.
std::string quoted(std::string_view field) {
  constexpr std::size_t kMost = 40;
  return field.size() <= kMost ? "'" + std::string(field) + "'" : "'" + std::string(field.substr(0, kMost)) + "…'";
}

// Data frames write whole numbers as 12.0 where one of a column is missing.
std::optional<std::uint32_t> tokens_of(std::string_view text) {
  const auto x = parse_number<double>(text);
  if (!x || !(*x >= 0 && *x <= kMostTokens) || *x != std::floor(*x)) return std::nullopt;
  return static_cast<std::uint32_t>(*x);
}

// One request in a file's own words; nothing: it is left out.
Result<std::optional<Request>> request_of(std::string_view arrival, double unit, std::string_view prompt,
                                          std::string_view output, Unanswered unanswered) {
  std::optional<double> seconds = parse_number<double>(arrival);
  if (seconds) *seconds *= unit;
  if (!seconds) seconds = seconds_of_date(arrival);
  if (!seconds || !(std::abs(*seconds) <= 4 * kMostSeconds)) {
    return failure("arrival {}: expected a number or a date and time", quoted(arrival));
  }
  const auto asked = tokens_of(prompt), answered = tokens_of(output);
  if (!asked) return failure("prompt {}: expected a number of tokens", quoted(prompt));
  if (!answered) return failure("answer {}: expected a number of tokens", quoted(output));
  if (*asked == 0 || (*answered == 0 && unanswered == Unanswered::kLeftOut)) return std::optional<Request>();
  return std::optional(Request{*seconds, *asked, *answered});
}

// Lines, without their ends; the last needs none.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  // The next that is not blank.
  std::optional<std::string_view> next() {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find('\n');
      const std::string_view line = trimmed(rest_.substr(0, end));
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      ++number_;
      if (!line.empty()) return line;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::size_t number() const { return number_; }

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

// "no column for the prompt: expected one of prompt, contexttokens …".
std::string none_for(const char* column_or_key, const char* what, std::span<const Column> known) {
  std::string text = fmt::format("no {} for the {}: expected one of ", column_or_key, what);
  for (const Column& column : known) text += (&column == known.data() ? "" : ", ") + std::string(column.name);
  return text;
}

Result<RequestTrace> from_csv(std::string_view text, Unanswered unanswered) {
  Result<CsvReader> table = CsvReader::open(text);
  if (!table) return Failure{table.error()};
  const std::span<const std::string> names = table.value().columns();
  const auto find = [&](const auto& known, double* unit) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (const Column& column : known) {
        if (lower_case(names[i]) != column.name) continue;
        if (unit != nullptr) *unit = column.seconds;
        return i;
      }
    }
    return std::nullopt;
  };
  double unit = 1;
  const auto arrival = find(kArrivals, &unit), prompt = find(kPrompts, nullptr), output = find(kOutputs, nullptr);
  if (!prompt) return Failure{none_for("column", "prompt", kPrompts)};
  if (!output) return Failure{none_for("column", "answer", kOutputs)};
  RequestTrace trace;
  trace.has_arrivals = arrival.has_value();
  const auto read = [&](const CsvRow& fields) -> std::string {
    const std::string_view arrived = arrival ? std::string_view(fields[*arrival]) : "0";
    const auto request = request_of(arrived, unit, fields[*prompt], fields[*output], unanswered);
    if (!request) return request.error();
    if (request.value()) trace.requests.push_back(*request.value());
    trace.left_out += request.value() ? 0U : 1U;
    return {};
  };
  if (auto problem = table.value().for_each_row(read)) return *problem;
  return trace;
}

using Json = nlohmann::json;

constexpr std::uint32_t kMooncakeBlock = 512, kBailianBlock = 16;  // tokens of a block of a prompt

// A request, and which of its prompt's blocks are alike to others'.
struct HashedRequest {
  Request request;
  std::vector<std::uint64_t> blocks;
  std::uint32_t block_tokens = kMooncakeBlock;
};

// Those that the line says; a hash of what lies behind the prompt's end is one of blocks of another size. One more than
// the prompt fills may be of what the answer goes on with.
Result<std::vector<std::uint64_t>> blocks_of(const Json& object, std::uint32_t block_tokens, std::uint32_t prompt) {
  std::vector<std::uint64_t> blocks;
  const auto found = object.find("hash_ids");
  if (found == object.end() || found->is_null()) return blocks;
  const auto expected = [](const Json& other) {
    return failure("hash_ids: expected a list of whole numbers, found {}",
                   other.is_structured() ? std::string(other.type_name()) : std::string(shown(other.dump())));
  };
  if (!found->is_array()) return expected(*found);
  for (const Json& id : *found) {
    if (!id.is_number_unsigned()) return expected(id);
    blocks.push_back(id.get<std::uint64_t>());
  }
  if (const std::size_t most = (prompt + std::size_t{block_tokens} - 1) / block_tokens + 1; blocks.size() > most) {
    return failure("{} hash_ids, of {} tokens each, for a prompt of {}: expected at most {}", blocks.size(),
                   block_tokens, prompt, most);
  }
  return blocks;
}

// What earlier requests began with as well, at most all of the prompt but its last token.
void find_prefixes(std::vector<HashedRequest>& hashed, RequestTrace& trace) {
  std::stable_sort(hashed.begin(), hashed.end(), [](const HashedRequest& a, const HashedRequest& b) {
    return a.request.arrival < b.request.arrival;
  });
  PrefixTreeBuilder tree;
  for (HashedRequest& h : hashed) {
    const PrefixTreeBuilder::Path path = tree.add(h.blocks, h.block_tokens, h.request.prompt);
    h.request.prefix = path.last;
    h.request.cached = std::min(path.known, h.request.prompt - 1);
    trace.requests.push_back(h.request);
  }
  trace.prefixes = tree.take();
}

// A number or a text as the file has it; empty: the key is not there, or it is neither.
std::string value_of(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_number() ? found->dump() : "";
}

Result<RequestTrace> from_json_lines(Lines& lines, std::string_view first, Unanswered unanswered) {
  RequestTrace trace;
  std::vector<HashedRequest> hashed;
  bool is_first = true;
  for (std::optional line(first); line; line = lines.next()) {
    const Json object = Json::parse(*line, nullptr, false);
    if (!object.is_object()) return failure("line {}: expected a JSON object", lines.number());
    const auto find = [&](const auto& known) -> std::pair<std::string, Column> {
      for (const Column& column : known) {
        if (std::string text = value_of(object, column.name); !text.empty()) return {std::move(text), column};
      }
      return {};
    };
    auto [arrival, column] = find(kArrivals);
    const std::string prompt = find(kPrompts).first, output = find(kOutputs).first;
    if (prompt.empty()) return failure("line {}: {}", lines.number(), none_for("key", "prompt", kPrompts));
    if (output.empty()) return failure("line {}: {}", lines.number(), none_for("key", "answer", kOutputs));
    // As a column of a table, all lines have an arrival or none has.
    if (is_first) trace.has_arrivals = !arrival.empty();
    is_first = false;
    if (arrival.empty() && trace.has_arrivals) {
      return failure("line {}: {}", lines.number(), none_for("key", "arrival", kArrivals));
    }
    if (!arrival.empty() && !trace.has_arrivals) {
      return failure("line {}: {} says when it arrives, and the first line does not", lines.number(), column.name);
    }
    if (!trace.has_arrivals) arrival = "0", column = {};
    // Mooncake's clock ticks in milliseconds, Bailian's, which has chats, in seconds.
    const bool chats = object.contains("chat_id"), milliseconds = column.name == "timestamp" && !chats;
    auto request = request_of(arrival, milliseconds ? 1e-3 : column.seconds, prompt, output, unanswered);
    if (!request) return failure("line {}: {}", lines.number(), request.error());
    trace.left_out += request.value() ? 0U : 1U;
    if (!request.value()) continue;
    const std::uint32_t block = chats ? kBailianBlock : kMooncakeBlock;
    auto blocks = blocks_of(object, block, request.value()->prompt);
    if (!blocks) return failure("line {}: {}", lines.number(), blocks.error());
    hashed.push_back({*request.value(), std::move(blocks).value(), block});
  }
  find_prefixes(hashed, trace);
  return trace;
}

}  // namespace

Result<RequestTrace> request_trace_from_text(std::string_view text, Unanswered unanswered) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  Lines lines(text);
  const auto first = lines.next();
  if (!first) return failure("no requests: the file is empty");
  if (first->front() == '[') return failure("line {}: a list; expected a JSON object on each line", lines.number());
  Result<RequestTrace> read =
      first->front() == '{' ? from_json_lines(lines, *first, unanswered) : from_csv(text, unanswered);
  if (!read) return read;
  RequestTrace& trace = read.value();
  if (trace.requests.empty()) {
    return failure("no requests with a prompt{}", unanswered == Unanswered::kKept ? "" : " and an answer");
  }
  trace.unanswered = static_cast<std::size_t>(std::ranges::count(trace.requests, 0U, &Request::output));
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const Request& a, const Request& b) { return a.arrival < b.arrival; });
  const double begin = trace.requests.front().arrival;
  for (Request& request : trace.requests) request.arrival -= begin;
  const double last = trace.requests.back().arrival;
  if (last > kMostSeconds) return failure("requests over {:.3g} seconds: expected at most {:.0e}", last, kMostSeconds);
  return read;
}

}  // namespace kvroof
