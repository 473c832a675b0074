// The metrics of published rows from the cost model: a number in the row's unit, with the interval of its priors.
#pragma once

#include "analysis/published_setting.hpp"

namespace kvroof {

// The prediction, or why there is none. Reads nothing of a row but its conditions: never its value.
Result<Estimate> predict_metric(const PublishedRow& row, const PublishedSetting& setting);

// Seconds that the memory's peak needs for the bytes of a kernel by itself; 0 for other rows.
double least_kernel_seconds(const PublishedRow& row, const PublishedSetting& setting);

}  // namespace kvroof
