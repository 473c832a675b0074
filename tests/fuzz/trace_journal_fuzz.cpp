// Fuzz target: any bytes as journal.jsonl and as seal.json. What is accepted survives being written and read again.
#include <cstdint>
#include <string_view>

#include "traces/journal.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const kvroof::Journal journal = kvroof::parse_journal(text);
  std::string written;
  std::uint64_t steps = 0;
  for (const kvroof::JournalLine& line : journal.lines) {
    kvroof::check(line.first_step == steps, "each segment starts where the one before stopped");
    steps += line.steps;
    written += kvroof::journal_line_to_json(line);
  }
  const kvroof::Journal again = kvroof::parse_journal(written);
  kvroof::check(again.problem.empty() && again.lines.size() == journal.lines.size(), "written lines are read again");
  const auto seal = kvroof::seal_from_json(text);
  if (seal) {
    const std::string sealed = kvroof::seal_to_json(seal.value());
    kvroof::check(kvroof::seal_to_json(kvroof::seal_from_json(sealed).or_throw("seal")) == sealed, "a seal survives");
  }
  return 0;
}
