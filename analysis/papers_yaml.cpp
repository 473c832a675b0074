// The reader of validation/papers/*.yaml.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <variant>

#include "analysis/papers.hpp"
#include "sim/core/files.hpp"
#include "sim/core/names.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

template <class T>
struct Field {
  std::string_view key;
  std::variant<std::string T::*, double T::*, std::uint32_t T::*, bool T::*, std::optional<double> T::*> member;
};

constexpr std::array<Field<PaperRow>, 10> kRowFields = {{{"model", &PaperRow::model},
                                                         {"policy", &PaperRow::policy},
                                                         {"note", &PaperRow::note},
                                                         {"kept", &PaperRow::kept},
                                                         {"batch", &PaperRow::batch},
                                                         {"prompt", &PaperRow::prompt},
                                                         {"output", &PaperRow::output},
                                                         {"value", &PaperRow::value},
                                                         {"band", &PaperRow::band},
                                                         {"band_after", &PaperRow::band_after}}};
constexpr std::array<Field<PaperTable>, 12> kTableFields = {{{"figure", &PaperTable::figure},
                                                             {"about", &PaperTable::about},
                                                             {"metric", &PaperTable::metric},
                                                             {"model", &PaperTable::model},
                                                             {"device", &PaperTable::device},
                                                             {"engine", &PaperTable::engine},
                                                             {"beams", &PaperTable::beams},
                                                             {"memory_gib", &PaperTable::memory_gib},
                                                             {"fit", &PaperTable::fit},
                                                             {"policy_constant", &PaperTable::policy_constant},
                                                             {"order", &PaperTable::order},
                                                             {"published", &PaperTable::published}}};
constexpr std::array<Field<Paper>, 3> kPaperFields = {
    {{"name", &Paper::name}, {"title", &Paper::title}, {"source", &Paper::source}}};

[[noreturn]] void refuse(const YAML::Node& node, const std::string& problem) {
  throw YAML::Exception(node.Mark(), problem);
}

// Every key but `list` is a field; a value of another type throws with its line.
template <class T, std::size_t N>
void read(const YAML::Node& node, const std::array<Field<T>, N>& fields, std::string_view list, T& to) {
  if (!node.IsMap()) refuse(node, "expected keys and values");
  for (const auto& entry : node) {
    const auto key = entry.first.as<std::string>();
    if (key == list) continue;
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.key == key; });
    if (field == fields.end()) {
      std::vector<std::string> known;
      for (const auto& f : fields) known.emplace_back(f.key);
      refuse(entry.first, fmt::format("unknown key '{}'{}", key, did_you_mean(key, known)));
    }
    std::visit(
        [&](auto member) {
          using Value = std::remove_cvref_t<decltype(to.*member)>;
          if constexpr (std::is_same_v<Value, std::optional<double>>) {
            to.*member = entry.second.as<double>();
          } else {
            to.*member = entry.second.as<Value>();
          }
        },
        field->member);
  }
}

constexpr std::array<std::string_view, 8> kMetrics = {"tokens_per_s",  "step_ms",       "kv_gib", "memory_gib",
                                                      "kv_read_ratio", "largest_batch", "fits",   "published"};

PaperTable read_table(const YAML::Node& node) {
  PaperTable table;
  read(node, kTableFields, "rows", table);
  if (std::find(kMetrics.begin(), kMetrics.end(), table.metric) == kMetrics.end()) {
    refuse(node, fmt::format("metric '{}' is none of those known", table.metric));
  }
  const bool priced = table.metric == "tokens_per_s" || table.metric == "step_ms" || table.metric == "memory_gib" ||
                      table.metric == "fits";
  if (priced && (table.device.empty() || table.engine.empty())) refuse(node, "device and engine are needed");
  for (const auto& item : node["rows"]) {
    PaperRow row;
    row.model = table.model;
    read(item, kRowFields, "", row);
    if (row.model.empty() || !item["value"]) refuse(item, "model and value are needed");
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Result<Paper> paper_from_yaml(std::string_view text) {
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    Paper paper;
    read(root, kPaperFields, "tables", paper);
    if (paper.name.empty() || paper.source.empty()) return failure("name and source are needed");
    for (const auto& table : root["tables"]) paper.tables.push_back(read_table(table));
    return paper;
  } catch (const YAML::Exception& e) {
    return failure("line {}: {}", e.mark.line + 1, e.msg);
  }
}

std::vector<Paper> read_papers(const std::filesystem::path& folder) {
  constexpr std::uint64_t kMostBytes = 1U << 20;
  std::vector<Paper> papers;
  for (const std::string& name : yaml_names(folder)) {
    const std::filesystem::path path = folder / (name + ".yaml");
    const std::string text = read_text_file(path, kMostBytes).or_throw(path.string());
    papers.push_back(paper_from_yaml(text).or_throw(path.string()));
  }
  return papers;
}

}  // namespace kvroof
