#include "analysis/papers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/cost/engine_profile.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {
namespace {

PolicyTraits traits_of(const std::string& policy) {
  const PolicySpec spec = parse_policies(policy).front();
  return policy_info(spec.name).traits(spec);
}

// A cache that holds `kept` of the prompt from its end on, one token in and one out a step.
ResidencySummary budget_summary(const ModelShape& shape, const PaperRow& row) {
  ResidencySummary r = full_attention_summary(shape, row.prompt, std::max(row.output, 1U));
  if (!(row.kept > 0)) return r;
  const auto k = static_cast<std::uint64_t>(std::floor(row.kept * row.prompt));
  const std::uint64_t heads = std::uint64_t{shape.layers} * r.storage_heads;
  r.evicts = true;
  const PolicyTraits traits = traits_of(row.policy);
  r.needs_probabilities = traits.rows == RowNeed::kAll;
  r.observes_steps = traits.rows != RowNeed::kNone && traits.schedule == Schedule::kEveryStep;
  r.state_bytes_per_row = traits.state_bytes + shape.heads / r.storage_heads * traits.query_head_state;
  r.prefill.resident = heads * k;
  r.prefill.moved = heads * k;
  r.peak_rows = heads * (k + 1);
  r.peak_paged_rows = heads * in_pages(k + 1);
  r.layer_prompt_rows = std::uint64_t{r.storage_heads} * row.prompt;
  r.decode.attended = r.decode.allocated = r.decode_steps * heads * (k + 1);
  r.decode.allocated_paged = r.decode_steps * heads * in_pages(k + 1);
  r.decode.resident = r.decode_steps * heads * k;
  r.decode.state_read = r.decode.state_written = r.decode.attended * r.state_bytes_per_row;
  return r;
}

// What a row is made of before anything is fitted.
struct Priced {
  Prediction prediction;
  MemoryLedger ledger;
  double sequences = 1;
  double cache_seconds = 0;  // of one pass over the cache that a step reads, at the memory's peak
};

class PaperPricing {
 public:
  PaperPricing(const PaperTable& table, const std::filesystem::path& catalog) : table_(table), catalog_(catalog) {}

  [[nodiscard]] Priced priced(const PaperRow& row) const {
    const Device device = find_device(table_.device, catalog_);
    const CostModel cost(shape_of(row), kTypes, device, find_engine_profile(table_.engine, catalog_));
    ResidencySummary residency = budget_summary(cost.shape(), row);
    residency.beams = table_.beams;
    Priced p;
    p.sequences = static_cast<double>(sequences_of(row));
    p.prediction = cost.predict(residency, sequences_of(row));
    p.ledger = cost.memory().ledger(residency, sequences_of(row));
    p.cache_seconds =
        static_cast<double>(p.prediction.traffic.bytes[Cause::kKvRead]) / device.bandwidth().value;
    return p;
  }
  // Of metrics without a device.
  [[nodiscard]] double arithmetic(const PaperRow& row) const {
    const ModelShape shape = shape_of(row);
    const double one = gib(kv_bytes(shape, kTypes.kv, row.prompt + row.output));
    if (table_.metric == "kv_gib") return one * static_cast<double>(sequences_of(row));
    if (table_.metric == "kv_read_ratio") {
      PaperRow full = row;
      full.kept = 0;
      return budget_summary(shape, row).attended_rows() / budget_summary(shape, full).attended_rows();
    }
    return std::floor((table_.memory_gib - gib(weight_bytes(shape, kTypes.weights))) / one);
  }
  [[nodiscard]] bool has_device() const { return !table_.device.empty(); }

 private:
  static constexpr TrafficTypes kTypes = {DType::kF16, DType::kF16};
  [[nodiscard]] ModelShape shape_of(const PaperRow& row) const { return find_model_shape(row.model, catalog_); }
  [[nodiscard]] std::uint64_t sequences_of(const PaperRow& row) const {
    return std::uint64_t{row.batch} * table_.beams;
  }

  const PaperTable& table_;
  const std::filesystem::path& catalog_;
};

double seconds_of(const PaperTable& table, const PaperRow& row) {
  return table.metric == "step_ms" ? row.value * 1e-3 : row.batch / row.value;
}
double in_unit(const PaperTable& table, const PaperRow& row, double seconds) {
  return table.metric == "step_ms" ? seconds * 1e3 : row.batch / seconds;
}

bool full(const PaperRow& row) { return !(row.kept > 0); }

// Least squares of measured − priced = a + b · pass over the cache, on the rows of full attention; then c · pass on the
// others.
void fit(TableScore& score, const std::vector<Priced>& priced) {
  double n = 0, x = 0, xx = 0, y = 0, xy = 0;
  // Relative errors count, as the bands do.
  const auto each = [&](bool of_full, auto&& use) {
    for (std::size_t i = 0; i < priced.size(); ++i) {
      const PaperRow& row = score.table->rows[i];
      const double measured = seconds_of(*score.table, row);
      if (full(row) != of_full) continue;
      use(priced[i].cache_seconds, measured - priced[i].prediction.step.value, 1 / (measured * measured));
    }
  };
  each(true, [&](double pass, double rest, double weight) {
    n += weight;
    x += weight * pass;
    xx += weight * pass * pass;
    y += weight * rest;
    xy += weight * pass * rest;
  });
  score.cache_passes = (n * xy - x * y) / (n * xx - x * x);
  score.step_seconds = (y - score.cache_passes * x) / n;
  if (!score.table->policy_constant) return;
  double above = 0, below = 0;
  each(false, [&](double pass, double rest, double weight) {
    above += weight * pass * (rest - score.step_seconds - score.cache_passes * pass);
    below += weight * pass * pass;
  });
  score.policy_passes = above / below;
}

void score_times(TableScore& score, const std::vector<Priced>& priced) {
  if (score.table->fit) fit(score, priced);
  for (std::size_t i = 0; i < priced.size(); ++i) {
    const PaperRow& row = score.table->rows[i];
    const double base = priced[i].prediction.step.value;
    const double seconds = base + score.step_seconds + score.cache_passes * priced[i].cache_seconds;
    PaperScore& s = score.rows[i];
    s.unfitted = in_unit(*score.table, row, base);
    s.predicted = in_unit(*score.table, row, seconds);
    if (score.table->policy_constant && !full(row)) {
      s.after = in_unit(*score.table, row, seconds + score.policy_passes * priced[i].cache_seconds);
    }
  }
}

// Pairs whose predictions are in another order than their values.
std::size_t misordered(const TableScore& score) {
  if (score.table->order.empty()) return 0;
  std::size_t pairs = 0;
  for (const PaperScore& a : score.rows) {
    for (const PaperScore& b : score.rows) {
      const bool alike = a.row->prompt == b.row->prompt && a.row->batch == b.row->batch;
      if (score.table->order == "prompt" && !alike) continue;
      if (a.row->value < b.row->value && a.after.value_or(a.predicted) >= b.after.value_or(b.predicted)) ++pairs;
    }
  }
  return pairs;
}

}  // namespace

bool PaperScore::met() const {
  constexpr double kRounding = 1e-9;
  const bool first = !row->band || std::abs(error()) <= *row->band + kRounding;
  return first && (!row->band_after || (after && std::abs(error_of(*after)) <= *row->band_after + kRounding));
}

std::optional<double> TableScore::mean_error(bool of_full, bool after_constant) const {
  double sum = 0, count = 0;
  for (const PaperScore& s : rows) {
    if (full(*s.row) != of_full || (after_constant && !s.after)) continue;
    sum += std::abs(s.error_of(after_constant ? *s.after : s.predicted));
    count += 1;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

TableScore score_table(const Paper& paper, const PaperTable& table, const std::filesystem::path& catalog,
                       std::span<const ScoredRow> published) {
  TableScore score;
  score.paper = &paper;
  score.table = &table;
  if (table.metric == "published") {
    for (GroupScore& group : group_scores(published)) {
      if (group.group.starts_with(table.published)) score.published.push_back(std::move(group));
    }
    return score;
  }
  for (const PaperRow& row : table.rows) score.rows.emplace_back().row = &row;
  const PaperPricing pricing(table, catalog);
  std::vector<Priced> priced;
  for (PaperScore& s : score.rows) {
    if (!pricing.has_device()) {
      s.unfitted = s.predicted = pricing.arithmetic(*s.row);
      continue;
    }
    priced.push_back(pricing.priced(*s.row));
    const MemoryLedger& ledger = priced.back().ledger;
    s.unfitted = s.predicted = table.metric == "fits" ? (ledger.fits() ? 1.0 : 0.0) : gib(ledger.total());
  }
  if (table.metric == "step_ms" || table.metric == "tokens_per_s") score_times(score, priced);
  score.misordered = misordered(score);
  return score;
}

std::vector<Gate> gates_of(const std::vector<TableScore>& tables) {
  std::vector<Gate> gates;
  for (const TableScore& t : tables) {
    const std::string name = fmt::format("{}, {}", t.paper->name, t.table->figure);
    if (t.table->metric == "published") continue;  // the scoreboard has their gates
    double missed = 0;
    for (const PaperScore& row : t.rows) missed += row.met() ? 0 : 1;
    gates.push_back({"rows outside their band: " + name, missed, 0, 0});
    if (!t.table->order.empty()) {
      gates.push_back({"pairs in another order: " + name, static_cast<double>(t.misordered), 0, 0});
    }
  }
  return gates;
}

}  // namespace kvroof
