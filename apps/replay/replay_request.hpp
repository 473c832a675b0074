// What `kvroof replay` was asked for, with every list and name checked before any work begins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/replay/replay_kept.hpp"
#include "sim/core/dtype.hpp"
#include "sim/device/device.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/policy/spec.hpp"
#include "sim/replay/replay.hpp"

namespace kvroof {

// One entry of --batch; nothing means the largest that fits.
using BatchChoice = std::optional<std::uint32_t>;

struct ReplayRequest {
  std::filesystem::path trace;
  std::vector<PolicySpec> points;               // policies × budgets
  std::vector<Device> devices;                  // may be empty
  std::vector<BatchChoice> batches;             // at least one
  std::uint32_t beams = 1;                      // sequences of a request, decoded side by side
  std::vector<ModelShape> models;               // of --as; empty: the trace's own
  std::vector<std::string> stored;              // of each of them the type of its weights that is not run; or empty
  std::optional<std::uint32_t> prompt, output;  // tokens, for --as
  std::optional<DType> weights;
  std::optional<KvType> kv;                     // of the points that carry none
  bool accounting = false;                      // a second table, of bytes and arithmetic
  MeasureOptions measure;                       // what of the quality is measured
  std::string svg;                              // file of the picture; empty: none
  std::optional<std::filesystem::path> kept;
  KeptSteps kept_steps;
  std::optional<std::filesystem::path> closed_loop;  // a recording under a policy, to compare with
  std::optional<std::filesystem::path> row_cache;    // folder of attention rows of one byte a weight
  bool check_row_cache = false;                      // compare with exact rows though they are all there
  std::optional<std::uint64_t> seed;                 // of the trace unless given
};

// Throws Error (usage) with "did you mean".
ReplayRequest replay_request(const Arguments& arguments);

}  // namespace kvroof
