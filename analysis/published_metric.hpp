// The metrics of published rows from the cost model: a number in the row's unit, with the interval of its priors.
#pragma once

#include "analysis/published_setting.hpp"

namespace kvroof {

// The prediction, or why there is none. Reads nothing of a row but its conditions: never its value.
Result<Estimate> predict_metric(const PublishedRow& row, const PublishedSetting& setting);

// Whether the row is of one kernel and not of a model or of a whole layer.
bool of_kernel(const PublishedRow& row, const PublishedSetting& setting);

// A kernel by itself: its time, the bytes that it cannot do without, and its arithmetic (0: not known).
enum class PublishedKind : std::uint8_t { kProduct, kElementwise, kAttention, kStates };

struct PublishedKernel {
  Estimate seconds;
  Bytes bytes;
  double flops = 0;
  PublishedKind kind = PublishedKind::kProduct;
};
Result<PublishedKernel> published_kernel(const PublishedRow& row, const PublishedSetting& setting);

// How many of the unit make a second; nothing for units that are none of time.
std::optional<double> per_second(const std::string& unit);

}  // namespace kvroof
