// What happens to the heads of q, k and v, against plain loops: rotation, norms and storing, after a product that the
// same launch makes or by themselves.
#include <algorithm>
#include <array>

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
  bool product = false;  // the launch makes the heads as well
  bool norm_last = false;
  QueryScale query_scale = {};

  [[nodiscard]] Json parameters() const {
    return {{"type", name_of(type)}, {"tokens", tokens},      {"heads", heads},       {"kv_heads", kv_heads},
            {"head_dim", dim},       {"rotary_pairs", pairs}, {"adjacent", adjacent}, {"norm", static_cast<int>(norm)},
            {"clip", clip},          {"copies", copies},      {"prompt", prompt},     {"product", product},
            {"norm_last", norm_last}, {"query_beta", query_scale.beta}};
  }
};

class PrepareCheck {
 public:
  PrepareCheck(const PrepareCase& c, std::uint64_t seed) : c_(c), random_(seed) {
    width_ = std::size_t{c.heads + 2 * c.kv_heads} * c.dim;
    x_ = normal_floats(c.tokens * width_, 0, random_);
    if (c.product) multiply();
    q_norm_ = stored_rows(Stored::kBF16, 1, c.heads * c.dim, 1, random_);
    k_norm_ = stored_rows(Stored::kBF16, 1, c.kv_heads * c.dim, 1, random_);
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      positions_.push_back(100 + 7 * t);
      for (std::uint32_t p = 0; p < c.pairs; ++p) {
        const double angle = (100 + 7 * t) * std::pow(10000.0, -static_cast<double>(p) / std::max(c.pairs, 1U));
        cos_sin_.push_back(static_cast<float>(std::cos(angle)));
        cos_sin_.push_back(static_cast<float>(std::sin(angle)));
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
    const DeviceBuffer x = c_.product ? poisoned(stream, x_.size() * 4) : uploaded(stream, x_);
    const DeviceBuffer cos_sin = uploaded(stream, cos_sin_), positions = uploaded(stream, positions_);
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
    a.norm_last = c_.norm_last;
    a.query_scale = c_.query_scale;
    a.adjacent = c_.adjacent;
    a.rotary_pairs = c_.pairs;
    a.cos_sin = cos_sin.at<float>();
    a.positions = positions.at<std::uint32_t>();
    a.slots = device_slots.at<CacheSlots>();
    a.slot_of = c_.prompt ? nullptr : slot_of.at<std::uint32_t>();
    a.copies = c_.copies;
    a.key_row_bytes = a.value_row_bytes = row_bytes_;
    a.q_out = q_out.at<float>();
    if (c_.product) {
      append(stream, x, a);
    } else {
      run_prepare(stream, Stored::kBF16, c_.type, a);
    }
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
  static constexpr std::uint32_t kCols = 72;

  // The heads as products of weights with vectors, both of 16 bits so that no kernel rounds them.
  void multiply() {
    weights_ = stored_rows(Stored::kBF16, width_, kCols, 0.3F, random_);
    inputs_ = stored_rows(Stored::kBF16, c_.tokens, kCols, 1, random_);
    for (std::size_t i = 0; i < x_.size(); ++i) {
      double sum = 0;
      for (std::uint32_t c = 0; c < kCols; ++c) {
        sum += static_cast<double>(weights_.values[i % width_ * kCols + c]) *
               static_cast<double>(inputs_.values[i / width_ * kCols + c]);
      }
      x_[i] = static_cast<float>(sum);
    }
  }
  void append(Stream& stream, const DeviceBuffer& x, const PrepareArguments& heads) const {
    const DeviceBuffer weights = uploaded(stream, weights_.bytes), inputs = uploaded(stream, inputs_.values);
    const DeviceBuffer finished = uploaded(stream, std::vector<unsigned>(c_.heads + 2 * c_.kv_heads));
    AppendArguments a;
    a.linear.x = inputs.at<float>();
    a.linear.tokens = c_.tokens;
    a.linear.w = {weights.at(), static_cast<std::uint32_t>(width_), kCols};
    a.linear.out = x.at<float>();
    a.heads = heads;
    a.cache = c_.type;
    a.finished = finished.at<unsigned>();
    run_linear_append(stream, Stored::kBF16, a);
    check_device(synchronize(stream), "multiplying and appending");
  }

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
    if (c_.norm_last) rotate(token, row);
    double squares = 0;
    for (const double v : row) squares += v * v;
    std::uint32_t count = c_.dim;
    if (c_.norm == HeadNorm::kWhole) {
      count = (part == 0 ? c_.heads : c_.kv_heads) * c_.dim;
      squares = 0;
      for (std::uint32_t i = 0; i < count; ++i) squares += std::pow(static_cast<double>(clamped(x[i])), 2);
    }
    if (c_.norm != HeadNorm::kNone) {
      const double factor = 1 / std::sqrt(squares / count + static_cast<double>(kEps));
      const StoredRows& scale = part == 0 ? q_norm_ : k_norm_;
      const std::size_t first = c_.norm == HeadNorm::kHead ? 0 : std::size_t{head} * c_.dim;
      for (std::uint32_t i = 0; i < c_.dim; ++i) row[i] *= factor * static_cast<double>(scale.values[first + i]);
    }
    if (!c_.norm_last) rotate(token, row);
    if (part == 0 && c_.query_scale) {
      const std::uint32_t lengths = positions_[token] / c_.query_scale.original;
      for (double& v : row) v *= 1 + static_cast<double>(c_.query_scale.beta) * std::log(1.0 + lengths);
    }
    return row;
  }

  void rotate(std::uint32_t token, std::vector<double>& row) const {
    for (std::uint32_t p = 0; p < c_.pairs; ++p) {
      const float* cos_sin = cos_sin_.data() + (std::size_t{token} * c_.pairs + p) * 2;
      double& one = row[c_.adjacent ? 2 * p : p];
      double& other = row[c_.adjacent ? 2 * p + 1 : p + c_.pairs];
      const double first = one * static_cast<double>(cos_sin[0]) - other * static_cast<double>(cos_sin[1]);
      other = other * static_cast<double>(cos_sin[0]) + one * static_cast<double>(cos_sin[1]);
      one = first;
    }
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
  std::vector<float> x_, cos_sin_;
  StoredRows q_norm_, k_norm_, weights_, inputs_;
  std::vector<std::uint32_t> positions_, slot_of_;
};

std::vector<PrepareCase> prepare_cases(bool small) {
  std::vector<PrepareCase> cases;
  for (const Stored type : {Stored::kBF16, Stored::kF16, Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t dim : {64U, 80U, 96U, 128U, 256U}) {
      if (small && dim != 96 && type != Stored::kBF16) continue;
      cases.push_back({.type = type, .dim = dim, .pairs = dim / 4, .adjacent = dim == 256});
      cases.push_back({.type = type, .dim = dim, .pairs = dim / 2, .norm = HeadNorm::kHead, .prompt = true});
    }
  }
  cases.push_back({.pairs = 0, .clip = 0.7F});
  cases.push_back({.norm = HeadNorm::kWhole, .clip = 1.5F});
  cases.push_back({.norm = HeadNorm::kEachHead, .copies = 2});
  cases.push_back({.norm = HeadNorm::kHead, .norm_last = true});
  cases.push_back({.query_scale = {0.3F, 24}});
  cases.push_back({.norm = HeadNorm::kHead, .product = true, .norm_last = true, .query_scale = {0.3F, 24}});
  cases.push_back({.tokens = 7, .heads = 16, .kv_heads = 16, .prompt = true});
  for (const Stored type : {Stored::kBF16, Stored::kF16, Stored::kInt8, Stored::kInt4}) {
    for (const std::uint32_t tokens : {1U, 3U, 16U, 64U}) {
      if (small && tokens > 3 && type != Stored::kBF16) continue;
      cases.push_back({.type = type, .tokens = tokens, .product = true});
      if (type == Stored::kInt4) continue;
      cases.push_back({.type = type, .tokens = tokens, .dim = 80, .pairs = 40, .norm = HeadNorm::kHead, .copies = 2,
                       .product = true});
    }
    if (!small) cases.push_back({.type = type, .heads = 8, .kv_heads = 1, .dim = 256, .pairs = 32, .product = true});
  }
  // More rows than the blocks that a device holds at once make in one round.
  cases.push_back({.tokens = 1, .heads = small ? 6U : 64U, .kv_heads = small ? 2U : 16U, .product = true});
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
    const char* const what = c.product ? "linear_append" : "prepare_heads";
    ++seed;
    report.guarded(what, c.parameters(), [&] {
      const auto [q, rows] = PrepareCheck(c, seed).run();
      const bool integers = c.type == Stored::kInt8 || c.type == Stored::kInt4;
      const bool passed =
          q.relative() <= (integers ? 1e-4 : rounding_of(c.type)) && rows.relative() <= rounding_of(c.type);
      Json results = results_of({{"q", q}, {"rows", rows}}, rounding_of(c.type), seed);
      if (!passed) results["worst"] = {{"q", q.worst()}, {"rows", rows.worst()}};
      report.check(what, c.parameters(), passed, results);
    });
  }
}

}  // namespace kvroof::suite
