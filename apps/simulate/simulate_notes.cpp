#include "apps/simulate/simulate_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/prediction/device_prices.hpp"
#include "apps/simulate/simulate_answer.hpp"
#include "apps/simulate/simulate_prefix_output.hpp"
#include "apps/simulate/simulate_rank.hpp"
#include "apps/simulate/simulate_transfers.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

// What is said of rows: of those of which the same is said, once, with the names of the first few.
class NotesOfRows {
 public:
  explicit NotesOfRows(std::size_t rows) : rows_(rows) {}
  void add(std::string who, const std::string& text) {
    if (text.empty()) return;
    auto said = std::ranges::find(said_, text, &Said::text);
    if (said == said_.end()) said = said_.insert(said, {text, {}});
    said->of.push_back(std::move(who));
  }
  // "A; B: text"; of all of several rows: "all: text", of one that is alone: "text".
  [[nodiscard]] std::vector<std::string> texts(bool name_one) const {
    std::vector<std::string> texts;
    for (const Said& said : said_) {
      const std::string who = names(said.of);
      texts.push_back(rows_ == 1 && !name_one ? said.text : fmt::format("{}: {}", who, said.text));
    }
    return texts;
  }

 private:
  struct Said {
    std::string text;
    std::vector<std::string> of;
  };
  [[nodiscard]] std::string names(const std::vector<std::string>& of) const {
    constexpr std::size_t kMostNamed = 4;
    if (of.size() == rows_ && rows_ > 1) return "all";
    std::string text;
    const std::size_t named = of.size() > kMostNamed + 1 ? kMostNamed : of.size();
    for (std::size_t i = 0; i < named; ++i) text += (i > 0 ? "; " : "") + of[i];
    return named < of.size() ? fmt::format("{}; {} others", text, of.size() - named) : text;
  }

  std::size_t rows_;
  std::vector<Said> said_;
};

// Where intervals are from, and what sets the upper ends of the slowest requests.
std::string intervals_note(const SimulateRequest& r, SimulatedRows rows) {
  std::string text = "intervals: all steps and prompts at the ends of their own intervals, and at least as wide as "
                     "measured runs of servers lie from simulated ones";
  if (r.cold) {
    text += " in their first minute";
  } else if (r.workload.model.experts > 0) {
    text += "; first minutes of servers of experts are far slower (--cold)";
  }
  NotesOfRows wide(rows.size());
  for (const SimulatedRow& row : rows) {
    if (!row.problem.empty()) continue;
    const RequestEstimates& l = row.latency;
    std::string by = fmt::format("first tokens {}, ", name_of(l.first_token.p99_wide_by));
    if (row.has_gaps()) by += fmt::format("tokens {}, ", name_of(l.token.p99_wide_by));
    wide.add(who_text(r, row), by + fmt::format("answers {}", name_of(l.whole.p99_wide_by)));
  }
  for (std::string separator = ". What makes p99 wide: "; const std::string& of_rows : wide.texts(false)) {
    text += std::exchange(separator, "; ") + of_rows;
  }
  return text;
}

// Servers that answers outlast have not filled when the last request comes; empty: they have.
std::string too_short(const SimulateRequest& r, const SimulatedRow& row) {
  if (!is_burst(r, row)) return {};
  const auto count = static_cast<double>(row.outcome.requests.size());
  const double wanted = lasting_count(r, row);
  const std::string found = r.highest_rate    ? ": the rate that was found is that of a burst, more than lasts;"
                            : r.replicas == 0 ? ": the servers that were found bear a burst, not a rate that lasts;"
                                              : ";";
  return fmt::format("requests came for {:.0f} s and {} took {:.0f} s, so that servers were still filling when "
                     "the last came{} more requests{} ask more of them",
                     count / row.rate, r.in_conversations() ? "a conversation" : "an answer", visit_seconds(r, row),
                     found,
                     r.drawn ? fmt::format(" (--count {:.0f})", std::ceil(wanted / 1000) * 1000) : "");
}

// Servers that keep up answer as many requests as come, but for two edges of a short run: arrivals that are drawn are
// seldom as many as asked for, and the last answer is waited for; empty: they hardly matter.
std::string edges(const SimulateRequest& r, const SimulatedRow& row) {
  constexpr double kHardly = 0.02;
  const double served = row.requests_per_s.value;
  if (r.asked_rate == 0 || row.rate <= 0 || row.falls_behind() || row.refused > 0) return {};
  if (std::abs(served / r.asked_rate - 1) <= kHardly) return {};
  const std::string count = r.drawn ? " (--count)" : "";
  if (row.rate < (1 - kHardly) * r.asked_rate) {
    return fmt::format("the {} requests came at {} a second, fewer than --rate {:g}, and servers kept up with those; "
                       "whether they do with --rate takes more requests{}",
                       row.outcome.requests.size(), number_text(row.rate), r.asked_rate, count);
  }
  return fmt::format("servers keep up, though requests/s are not those of --rate {:g}: the {} requests came at {} a "
                     "second, and the last answer is waited for; more requests{} come nearer",
                     r.asked_rate, row.outcome.requests.size(), number_text(row.rate), count);
}

std::string behind(const SimulateRequest& r, const SimulatedRow& row) {
  if (!row.falls_behind()) return {};
  return fmt::format("requests come faster than they are answered ({} waited when the last came); how long they wait "
                     "depends on how long that lasts{}", row.outcome.waiting_at_end,
                     r.highest_rate ? ", and so does the highest rate: more requests have a lower one" : "");
}

// Requests that no server holds; empty: there are none.
std::string refused(const SimulateRequest& r, const SimulatedRow& row) {
  if (row.refused == 0) return {};
  return fmt::format("{} of {} requests {} on a server by {} refused and in time for no goal", row.refused,
                     r.requests.size(), row.refused == 1 ? "does not fit" : "do not fit",
                     row.refused == 1 ? "itself; it is" : "themselves; they are");
}

// What is said of single rows: of those of which tables say nothing, why there is no answer alone.
std::vector<std::string> notes_of_rows(const SimulateRequest& r, SimulatedRows rows) {
  NotesOfRows problems(rows.size()), notes(rows.size());
  for (const SimulatedRow& row : rows) problems.add(who_text(r, row), row.problem);
  for (const SimulatedRow& row : shown_rows(r, rows)) {
    if (!row.problem.empty()) continue;
    const std::string who = who_text(r, row), filling = too_short(r, row);
    notes.add(who, refused(r, row));
    notes.add(who, filling.empty() ? edges(r, row) : filling);
    notes.add(who, behind(r, row));
  }
  std::vector<std::string> texts = problems.texts(true);
  for (std::string& text : notes.texts(true)) texts.push_back(std::move(text));
  return texts;
}

// Requests that are all alike end together where they began together, and who answers them is asked again at once;
// empty: they differ, or nothing follows from it.
std::string in_step(const SimulateRequest& r, SimulatedRows rows) {
  const auto grouped = [](const SimulatedRow& row) { return row.deployment->data_parallel > 1; };
  const auto alike = [&](const Request& a) {
    return a.prompt == r.requests.front().prompt && a.output == r.requests.front().output;
  };
  if (r.pause > 0 || !std::ranges::all_of(r.requests, alike)) return {};
  const std::string vary = r.drawn ? " (--spread 0.1)" : "";
  const auto several = [](const SimulatedRow& row) { return row.problem.empty() && row.replicas > 1; };
  if (r.clients < 2) {
    if (std::ranges::none_of(rows, several)) return {};
    return "requests are all alike, so that those that a server began together end together, and the next ones all go "
           "there: first tokens wait the longer, the longer that lasts; lengths that vary" + vary + " do not";
  }
  if (std::ranges::none_of(rows, grouped)) {
    return "requests are all alike, so that clients that were answered together ask together for as long as they ask, "
           "and first tokens wait for all their prompts; lengths that vary" + vary + " drive them apart";
  }
  return fmt::format("requests are all alike, so that groups compute the prompts of {} clients in the same steps for "
                     "as long as they ask; lengths that vary{} drive groups apart, and each then waits for the prompts "
                     "of all others", r.clients, vary);
}

// How clients ask, and turns follow.
std::string clients_text(const SimulateRequest& r) {
  if (r.clients == 0) {
    return r.pause > 0 ? fmt::format("; a turn comes {:g} s in the mean after the answer before it", r.pause) : "";
  }
  const std::string pause = r.pause > 0 ? fmt::format(" and a pause of {:g} s in the mean is over", r.pause) : "";
  if (r.clients == 1) return fmt::format("; one client sends the next when it is answered{}", pause);
  if (r.most_clients) return fmt::format("; clients send the next when they are answered{}", pause);
  return fmt::format("; {} clients send the next when they are answered{}", r.clients, pause);
}

// Where conversations begin, and which of their requests count.
std::string begun_conversations(const SimulateRequest& r) {
  if (r.clients == 0) {
    return fmt::format("times but those between tokens (itl_ms), what prompts found and requests/s are without the "
                       "first {} requests, when conversations have only begun", r.warm_up_of(0));
  }
  const std::string begin = "clients begin in the middle of conversations, so that all turns are as frequent";
  if (!r.most_clients && r.warm_up_of(r.clients) == 0) {
    return begin + "; the first request of each, of which no cache has what was said before, counts as well";
  }
  const std::string of = r.most_clients ? fmt::format("{} of each client", r.warm_up_each())
                                        : std::to_string(r.warm_up_of(r.clients));
  return fmt::format("{}; times but those between tokens (itl_ms), what prompts found and requests/s are without the "
                     "first {}, before which no cache has what was said", begin, of);
}

}  // namespace

std::vector<std::string> simulate_notes(const SimulateRequest& r, SimulatedRows rows) {
  std::vector<std::string> notes = {(r.most_clients ? "of " : "") + r.requests_text + clients_text(r)};
  if (r.without_answer > 0) {
    notes.push_back(r.without_answer == 1
                        ? "one request of the file has no answer or no prompt and is left out"
                        : fmt::format("{} requests of the file have no answer or no prompt and are left out",
                                      r.without_answer));
  }
  if (r.turns_left_out > 0) {
    notes.push_back(fmt::format("{} for which the model has no positions {} left out",
                                counted(r.turns_left_out, "turn"), r.turns_left_out == 1 ? "is" : "are"));
  }
  if (r.in_conversations()) {
    notes.push_back(begun_conversations(r));
  } else if (r.most_clients || r.warm_up_of(r.clients) > 0) {
    notes.push_back(fmt::format("times of requests are without the first of each {}client{}; those between tokens "
                                "(itl_ms) are of all",
                                r.most_clients ? "" : fmt::format("of the {} ", r.clients),
                                r.most_clients ? "" : r.pause > 0 ? "s" : "s, which all come at once"));
  }
  for (std::string& note : notes_of_rows(r, rows)) notes.push_back(std::move(note));
  const auto answers = std::ranges::count_if(rows, [](const SimulatedRow& row) { return row.problem.empty(); });
  if (r.ranks() && answers > r.top) {
    notes.push_back(fmt::format("best first, by what is served {}; tables but for the first, and notes on rows, are of "
                                "the best {} (--top)", r.by_price ? "for the money" : "on each device", r.top));
  }
  std::vector<const Device*> devices;
  for (const SimulatedRow& row : rows) devices.push_back(row.device);
  for (std::string& note : workload_notes(r.workload, devices)) notes.push_back(std::move(note));
  if (std::string note = in_step(r, rows); !note.empty()) notes.push_back(std::move(note));
  for (std::string& note : transfer_notes(r, rows)) notes.push_back(std::move(note));
  for (std::string& note : prefix_notes(r, rows)) notes.push_back(std::move(note));
  for (const SimulatedRow& row : rows) devices.push_back(row.prefill_device);
  if (const std::string prices = prices_text(devices); !prices.empty()) {
    notes.push_back("$: an hour, and of a million generated tokens at the rate at which requests come, or are served "
                    "where servers fall behind, " + prices);
  }
  notes.push_back(intervals_note(r, shown_rows(r, rows)));
  return notes;
}

}  // namespace kvroof
