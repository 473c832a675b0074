// Products of weight matrices with vectors, with all that is fused to them, against double precision.
#include <algorithm>

#include "kernels/cuda/split_k.hpp"
#include "kernels/cuda/library_linear.hpp"
#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

struct Case {
  Stored type = Stored::kBF16;
  std::uint32_t tokens = 1, cols = 64, rows = 32;
  NormMode norm = NormMode::kNone;
  ActivationMode activation = ActivationMode::kNone;
  bool gated = false, bias = false, add = false;
  float softcap = 0;

  [[nodiscard]] Json parameters() const {
    return {{"type", name_of(type)},
            {"tokens", tokens},
            {"cols", cols},
            {"rows", rows},
            {"norm", static_cast<int>(norm)},
            {"activation", static_cast<int>(activation)},
            {"gated", gated},
            {"bias", bias},
            {"add", add},
            {"softcap", softcap}};
  }
};

double activated_twin(ActivationMode f, double x) {
  switch (f) {
    case ActivationMode::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationMode::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationMode::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationMode::kRelu:
      return std::max(x, 0.0);
    case ActivationMode::kRelu2:
      return x > 0 ? x * x : 0;
    default:
      return x;
  }
}

// Inputs of one product on the host.
struct Inputs {
  std::vector<float> x, before;
  StoredRows w, up, scale, shift, bias, up_bias;
};

Inputs make_inputs(const Case& c, std::uint64_t seed) {
  Random random(seed);
  Inputs in;
  in.x = normal_floats(std::size_t{c.tokens} * c.cols, 0.3F, random);
  in.before = normal_floats(std::size_t{c.tokens} * c.rows, 0, random);
  in.w = stored_rows(c.type, c.rows, c.cols, 0.1F, random);
  if (c.gated) in.up = stored_rows(c.type, c.rows, c.cols, 0.1F, random);
  in.scale = stored_rows(c.type, 1, c.cols, 1, random);
  in.shift = stored_rows(c.type, 1, c.cols, 1, random);
  in.bias = stored_rows(c.type, 1, c.rows, 1, random);
  in.up_bias = stored_rows(c.type, 1, c.rows, 1, random);
  return in;
}

constexpr float kEps = 1e-5F;

float offset_of(const Case& c) { return c.norm == NormMode::kRms ? 1.0F : 0.0F; }

std::vector<double> normed(const Case& c, const Inputs& in, std::uint32_t token) {
  const float* x = in.x.data() + std::size_t{token} * c.cols;
  std::vector<double> out(x, x + c.cols);
  if (c.norm == NormMode::kNone) return out;
  double mean = 0, variance = 0;
  for (const double v : out) mean += v / c.cols;
  if (c.norm == NormMode::kRms) mean = 0;
  for (const double v : out) variance += (v - mean) * (v - mean) / c.cols;
  const double factor = 1 / std::sqrt(variance + static_cast<double>(kEps));
  for (std::uint32_t i = 0; i < c.cols; ++i) {
    out[i] = (out[i] - mean) * factor * static_cast<double>(in.scale.values[i] + offset_of(c));
    if (c.norm == NormMode::kLayer) out[i] += static_cast<double>(in.shift.values[i]);
  }
  return out;
}

double dot(const std::vector<double>& x, const StoredRows& w, std::uint32_t row) {
  double sum = 0;
  const float* values = w.values.data() + row * x.size();
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * static_cast<double>(values[i]);
  return sum;
}

Deviation compare(const Case& c, const Inputs& in, std::span<const float> got) {
  Deviation deviation;
  for (std::uint32_t t = 0; t < c.tokens; ++t) {
    const std::vector<double> x = normed(c, in, t);
    for (std::uint32_t r = 0; r < c.rows; ++r) {
      double y = activated_twin(c.activation, dot(x, in.w, r) + (c.bias ? static_cast<double>(in.bias.values[r]) : 0));
      if (c.gated) y *= dot(x, in.up, r) + (c.bias ? static_cast<double>(in.up_bias.values[r]) : 0);
      const auto cap = static_cast<double>(c.softcap);
      if (cap > 0) y = cap * std::tanh(y / cap);
      if (c.add) y += static_cast<double>(in.before[std::size_t{t} * c.rows + r]);
      deviation.add(got[std::size_t{t} * c.rows + r], y);
    }
  }
  return deviation;
}

// By the library, unless it is null.
Deviation deviation_of(const Case& c, std::uint64_t seed, unsigned multiprocessors, CublasLt* library) {
  const Inputs in = make_inputs(c, seed);
  OpenStream open;
  Stream& stream = open.get();
  const DeviceBuffer x = uploaded(stream, in.x), w = uploaded(stream, in.w.bytes), up = uploaded(stream, in.up.bytes);
  const DeviceBuffer scale = uploaded(stream, in.scale.bytes), shift = uploaded(stream, in.shift.bytes);
  const DeviceBuffer bias = uploaded(stream, in.bias.bytes), up_bias = uploaded(stream, in.up_bias.bytes);
  const DeviceBuffer out = c.add ? uploaded(stream, in.before) : poisoned(stream, in.before.size() * sizeof(float));
  LinearArguments a;
  a.x = x.at<float>();
  a.tokens = c.tokens;
  a.norm = c.norm;
  a.norm_scale = c.norm != NormMode::kNone ? scale.at() : nullptr;
  a.norm_bias = c.norm == NormMode::kLayer ? shift.at() : nullptr;
  a.norm_eps = kEps;
  a.norm_offset = offset_of(c);
  a.w = {w.at(), c.rows, c.cols};
  if (c.gated) a.up = {up.at(), c.rows, c.cols};
  if (c.bias) a.bias = bias.at();
  if (c.bias && c.gated) a.up_bias = up_bias.at();
  a.activation = c.activation;
  a.add = c.add;
  a.softcap = c.softcap;
  a.out = out.at<float>();
  LibraryLinear linear(stream, library, LinearBy::kCublasLt);
  if (library == nullptr) {
    SplitKMemory split_k(stream, multiprocessors);
    split_k.reserve();
    split_k.cut(c.type, a);
    run_linear(stream, c.type, a);
  } else if (!linear.run(c.type, a)) {
    throw Error(linear.problem());
  }
  return compare(c, in, downloaded<float>(stream, out, in.before.size()));
}

std::vector<Case> linear_cases(bool small) {
  std::vector<Case> cases;
  for (const Stored type : {Stored::kBF16, Stored::kF16}) {
    for (const std::uint32_t tokens : {1U, 2U, 3U, 4U, 5U, 8U, 9U, 16U, 17U, 64U, 70U}) {
      if (small && tokens % 4 != 1 && tokens != 4) continue;
      const std::uint32_t rows = small ? 37 : 517;
      cases.push_back({.type = type, .tokens = tokens, .cols = 328, .rows = rows});
      cases.push_back({.type = type,
                       .tokens = tokens,
                       .cols = small ? 136U : 4104U,
                       .rows = rows,
                       .norm = NormMode::kRms,
                       .bias = true});
      cases.push_back(
          {.type = type, .tokens = tokens, .cols = 264, .rows = rows, .norm = NormMode::kLayer, .add = true});
      cases.push_back({.type = type,
                       .tokens = tokens,
                       .cols = 96,
                       .rows = rows,
                       .norm = NormMode::kRms,
                       .activation = ActivationMode::kSilu,
                       .gated = true,
                       .bias = true});
    }
    for (const ActivationMode f :
         {ActivationMode::kGelu, ActivationMode::kGeluTanh, ActivationMode::kRelu, ActivationMode::kRelu2}) {
      cases.push_back({.type = type, .cols = 64, .rows = 24, .activation = f, .softcap = 2});
    }
  }
  if (!small) cases.push_back({.cols = 16384, .rows = 4096, .add = true});
  if (!small) cases.push_back({.tokens = 33, .cols = 4096, .rows = 1024, .norm = NormMode::kLayer});
  // More rows than the blocks that a device holds at once make in one round.
  cases.push_back({.cols = small ? 264U : 776U,
                   .rows = small ? 131U : 14341U,
                   .norm = NormMode::kLayer,
                   .activation = ActivationMode::kSilu,
                   .gated = true,
                   .bias = true});
  cases.push_back({.tokens = 4, .cols = small ? 2056U : 2600U, .rows = small ? 210U : 9001U, .norm = NormMode::kRms});
  // Columns that blocks share, on any device.
  cases.push_back({.tokens = 33, .cols = small ? 520U : 4096U, .rows = small ? 130U : 1024U, .norm = NormMode::kRms});
  cases.push_back({.type = Stored::kF16, .tokens = 17, .cols = small ? 520U : 4096U, .rows = 130, .add = true});
  return cases;
}

}  // namespace

void check_linear(const Options& options, Report& report) {
  std::uint64_t seed = options.seed + 2000;
  const auto loaded = CublasLt::load();
  if (!loaded) report.add("cublaslt", Json::object(), {{"skipped", loaded.error()}});
  const auto check = [&](const Case& c, CublasLt* library) {
    const std::string what = library == nullptr ? "linear" : "linear_cublaslt";
    ++seed;
    report.guarded(what, c.parameters(), [&] {
      // Up to four vectors are taken as they are; more, and all by the library, are rounded to the weights' type for
      // the tensor cores.
      const double rounded = c.type == Stored::kBF16 ? 1e-2 : 2e-3;
      const double tolerance = c.tokens <= 4 && library == nullptr ? 1e-4 : rounded;
      const Deviation deviation = deviation_of(c, seed, options.card.multiprocessors, library);
      report.check(what, c.parameters(), deviation.relative() <= tolerance,
                   results_of({{"outputs", deviation}}, tolerance, seed));
    });
  };
  for (const Case& c : linear_cases(options.small)) {
    check(c, nullptr);
    if (loaded) check(c, loaded.value().get());
  }
}

}  // namespace kvroof::suite
