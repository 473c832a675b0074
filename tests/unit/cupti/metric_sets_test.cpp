// The metric sets, resolved on made chips, and by CUPTI itself where it is installed: it needs no driver for that.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "kernels/cupti/metric_sets.hpp"
#include "tests/catch.hpp"

using kvroof::CounterMode;
using kvroof::MetricCatalog;
using kvroof::MetricSet;
using kvroof::range_metrics;
using kvroof::ResolvedMetrics;
using kvroof::sampling_metrics;

namespace {

// A chip that lacks names that begin with one of `without`.
class MadeChip final : public MetricCatalog {
 public:
  explicit MadeChip(std::vector<std::string> without, std::size_t passes = 1)
      : without_(std::move(without)), passes_(passes) {}
  bool has(const std::string& metric) const override {
    for (const std::string& start : without_) {
      if (metric.starts_with(start)) return false;
    }
    return true;
  }
  kvroof::Result<std::size_t> passes(const std::vector<std::string>&) const override { return passes_; }

 private:
  std::vector<std::string> without_;
  std::size_t passes_;
};

std::string name_of(const ResolvedMetrics& metrics, std::string_view quantity) {
  for (std::size_t i = 0; i < metrics.quantities.size(); ++i) {
    if (metrics.quantities[i] == quantity) return metrics.names[i];
  }
  return "";
}

// CUPTI that is installed here. Null: the test is skipped, with the reason.
const kvroof::CuptiLibrary* installed_cupti() {
#if defined(__SANITIZE_ADDRESS__)
  fmt::print("SKIPPED: CUPTI loads libnvperf_host.so in a way that the address sanitizer refuses (RTLD_DEEPBIND)\n");
  return nullptr;
#endif
  static const auto library = kvroof::load_cupti(kvroof::this_machine());
  static const bool knows_chips = !kvroof::find_library(kvroof::this_machine(), "libnvperf_host.so").empty();
  if (library && knows_chips) return &library.value();
  fmt::print("SKIPPED: {}\n", library ? "no libnvperf_host.so, which knows the chips" : library.error());
  return nullptr;
}

ResolvedMetrics resolved_by(const kvroof::CuptiLibrary& cupti, const MetricSet& set, const std::string& chip) {
  const auto catalog = kvroof::open_metric_catalog(cupti, chip, set.mode);
  INFO(chip << (catalog ? "" : ": " + catalog.error()));
  REQUIRE(catalog.ok());
  const auto resolved = resolve_metrics(set, *catalog.value());
  INFO((set.mode == CounterMode::kRange ? "range" : "sampling") << (resolved ? "" : ": " + resolved.error()));
  REQUIRE(resolved.ok());
  return resolved.value();
}

}  // namespace

TEST_CASE("a chip that has every metric is asked for the first names") {
  const auto metrics = resolve_metrics(range_metrics(), MadeChip({}));
  REQUIRE(metrics.ok());
  CHECK(metrics.value().names.size() == range_metrics().metrics.size());
  CHECK(metrics.value().lacking.empty());
  CHECK(name_of(metrics.value(), "dram_read_bytes") == "dram__bytes_read.sum");
}

TEST_CASE("a chip without dram__bytes_* is asked for the bytes of its frame buffer partitions") {
  const auto metrics = resolve_metrics(range_metrics(), MadeChip({"dram__bytes_"}));
  REQUIRE(metrics.ok());
  CHECK(name_of(metrics.value(), "dram_read_bytes") == "fbpa__dram_read_bytes.sum");
  CHECK(name_of(metrics.value(), "dram_write_bytes") == "fbpa__dram_write_bytes.sum");
  CHECK(name_of(metrics.value(), "l2_bytes") == "lts__t_bytes.sum");
}

TEST_CASE("a quantity that a chip does not count is left out and named") {
  const auto metrics = resolve_metrics(range_metrics(), MadeChip({"lts__t_sectors_op_read"}));
  REQUIRE(metrics.ok());
  CHECK(metrics.value().lacking == std::vector<std::string_view>{"l2_read_sectors"});
  CHECK(metrics.value().names.size() == range_metrics().metrics.size() - 1);
  CHECK(metrics.value().names.size() == metrics.value().quantities.size());
}

TEST_CASE("counters that take two passes, or that no chip has, are refused in one sentence") {
  const auto twice = resolve_metrics(range_metrics(), MadeChip({}, 2));
  REQUIRE_FALSE(twice.ok());
  CHECK_THAT(twice.error(), ContainsSubstring("dram__bytes_read.sum and dram__bytes_write.sum together in 2 passes"));
  const auto none = resolve_metrics(sampling_metrics(), MadeChip({""}));
  REQUIRE_FALSE(none.ok());
  CHECK_THAT(none.error(), ContainsSubstring("none of the 8 counters"));
}

TEST_CASE("of a set that a device does not read in one pass, the last quantities are left out and named") {
  class FewFree final : public kvroof::MetricCatalog {
   public:
    bool has(const std::string&) const override { return true; }
    kvroof::Result<std::size_t> passes(const std::vector<std::string>& metrics) const override {
      return metrics.size() > 10 ? 2 : 1;
    }
  };
  const auto metrics = resolve_metrics(range_metrics(), FewFree());
  REQUIRE(metrics.ok());
  CHECK(metrics.value().names.size() == 10);
  CHECK(metrics.value().quantities.size() == 10);
  CHECK(name_of(metrics.value(), "dram_write_bytes") == "dram__bytes_write.sum");
  CHECK(metrics.value().lacking == std::vector<std::string_view>{"warps_active", "instructions"});
}

TEST_CASE("bytes read from DRAM are never counted without those written, and a set that cannot be configured is cut") {
  class Free final : public kvroof::MetricCatalog {
   public:
    explicit Free(std::size_t counters) : counters_(counters) {}
    bool has(const std::string&) const override { return true; }
    kvroof::Result<std::size_t> passes(const std::vector<std::string>& metrics) const override {
      if (metrics.size() > counters_) return kvroof::failure("configuring: no free counter");
      return 1;
    }

   private:
    std::size_t counters_;
  };
  const auto two = resolve_metrics(range_metrics(), Free(2));
  REQUIRE(two.ok());
  CHECK(two.value().names == std::vector<std::string>{"dram__bytes_read.sum", "dram__bytes_write.sum"});
  const auto one = resolve_metrics(range_metrics(), Free(1));
  REQUIRE_FALSE(one.ok());
  CHECK(one.error() == "configuring: no free counter");
}

TEST_CASE("CUPTI reads both sets in one pass by their first names on GA100, GA102, AD102, GH100 and GB100") {
  const kvroof::CuptiLibrary* const cupti = installed_cupti();
  if (cupti == nullptr) return;
  for (const char* chip : {"GA100", "GA102", "AD102", "GH100", "GB100"}) {
    for (const MetricSet* set : {&range_metrics(), &sampling_metrics()}) {
      const ResolvedMetrics metrics = resolved_by(*cupti, *set, chip);
      CAPTURE(chip, set->mode == CounterMode::kRange, metrics.names);
      CHECK(metrics.lacking == std::vector<std::string_view>{});
      CHECK(name_of(metrics, "dram_read_bytes") == "dram__bytes_read.sum");
      CHECK(name_of(metrics, "dram_write_bytes") == "dram__bytes_write.sum");
    }
  }
}

TEST_CASE("CUPTI reads both sets in one pass on GB202, by the names of its frame buffer partitions") {
  const kvroof::CuptiLibrary* const cupti = installed_cupti();
  if (cupti == nullptr) return;
  for (const MetricSet* set : {&range_metrics(), &sampling_metrics()}) {
    const ResolvedMetrics metrics = resolved_by(*cupti, *set, "GB202");
    CAPTURE(set->mode == CounterMode::kRange, metrics.names);
    CHECK(metrics.lacking == std::vector<std::string_view>{});
    CHECK(name_of(metrics, "dram_read_bytes") == "fbpa__dram_read_bytes.sum");
    CHECK(name_of(metrics, "dram_write_bytes") == "fbpa__dram_write_bytes.sum");
  }
}

TEST_CASE("CUPTI's load of the SMs, which takes eight passes on GH100, is refused: why it is in neither set") {
  constexpr kvroof::Metric kThroughput = {"sm_percent", {"sm__throughput.avg.pct_of_peak_sustained_elapsed", ""}};
  const kvroof::CuptiLibrary* const cupti = installed_cupti();
  if (cupti == nullptr) return;
  const auto catalog = kvroof::open_metric_catalog(*cupti, "GH100", CounterMode::kRange);
  REQUIRE(catalog.ok());
  const auto resolved = resolve_metrics({CounterMode::kRange, {&kThroughput, 1}}, *catalog.value());
  REQUIRE_FALSE(resolved.ok());
  CHECK_THAT(resolved.error(), ContainsSubstring("in 8 passes"));
}

TEST_CASE("a metric that a chip counts over ranges only is not one that it samples") {
  const kvroof::CuptiLibrary* const cupti = installed_cupti();
  if (cupti == nullptr) return;
  for (const CounterMode mode : {CounterMode::kRange, CounterMode::kSampling}) {
    const auto catalog = kvroof::open_metric_catalog(*cupti, "GH100", mode);
    REQUIRE(catalog.ok());
    CHECK(catalog.value()->has("lts__t_sectors_op_read.sum") == (mode == CounterMode::kRange));
    CHECK(catalog.value()->has("lts__t_bytes.sum"));
    CHECK_FALSE(catalog.value()->has("lts__t_byte.sum"));
  }
}

TEST_CASE("a chip that CUPTI does not know is a failure that names it") {
  const kvroof::CuptiLibrary* const cupti = installed_cupti();
  if (cupti == nullptr) return;
  const auto catalog = kvroof::open_metric_catalog(*cupti, "GX999", CounterMode::kRange);
  REQUIRE_FALSE(catalog.ok());
  CHECK_THAT(catalog.error(), ContainsSubstring("GX999"));
}
