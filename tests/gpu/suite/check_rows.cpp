// What happens to single rows, against plain loops: rotation, norms and storing of heads, embedding, norms, moves.
#include <algorithm>
#include <cstring>

#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

constexpr float kEps = 1e-5F;

struct PrepareCase {
  Stored type = Stored::kBF16;  // of the cache; weights are bf16
  std::uint32_t tokens = 3, heads = 4, kv_heads = 2, dim = 128, pairs = 64;
  bool adjacent = false;
  HeadNorm norm = HeadNorm::kNone;
  float clip = 0;
  std::uint32_t copies = 1;
  bool prompt = false;

  [[nodiscard]] Json parameters() const {
    return {{"type", name_of(type)}, {"tokens", tokens},      {"heads", heads},       {"kv_heads", kv_heads},
            {"head_dim", dim},       {"rotary_pairs", pairs}, {"adjacent", adjacent}, {"norm", static_cast<int>(norm)},
            {"clip", clip},          {"copies", copies},      {"prompt", prompt}};
  }
};

class PrepareCheck {
 public:
  PrepareCheck(const PrepareCase& c, std::uint64_t seed) : c_(c), random_(seed) {
    width_ = std::size_t{c.heads + 2 * c.kv_heads} * c.dim;
    x_ = normal_floats(c.tokens * width_, 0, random_);
    q_norm_ = stored_rows(Stored::kBF16, 1, c.heads * c.dim, 1, random_);
    k_norm_ = stored_rows(Stored::kBF16, 1, c.kv_heads * c.dim, 1, random_);
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      positions_.push_back(100 + 7 * t);
      for (std::uint32_t p = 0; p < c.pairs; ++p) {
        const double angle = (100 + 7 * t) * std::pow(10000.0, -static_cast<double>(p) / std::max(c.pairs, 1U));
        turns_.push_back(static_cast<float>(std::cos(angle)));
        turns_.push_back(static_cast<float>(std::sin(angle)));
      }
      for (std::uint32_t h = 0; h < storage_heads(); ++h) slot_of_.push_back((5 * t + 3 * h) % kSlots);
    }
  }

  // Deviations of q, and of the stored keys and values. Throws Error when a position or another slot is wrong.
  std::array<Deviation, 2> run() {
    Stream& stream = stream_.get();
    const std::uint32_t bits = c_.type == Stored::kInt8 ? 8 : c_.type == Stored::kInt4 ? 4 : 16;
    row_bytes_ = (c_.dim * bits / 8 + 15) / 16 * 16;
    const std::size_t rows = std::size_t{caches()} * storage_heads() * kSlots;
    const DeviceBuffer x = uploaded(stream, x_), turns = uploaded(stream, turns_),
                       positions = uploaded(stream, positions_);
    const DeviceBuffer q_norm = uploaded(stream, q_norm_.bytes), k_norm = uploaded(stream, k_norm_.bytes);
    const DeviceBuffer slot_of = uploaded(stream, slot_of_);
    const DeviceBuffer keys = poisoned(stream, rows * row_bytes_), values = poisoned(stream, rows * row_bytes_);
    const DeviceBuffer key_scales = poisoned(stream, rows * 4), value_scales = poisoned(stream, rows * 4);
    const DeviceBuffer stored_positions = poisoned(stream, rows * 4);
    std::vector<CacheSlots> slots;
    for (std::size_t h = 0; h < std::size_t{caches()} * storage_heads(); ++h) {
      slots.push_back({keys.at(h * kSlots * row_bytes_), values.at(h * kSlots * row_bytes_),
                       key_scales.at<float>(h * kSlots * 4), value_scales.at<float>(h * kSlots * 4),
                       stored_positions.at<std::uint32_t>(h * kSlots * 4), nullptr});
    }
    const DeviceBuffer device_slots = uploaded(stream, slots);
    const std::size_t q_floats = std::size_t{c_.tokens} * c_.heads * c_.dim;
    const DeviceBuffer q_out = poisoned(stream, q_floats * 4);
    PrepareArguments a;
    a.tokens = c_.tokens;
    const auto part = [&](std::uint32_t heads_before) {
      return HeadFloats{x.at<float>() + heads_before * c_.dim, static_cast<std::uint32_t>(width_), c_.dim};
    };
    const bool norms = c_.norm != HeadNorm::kNone;
    a.q = {part(0), c_.heads, c_.dim, norms ? q_norm.at() : nullptr, nullptr, c_.pairs > 0};
    a.k = {part(c_.heads), c_.kv_heads, c_.dim, norms ? k_norm.at() : nullptr, nullptr, c_.pairs > 0};
    a.v = {part(c_.heads + c_.kv_heads), c_.kv_heads, c_.dim, nullptr, nullptr, false};
    a.clip = c_.clip;
    a.norm = c_.norm;
    a.norm_mode = NormMode::kRms;
    a.norm_eps = kEps;
    a.adjacent = c_.adjacent;
    a.rotary_pairs = c_.pairs;
    a.turns = turns.at<float>();
    a.positions = positions.at<std::uint32_t>();
    a.slots = device_slots.at<CacheSlots>();
    a.slot_of = c_.prompt ? nullptr : slot_of.at<std::uint32_t>();
    a.copies = c_.copies;
    a.key_row_bytes = a.value_row_bytes = row_bytes_;
    a.q_out = q_out.at<float>();
    run_prepare(stream, Stored::kBF16, c_.type, a);
    std::array<Deviation, 2> deviations;
    const auto q = downloaded<float>(stream, q_out, q_floats);
    for (std::uint32_t t = 0; t < c_.tokens; ++t) {
      for (std::uint32_t h = 0; h < c_.heads; ++h) {
        const std::vector<double> expected = twin(t, h, 0);
        for (std::uint32_t i = 0; i < c_.dim; ++i) {
          deviations[0].add(q[(std::size_t{t} * c_.heads + h) * c_.dim + i], expected[i]);
        }
      }
    }
    check_positions(downloaded<std::uint32_t>(stream, stored_positions, rows));
    compare_rows(downloaded<std::byte>(stream, keys, rows * row_bytes_), downloaded<float>(stream, key_scales, rows), 1,
                 deviations[1]);
    compare_rows(downloaded<std::byte>(stream, values, rows * row_bytes_),
                 downloaded<float>(stream, value_scales, rows), 2, deviations[1]);
    return deviations;
  }

 private:
  static constexpr std::uint32_t kSlots = 11;

  [[nodiscard]] std::uint32_t storage_heads() const { return c_.kv_heads * c_.copies; }
  [[nodiscard]] std::uint32_t caches() const { return c_.prompt ? 1 : c_.tokens; }
  [[nodiscard]] std::size_t row_of(std::uint32_t token, std::uint32_t head) const {
    if (c_.prompt) return std::size_t{head} * kSlots + token;
    const std::size_t at = std::size_t{token} * storage_heads() + head;
    return at * kSlots + slot_of_[at];
  }

  // Head `head` of q (0), k (1) or v (2) as it must come out.
  [[nodiscard]] std::vector<double> twin(std::uint32_t token, std::uint32_t head, int part) const {
    const std::size_t before = part == 0 ? 0 : std::size_t{c_.heads + (part == 2 ? c_.kv_heads : 0)} * c_.dim;
    const float* x = x_.data() + token * width_ + before;
    const auto clamped = [&](float v) { return c_.clip > 0 ? std::clamp(v, -c_.clip, c_.clip) : v; };
    std::vector<double> row(c_.dim);
    for (std::uint32_t i = 0; i < c_.dim; ++i) row[i] = static_cast<double>(clamped(x[head * c_.dim + i]));
    if (part == 2) return row;
    if (c_.norm != HeadNorm::kNone) {
      const bool whole = c_.norm == HeadNorm::kWhole;
      const std::uint32_t count = whole ? (part == 0 ? c_.heads : c_.kv_heads) * c_.dim : c_.dim;
      double squares = 0;
      for (std::uint32_t i = 0; i < count; ++i)
        squares += std::pow(static_cast<double>(clamped(x[whole ? i : head * c_.dim + i])), 2);
      const double factor = 1 / std::sqrt(squares / count + static_cast<double>(kEps));
      const StoredRows& scale = part == 0 ? q_norm_ : k_norm_;
      const std::size_t first = c_.norm == HeadNorm::kHead ? 0 : std::size_t{head} * c_.dim;
      for (std::uint32_t i = 0; i < c_.dim; ++i) row[i] *= factor * static_cast<double>(scale.values[first + i]);
    }
    for (std::uint32_t p = 0; p < c_.pairs; ++p) {
      const float* turn = turns_.data() + (std::size_t{token} * c_.pairs + p) * 2;
      double& one = row[c_.adjacent ? 2 * p : p];
      double& other = row[c_.adjacent ? 2 * p + 1 : p + c_.pairs];
      const double first = one * static_cast<double>(turn[0]) - other * static_cast<double>(turn[1]);
      other = other * static_cast<double>(turn[0]) + one * static_cast<double>(turn[1]);
      one = first;
    }
    return row;
  }

  void check_positions(const std::vector<std::uint32_t>& stored) const {
    std::vector<std::uint32_t> expected(stored.size(), 0xffffffffU);
    for (std::uint32_t t = 0; t < c_.tokens; ++t) {
      for (std::uint32_t h = 0; h < storage_heads(); ++h) expected[row_of(t, h)] = positions_[t];
    }
    if (stored != expected) throw std::runtime_error("positions were stored in other slots than asked for");
  }

  void compare_rows(const std::vector<std::byte>& bytes, const std::vector<float>& scales, int part,
                    Deviation& deviation) const {
    std::vector<bool> written(scales.size());
    for (std::uint32_t t = 0; t < c_.tokens; ++t) {
      for (std::uint32_t h = 0; h < storage_heads(); ++h) {
        const std::size_t row = row_of(t, h);
        written[row] = true;
        const std::vector<double> expected = twin(t, h / c_.copies, part);
        for (std::uint32_t i = 0; i < c_.dim; ++i) {
          deviation.add(stored_value(c_.type, bytes.data() + row * row_bytes_, static_cast<double>(scales[row]), i),
                        expected[i]);
        }
      }
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (!written[i / row_bytes_] && bytes[i] != std::byte{0xff}) throw std::runtime_error("another slot was written");
    }
  }

  const PrepareCase& c_;
  Random random_;
  OpenStream stream_;
  std::size_t width_ = 0;
  std::uint32_t row_bytes_ = 0;
  std::vector<float> x_, turns_;
  StoredRows q_norm_, k_norm_;
  std::vector<std::uint32_t> positions_, slot_of_;
};

std::vector<PrepareCase> prepare_cases(bool small) {
  std::vector<PrepareCase> cases;
  for (const Stored type : {Stored::kBF16, Stored::kF16, Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t dim : {64U, 80U, 96U, 128U, 256U}) {
      if (small && dim != 96 && type != Stored::kBF16) continue;
      if (type == Stored::kInt4 && dim % 32 != 0) continue;
      cases.push_back({.type = type, .dim = dim, .pairs = dim / 4, .adjacent = dim == 256});
      cases.push_back({.type = type, .dim = dim, .pairs = dim / 2, .norm = HeadNorm::kHead, .prompt = true});
    }
  }
  cases.push_back({.pairs = 0, .clip = 0.7F});
  cases.push_back({.norm = HeadNorm::kWhole, .clip = 1.5F});
  cases.push_back({.norm = HeadNorm::kEachHead, .copies = 2});
  cases.push_back({.tokens = 7, .heads = 16, .kv_heads = 16, .prompt = true});
  return cases;
}

// Half a step of the type, relative to the largest value: rows have their own scales, so theirs is the larger bound.
double rounding_of(Stored type) {
  switch (type) {
    case Stored::kBF16:
      return 4e-3;
    case Stored::kF16:
      return 6e-4;
    case Stored::kInt8:
      return 4.5e-3;
    default:
      return 7.5e-2;
  }
}

}  // namespace

void check_prepare(const Options& options, Report& report) {
  std::uint64_t seed = options.seed + 3000;
  for (const PrepareCase& c : prepare_cases(options.small)) {
    report.guarded("prepare_heads", c.parameters(), [&] {
      const auto [q, rows] = PrepareCheck(c, ++seed).run();
      const bool integers = c.type == Stored::kInt8 || c.type == Stored::kInt4;
      const bool passed =
          q.relative() <= (integers ? 1e-4 : rounding_of(c.type)) && rows.relative() <= rounding_of(c.type);
      report.check("prepare_heads", c.parameters(), passed,
                   {{"q", q.relative()}, {"rows", rows.relative()}, {"tolerance", rounding_of(c.type)}});
    });
  }
}

namespace {

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
  std::vector<std::byte> rows(std::size_t{2} * moves * row_bytes);
  for (std::byte& b : rows) b = static_cast<std::byte>(random());
  std::vector<std::uint32_t> positions(std::size_t{2} * moves), from_slot, to_slot;
  for (std::uint32_t& p : positions) p = static_cast<std::uint32_t>(random());
  std::vector<std::uint32_t> sources(moves), targets(moves);
  for (std::uint32_t i = 0; i < moves; ++i) sources[i] = 2 * i, targets[i] = 2 * i + 1;
  std::shuffle(targets.begin(), targets.end(), random);
  const DeviceBuffer keys = uploaded(stream, rows), values = uploaded(stream, rows);
  const DeviceBuffer stored = uploaded(stream, positions);
  const std::vector<float> numbers = normal_floats(positions.size(), 0, random);
  const DeviceBuffer key_scales = uploaded(stream, numbers), value_scales = uploaded(stream, numbers);
  const std::vector<CacheSlots> slots(moves, {keys.at(), values.at(), key_scales.at<float>(), value_scales.at<float>(),
                                              stored.at<std::uint32_t>(), nullptr});
  const DeviceBuffer device_slots = uploaded(stream, slots);
  const DeviceBuffer device_from = uploaded(stream, sources), device_to = uploaded(stream, targets);
  MoveArguments a;
  a.from = a.to = device_slots.at<CacheSlots>();
  a.from_slot = device_from.at<std::uint32_t>();
  a.to_slot = device_to.at<std::uint32_t>();
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

}  // namespace

void check_rows(const Options& options, Report& report) {
  std::uint64_t seed = options.seed + 4000;
  for (const std::uint32_t cols : {8U, 136U, options.small ? 264U : 4096U}) {
    for (const bool add : {false, true}) {
      for (const NormMode mode : {NormMode::kRms, NormMode::kLayer}) {
        const Json parameters = {{"rows", 5}, {"cols", cols}, {"norm", static_cast<int>(mode)}, {"add", add}};
        report.guarded("norm", parameters, [&] {
          const Deviation d = norm_deviation(5, cols, mode, add, ++seed);
          report.check("norm", parameters, d.relative() <= 1e-5, {{"outputs", d.relative()}, {"tolerance", 1e-5}});
        });
      }
    }
    const Json parameters = {{"tokens", 7}, {"cols", cols}};
    report.guarded("embed", parameters, [&] {
      const Deviation d = embed_deviation(7, cols, ++seed);
      report.check("embed", parameters, d.relative() <= 1e-6, {{"outputs", d.relative()}, {"tolerance", 1e-6}});
    });
  }
  for (const std::uint32_t row_bytes : {16U, 64U, 256U, 512U}) {
    const Json parameters = {{"row_bytes", row_bytes}, {"moves", 77}, {"scales", row_bytes < 256}};
    report.guarded("moves", parameters, [&] {
      report.check("moves", parameters, moves_are_exact(row_bytes, 77, row_bytes < 256, ++seed), Json::object());
    });
  }
}

}  // namespace kvroof::suite
