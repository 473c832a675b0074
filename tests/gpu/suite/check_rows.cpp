// What happens to single rows, against plain loops: embedding, norms, moves; and the noise of the policies.
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cuda/measure/bench_device.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

constexpr float kEps = 1e-5F;

Deviation norm_deviation(std::uint32_t rows, std::uint32_t cols, NormMode mode, bool add, std::uint64_t seed) {
  Random random(seed);
  OpenStream open;
  Stream& stream = open.get();
  const auto x = normal_floats(std::size_t{rows} * cols, 0.5F, random), before = normal_floats(x.size(), 0, random);
  const StoredRows scale = stored_rows(Stored::kF16, 1, cols, 1, random),
                   bias = stored_rows(Stored::kF16, 1, cols, 1, random);
  const DeviceBuffer device_x = uploaded(stream, x), device_scale = uploaded(stream, scale.bytes);
  const DeviceBuffer device_bias = uploaded(stream, bias.bytes);
  const DeviceBuffer out = add ? uploaded(stream, before) : poisoned(stream, x.size() * 4);
  run_norm(
      stream, Stored::kF16,
      {device_x.at<float>(), rows, cols, mode, device_scale.at(), device_bias.at(), kEps, 0.5F, add, out.at<float>()});
  const auto got = downloaded<float>(stream, out, x.size());
  Deviation deviation;
  for (std::uint32_t r = 0; r < rows; ++r) {
    const std::vector<double> row(x.begin() + r * cols, x.begin() + (r + 1) * cols);
    double mean = 0, variance = 0;
    for (const double v : row) mean += v / cols;
    if (mode == NormMode::kRms) mean = 0;
    for (const double v : row) variance += (v - mean) * (v - mean) / cols;
    for (std::uint32_t i = 0; i < cols; ++i) {
      const double y = (row[i] - mean) / std::sqrt(variance + static_cast<double>(kEps)) *
                           (static_cast<double>(scale.values[i]) + 0.5) +
                       static_cast<double>(bias.values[i]);
      const std::size_t at = std::size_t{r} * cols + i;
      deviation.add(got[at], y + (add ? static_cast<double>(before[at]) : 0));
    }
  }
  return deviation;
}

Deviation embed_deviation(std::uint32_t tokens, std::uint32_t cols, std::uint64_t seed) {
  Random random(seed);
  OpenStream open;
  Stream& stream = open.get();
  const StoredRows table = stored_rows(Stored::kBF16, 50, cols, 1, random);
  const StoredRows learned = stored_rows(Stored::kBF16, 60, cols, 1, random);
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> rows;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    ids.push_back(static_cast<std::int64_t>(random() % 50));
    rows.push_back(static_cast<std::uint32_t>(random() % 60));
  }
  const DeviceBuffer device_table = uploaded(stream, table.bytes), device_learned = uploaded(stream, learned.bytes);
  const DeviceBuffer device_ids = uploaded(stream, ids), device_rows = uploaded(stream, rows);
  const DeviceBuffer out = poisoned(stream, std::size_t{tokens} * cols * 4);
  run_embed(stream, Stored::kBF16,
            {device_table.at(), device_learned.at(), device_ids.at<std::int64_t>(), device_rows.at<std::uint32_t>(),
             tokens, cols, 1.5F, out.at<float>()});
  const auto got = downloaded<float>(stream, out, std::size_t{tokens} * cols);
  Deviation deviation;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    for (std::uint32_t i = 0; i < cols; ++i) {
      const double entry = table.values[static_cast<std::size_t>(ids[t]) * cols + i];
      deviation.add(got[std::size_t{t} * cols + i],
                    1.5 * entry + static_cast<double>(learned.values[std::size_t{rows[t]} * cols + i]));
    }
  }
  return deviation;
}

// True when every moved row is where it belongs and nothing else was touched.
bool moves_are_exact(std::uint32_t row_bytes, std::uint32_t moves, bool scales, std::uint64_t seed) {
  Random random(seed);
  OpenStream open;
  Stream& stream = open.get();
  constexpr std::uint32_t kHeads = 3;  // whose slots begin a row apart
  const std::size_t slots = kHeads + std::size_t{2} * moves;
  std::vector<std::byte> rows(slots * row_bytes);
  for (std::byte& b : rows) b = static_cast<std::byte>(random());
  std::vector<std::uint32_t> positions(slots);
  for (std::uint32_t& p : positions) p = static_cast<std::uint32_t>(random());
  std::vector<std::uint32_t> sources(moves), targets(moves);
  for (std::uint32_t i = 0; i < moves; ++i) sources[i] = kHeads + 2 * i, targets[i] = kHeads + 2 * i + 1;
  std::shuffle(targets.begin(), targets.end(), random);
  const DeviceBuffer keys = uploaded(stream, rows), values = uploaded(stream, rows);
  const DeviceBuffer stored = uploaded(stream, positions);
  const std::vector<float> numbers = normal_floats(positions.size(), 0, random);
  const DeviceBuffer key_scales = uploaded(stream, numbers), value_scales = uploaded(stream, numbers);
  std::vector<CacheSlots> from, to;
  for (std::size_t h = 0; h < kHeads; ++h) {
    from.push_back({keys.at(h * row_bytes), values.at(h * row_bytes), key_scales.at<float>(4 * h),
                    value_scales.at<float>(4 * h), stored.at<std::uint32_t>(4 * h), nullptr});
  }
  to.assign(from.rbegin(), from.rend());
  std::vector<RowMove> order;
  for (std::uint32_t i = 0; i < moves; ++i) {
    const std::uint32_t head = i % kHeads;
    order.push_back({head, sources[i] - head, targets[i] - (kHeads - 1 - head)});
  }
  const DeviceBuffer device_from = uploaded(stream, from), device_to = uploaded(stream, to);
  const DeviceBuffer device_order = uploaded(stream, order);
  MoveArguments a;
  a.from = device_from.at<CacheSlots>();
  a.to = device_to.at<CacheSlots>();
  a.rows = device_order.at<RowMove>();
  a.moves = moves;
  a.key_row_bytes = a.value_row_bytes = row_bytes;
  a.scales = scales;
  run_moves(stream, a);
  std::vector<float> expected_scales = numbers;
  for (std::uint32_t i = 0; i < moves; ++i) {
    std::memcpy(rows.data() + std::size_t{targets[i]} * row_bytes, rows.data() + std::size_t{sources[i]} * row_bytes,
                row_bytes);
    positions[targets[i]] = positions[sources[i]];
    if (scales) expected_scales[targets[i]] = expected_scales[sources[i]];
  }
  return downloaded<std::byte>(stream, keys, rows.size()) == rows &&
         downloaded<std::byte>(stream, values, rows.size()) == rows &&
         downloaded<std::uint32_t>(stream, stored, positions.size()) == positions &&
         downloaded<float>(stream, key_scales, numbers.size()) == expected_scales &&
         downloaded<float>(stream, value_scales, numbers.size()) == expected_scales;
}

// How many draws have other bits than the host's; of keys of every kind.
std::size_t other_draws() {
  std::vector<NoiseKey> keys;
  for (std::uint32_t i = 0; i < 100000; ++i) {
    keys.push_back({i % 3, i % 5, i % 7, i % 11, i, i % 2 ? 0xffffffffU : 17});
  }
  for (const std::uint32_t edge : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    keys.push_back({0xffffffffffffffffULL, edge, edge, edge, edge, edge});
  }
  OpenStream open;
  Stream& stream = open.get();
  const DeviceBuffer device_keys = uploaded(stream, keys), to = poisoned(stream, keys.size() * sizeof(float));
  run_gumbel(stream, device_keys.at<NoiseKey>(), keys.size(), to.at<float>());
  const auto drawn = downloaded<float>(stream, to, keys.size());
  std::size_t others = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    others += std::bit_cast<std::uint32_t>(drawn[i]) != std::bit_cast<std::uint32_t>(gumbel_draw(keys[i])) ? 1U : 0U;
  }
  return others;
}

}  // namespace

void check_rows(const Options& options, Report& report) {
  std::uint64_t seed = options.seed + 4000;
  for (const std::uint32_t cols : {8U, 136U, options.small ? 264U : 4096U}) {
    for (const bool add : {false, true}) {
      for (const NormMode mode : {NormMode::kRms, NormMode::kLayer}) {
        const Json parameters = {{"rows", 5}, {"cols", cols}, {"norm", static_cast<int>(mode)}, {"add", add}};
        ++seed;
        report.guarded("norm", parameters, [&] {
          const Deviation d = norm_deviation(5, cols, mode, add, seed);
          report.check("norm", parameters, d.relative() <= 1e-5, results_of({{"outputs", d}}, 1e-5, seed));
        });
      }
    }
    const Json parameters = {{"tokens", 7}, {"cols", cols}};
    ++seed;
    report.guarded("embed", parameters, [&] {
      const Deviation d = embed_deviation(7, cols, seed);
      report.check("embed", parameters, d.relative() <= 1e-6, results_of({{"outputs", d}}, 1e-6, seed));
    });
  }
  for (const std::uint32_t row_bytes : {16U, 64U, 256U, 512U}) {
    const Json parameters = {{"row_bytes", row_bytes}, {"moves", 77}, {"scales", row_bytes < 256}};
    ++seed;
    report.guarded("moves", parameters, [&] {
      report.check("moves", parameters, moves_are_exact(row_bytes, 77, row_bytes < 256, seed), {{"seed", seed}});
    });
  }
  report.guarded("gumbel_noise", {}, [&] {
    const std::size_t others = other_draws();
    report.check("gumbel_noise", {}, others == 0, {{"other_bits", others}});
  });
}

}  // namespace kvroof::suite
