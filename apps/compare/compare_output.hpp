// What `kvroof compare` found, for people and for programs: a ranked table, its picture, JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/plan/plan_search.hpp"
#include "apps/prediction/device_prices.hpp"
#include "apps/prediction/intervals.hpp"
#include "apps/prediction/workload.hpp"

namespace kvroof {

// One deployment of one policy on one device.
struct Contender {
  const Device* device = nullptr;
  const Workload* workload = nullptr;
  const Deployment* deployment = nullptr;
  Served served;
  std::uint64_t batch = 0;  // that it serves; 0: none
  Prediction prediction;  // of that batch
  Estimate token, rate;   // seconds, tokens a second: under load where the goals are
  double loaded_rate = 0; // tokens a second of that batch under load
  Estimate prompts;       // seconds that those of the batch take together
  IntervalFactors factors;
  // Tokens/s a sequence and of each device, at 1, 2, 4, … sequences.
  std::vector<std::pair<double, double>> batches;
  bool on_front = false;  // at one of them, none of the others is faster in both

  [[nodiscard]] double tokens_per_s() const { return batch > 0 ? rate.value : 0; }
  [[nodiscard]] double tokens_per_s_a_sequence() const {
    return batch > 0 ? tokens_per_s() / static_cast<double>(batch) : 0;
  }
  [[nodiscard]] double devices() const { return deployment->devices(); }
  [[nodiscard]] double tokens_per_s_a_device() const { return tokens_per_s() / devices(); }
  // At the lowest and at the highest listed price.
  [[nodiscard]] std::optional<UsdRange> price() const {
    return price_of_million_tokens(price_of_hour(*device, deployment->devices()), tokens_per_s());
  }
  [[nodiscard]] double tokens_per_usd() const { return price() ? 1e6 / price()->high_usd : 0; }
  // At the power that the board may draw, so at least so many.
  [[nodiscard]] double tokens_per_joule() const {
    const auto& power = device->fact(DeviceField::kPowerW);
    return power ? tokens_per_s_a_device() / power->value : 0;
  }
  // "2 × h100-sxm, fp8": the device and, where they are not the only ones asked for, how many, which weights and which
  // drafts.
  [[nodiscard]] std::string name(bool several) const { return name(several, device->name); }
  [[nodiscard]] std::string name(bool several, const std::string& of_device) const {
    if (!several) return of_device;
    const std::string count = devices() > 1 ? fmt::format("{} × ", deployment->devices()) : "";
    return fmt::format("{}{}{}, {}{}", count, of_device, layout_text(*deployment), deployment->weights.name,
                       with_drafts_text(*deployment));
  }
};

// What contenders are ranked by.
struct Measure {
  std::string_view name;
  std::string_view needs;          // what not every device has, in words; or nothing
  double (*of)(const Contender&);  // 0: serves nothing, or lacks that
};
// What was asked for, ranked.
struct Ranking {
  const WorkloadRequest& request;
  const Measure& by;
  const Goals& goals;
  std::vector<Contender> ranked;
  std::vector<std::pair<double, double>> front;

  // Of many, a picture tells apart those on the front and the first of the ranking.
  [[nodiscard]] bool stands_out(const Contender& c) const {
    constexpr std::size_t kFew = 12;
    return ranked.size() <= kFew || c.on_front || &c == &ranked.front();
  }
  [[nodiscard]] bool several() const { return request.deployments.size() > 1 || ranked.front().devices() > 1; }
  [[nodiscard]] std::string title(const Contender& c) const {
    return fmt::format("{} {}", c.name(several()), request.title(c.workload->policy()));
  }
};

// Rows, picture and notes on a page.
std::string compare_table(const Ranking& r);
// The same picture as a file: a line for each contender, and the front that none exceeds in both.
std::string compare_svg(const Ranking& r);
std::string compare_json(const Ranking& r);
std::string compare_csv(const Ranking& r);

}  // namespace kvroof
