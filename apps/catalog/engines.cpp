// kvroof engines: how engines launch work, share it out and fill memory, in their versions.
#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "sim/core/suggest.hpp"
#include "sim/cost/engine_profile.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

Table list_engines(const std::filesystem::path& catalog) {
  Table table;
  table.columns = {{"engine", "engine", false},
                   {"versions", "versions"},
                   {"what it is", "about", false},
                   {"other names", "published_as", false}};
  for (const std::string& name : catalog_engine_names(catalog)) {
    const EngineProfile e = find_engine_profile(name, catalog);
    int versions = 1;
    for (const EngineProfile* p = &e; !p->earlier.empty(); p = &p->earlier.front()) ++versions;
    table.rows.push_back({e.name, std::to_string(versions), e.about, join(e.published_as)});
  }
  return table;
}

// What one has other than another, as rows; `when` says where it holds.
void add_others(Table& table, const EngineProfile& profile, const EngineProfile& than, const std::string& when) {
  const auto facts = engine_facts(profile), others = engine_facts(than);
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (facts[i] != others[i]) table.rows.push_back({std::string(facts[i].key), facts[i].value, when});
  }
}

// What changed with a version: the facts that an engine had before it other than since.
struct Change {
  std::string when;  // "before 0.8.0 or 2025-03-18"
  std::vector<EngineFact> facts;

  [[nodiscard]] const EngineFact* find(std::string_view key) const {
    const auto found = std::find_if(facts.begin(), facts.end(), [&](const EngineFact& f) { return f.key == key; });
    return found == facts.end() ? nullptr : &*found;
  }
};

// Of the chain of earlier versions, from this one on: of several before the same version the last holds. What `known`
// changes say already is left out: a fact then is what it was since, unless one of them says otherwise.
std::vector<Change> changes_of(const EngineProfile& newest, const std::vector<Change>& known) {
  std::vector<Change> changes;
  std::vector<EngineFact> said = engine_facts(newest);
  for (const EngineProfile* newer = &newest; !newer->earlier.empty();) {
    const EngineProfile* older = &newer->earlier.front();
    while (!older->earlier.empty() && older->earlier.front().before == older->before) older = &older->earlier.front();
    Change change{fmt::format("before {}", join(older->before, " or ")), {}};
    const auto same = std::find_if(known.begin(), known.end(), [&](const Change& c) { return c.when == change.when; });
    const std::vector<EngineFact> facts = engine_facts(*older);
    for (std::size_t i = 0; i < facts.size(); ++i) {
      const EngineFact* before = same == known.end() ? nullptr : same->find(facts[i].key);
      if (facts[i] != (before == nullptr ? said[i] : *before)) change.facts.push_back(facts[i]);
    }
    said = facts;
    changes.push_back(std::move(change));
    newer = older;
  }
  return changes;
}

void add_changes(Table& table, const std::vector<Change>& changes, const std::string& on) {
  for (const Change& change : changes) {
    for (const EngineFact& fact : change.facts) {
      table.rows.push_back({std::string(fact.key), fact.value, change.when + on});
    }
  }
}

// Where another profile holds, such as "on Hopper from 70 GiB".
std::string boards_text(const EngineProfile& there) {
  const std::string memory = there.from_gib > 0 ? fmt::format(" from {} GiB", there.from_gib) : "";
  return "on " + join(there.on) + memory;
}

// What the profile of a version ("": today) has other than an engine of which nothing is said; its earlier versions,
// other than those after them; and other boards, of whose earlier versions what is other than everywhere.
Table show_engine(const EngineProfile& engine, const std::string& version) {
  Table table;
  table.columns = {{"key", "key", false}, {"value", "value", false}, {"holds", "holds", false}};
  const EngineProfile& then = engine.of(version, "");
  add_others(table, then, EngineProfile{}, version.empty() ? "today" : version);
  for (const EngineProfile& there : engine.elsewhere) {
    add_others(table, there.of(version, there.on.front()), then, boards_text(there));
  }
  const std::vector<Change> everywhere = changes_of(then, {});
  add_changes(table, everywhere, "");
  for (const EngineProfile& there : engine.elsewhere) {
    const std::vector<Change> own = changes_of(there.of(version, there.on.front()), everywhere);
    add_changes(table, own, ", " + boards_text(there));
  }
  return table;
}

int run_engines(const Arguments& arguments) {
  const std::filesystem::path catalog = data_folder() / "catalog";
  if (asks_for_list(arguments)) {
    write_table(arguments, list_engines(catalog));
    return 0;
  }
  const std::string& word = arguments.positional[0];
  if (word != "show") throw not_show("engines", word, catalog_engine_names(catalog));
  if (arguments.positional.size() < 2) {
    throw usage_error("engines show: a name is missing").note("`kvroof engines` lists the names");
  }
  const std::string& asked = arguments.positional[1];
  const std::size_t at = asked.find('@');
  const std::string version = at == std::string::npos ? "" : asked.substr(at + 1);
  (void)find_engine_profile(asked, catalog);  // refuses what is no version of it
  write_table(arguments, show_engine(find_engine_profile(asked.substr(0, at), catalog), version));
  return 0;
}

void describe_engines(po::options_description_easy_init) {}

}  // namespace

Command engines_command() {
  return {"engines",
          "serving engines that plan, compare and validate price, in their versions",
          "[list | show NAME[@VERSION]]",
          "  kvroof engines\n"
          "  kvroof engines show vllm\n"
          "  kvroof engines show vllm@0.6.3 --format json",
          describe_engines,
          run_engines,
          0,
          2};
}

}  // namespace kvroof
