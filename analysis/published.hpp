// Published measurements as rows: what was run, on what, and the number that was printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace kvroof {

// One row of validation/published.csv; its README says what each column means. Texts are as published.
struct PublishedRow {
  std::string id, level, model, weight_precision, kv_precision, gpu, engine, batch_mode, batch, input, output, metric,
      unit, source;
  std::string parallelism, conditions, engine_version;  // empty where the file has no such column
  std::uint32_t gpus = 1;
  std::optional<double> value;  // nothing: to be predicted only
};

// A CSV file with a header line that names at least those columns, in any order; quoted fields as in RFC 4180. Refuses
// columns that are there twice, rows of another number of fields, values that are neither empty nor numbers from 0 on
// and rows without a unit, naming the line.
Result<std::vector<PublishedRow>> published_rows(std::string_view csv);

}  // namespace kvroof
