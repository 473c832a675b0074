// What memory gives, and what share of it each kernel reaches on cold data: bandwidth, products, compaction.
#include <algorithm>

#include "tests/gpu/suite/device_data.hpp"
#include "tests/gpu/suite/measure.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {

using namespace kvroof::cuda;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

double seconds_a_row(const Options& options) { return options.small ? 0.01 : 0.25; }

// `bytes` of random numbers of the kind.
DeviceBuffer noise(Stream& stream, Noise kind, float scale, std::size_t bytes) {
  DeviceBuffer buffer(bytes);
  run_noise(stream, kind, scale, 1, buffer.at(), bytes / 16 * 16);
  check_device(synchronize(stream), "filling memory");
  return buffer;
}

// How many pieces of so many bytes lie behind each other before the first comes again: four times the cache of the
// chip.
std::size_t pieces_of(std::size_t bytes, const CardFacts& card) { return 4 * card.l2_bytes / bytes + 1; }

}  // namespace

double measure_copy(const Options& options) {
  OpenStream open;
  Stream& stream = open.get();
  const std::size_t bytes = options.small ? kMiB / 4 : 1024 * kMiB;
  const DeviceBuffer from = noise(stream, Noise::kBytes, 1, bytes), to(bytes);
  TimedWork kernel(stream, 2, [&](unsigned) { run_copy(stream, from.at(), to.at(), bytes); });
  TimedWork driver(stream, 2, [&](unsigned) { run_driver_copy(stream, from.at(), to.at(), bytes); });
  const double ours = measure(kernel, seconds_a_row(options)).median;
  return 2.0 * static_cast<double>(bytes) / std::min(ours, measure(driver, seconds_a_row(options)).median);
}

double measure_bandwidth(const Options& options, Report& report) {
  OpenStream open;
  Stream& stream = open.get();
  const std::size_t arena =
      options.small ? kMiB / 4 : std::min(4096 * kMiB, options.device.free_bytes / 4 / kMiB * kMiB);
  const DeviceBuffer from = noise(stream, Noise::kBytes, 1, arena), to(arena), sink(16);
  double limit = 0;
  for (std::size_t bytes = arena; bytes >= arena / 256 && bytes >= 4096; bytes /= 4) {
    const auto at = [&](unsigned i) { return i % (arena / bytes) * bytes; };
    struct Kind {
      const char* name;
      double factor;  // bytes that move for each byte
      std::function<void(unsigned)> work;
    };
    const Kind kinds[] = {
        {"copy", 2, [&](unsigned i) { run_copy(stream, from.at(at(i)), to.at(at(i)), bytes); }},
        {"driver_copy", 2, [&](unsigned i) { run_driver_copy(stream, from.at(at(i)), to.at(at(i)), bytes); }},
        {"read", 1, [&](unsigned i) { run_read(stream, from.at(at(i)), bytes, sink.at<float>()); }},
        {"fill", 1, [&](unsigned i) { run_fill(stream, to.at(at(i)), bytes); }}};
    for (const Kind& kind : kinds) {
      const Json parameters = {{"bytes", bytes}};
      report.guarded(kind.name, parameters, [&] {
        TimedWork work(stream, repetitions_for(2 * bytes, options.card), kind.work);
        const Measured m = measure(work, seconds_a_row(options));
        const double moved = kind.factor * static_cast<double>(bytes);
        if (kind.factor > 1 && bytes * 4 >= arena) limit = std::max(limit, moved / m.median);
        report.add(kind.name, parameters, results_of(m, moved, limit));
      });
    }
  }
  return limit;
}

namespace {

struct Product {
  std::uint32_t rows, cols;
  bool gated = false, norm = false, add = false;
};

double bytes_of(const Product& p, std::uint32_t tokens) {
  const double weights = 2.0 * p.rows * p.cols * (p.gated ? 2 : 1);
  return weights + 4.0 * tokens * (p.cols + double{1} * p.rows * (p.add ? 2 : 1));
}

// Random weights of one or several products, as often as cold data need.
class Products {
 public:
  Products(Stream& stream, std::vector<Product> products, std::uint32_t tokens, const CardFacts& card)
      : stream_(stream), products_(std::move(products)), tokens_(tokens) {
    std::uint32_t widest = 0;
    for (const Product& p : products_) {
      at_.push_back(set_bytes_);
      set_bytes_ += (std::size_t{2} * p.rows * p.cols * (p.gated ? 2 : 1) + 255) / 256 * 256;
      widest = std::max({widest, p.rows, p.cols});
    }
    sets_ = pieces_of(set_bytes_, card);
    weights_ = noise(stream, Noise::kBF16, 0.05F, sets_ * set_bytes_);
    vectors_ = noise(stream, Noise::kF32, 1, std::size_t{8} * tokens * widest);
    out_at_ = std::size_t{4} * tokens * widest;
    scale_ = noise(stream, Noise::kBF16, 1, std::size_t{2} * widest + 16);
  }

  void launch(unsigned set) {
    for (std::size_t i = 0; i < products_.size(); ++i) {
      const Product& p = products_[i];
      const std::byte* w = weights_.at(set % sets_ * set_bytes_ + at_[i]);
      LinearArguments a;
      a.x = vectors_.at<float>();
      a.tokens = tokens_;
      if (p.norm) {
        a.norm = NormMode::kRms;
        a.norm_scale = scale_.at();
        a.norm_eps = 1e-5F;
      }
      a.w = {w, p.rows, p.cols};
      if (p.gated) {
        a.up = {w + std::size_t{2} * p.rows * p.cols, p.rows, p.cols};
        a.activation = ActivationMode::kSilu;
      }
      a.add = p.add;
      a.out = vectors_.at<float>(out_at_);
      run_linear(stream_, Stored::kBF16, a);
    }
  }

  [[nodiscard]] double bytes() const {
    double sum = 0;
    for (const Product& p : products_) sum += bytes_of(p, tokens_);
    return sum;
  }
  [[nodiscard]] std::size_t set_bytes() const { return set_bytes_; }

 private:
  Stream& stream_;
  std::vector<Product> products_;
  std::uint32_t tokens_;
  std::size_t set_bytes_ = 0, sets_ = 0, out_at_ = 0;
  std::vector<std::size_t> at_;  // of each product in a set
  DeviceBuffer weights_, vectors_, scale_;
};

void measure_products(const Options& options, Report& report, const std::string& what, const Json& parameters,
                      const std::vector<Product>& products, std::uint32_t tokens, double limit) {
  report.guarded(what, parameters, [&] {
    OpenStream open;
    Products all(open.get(), products, tokens, options.card);
    TimedWork work(open.get(), repetitions_for(all.set_bytes(), options.card), [&](unsigned i) { all.launch(i); });
    report.add(what, parameters, results_of(measure(work, seconds_a_row(options)), all.bytes(), limit));
  });
}

}  // namespace

void measure_linear(const Options& options, Report& report, double limit) {
  const std::uint32_t part = options.small ? 64 : 1;
  for (const std::uint32_t tokens : {1U, 2U, 4U, 8U, 16U, 64U}) {
    for (const auto& [rows, cols] : {std::pair{4096U, 4096U}, {16384U, 4096U}, {4096U, 16384U}, {50432U, 4096U}}) {
      if (options.small && tokens % 3 != 1) continue;
      const Product p{rows / part, cols / part};
      measure_products(options, report, "linear",
                       {{"rows", p.rows}, {"cols", p.cols}, {"tokens", tokens}, {"type", "bf16"}}, {p}, tokens, limit);
    }
  }
  struct Layer {
    const char* name;
    std::vector<Product> products;
  };
  const std::uint32_t h = 4096 / part, wide = 16384 / part, gated = 11008 / (options.small ? 32 : 1);
  const Layer layers[] = {
      {"mpt-7b",
       {{3 * h, h, false, true}, {h, h, false, false, true}, {wide, h, false, true}, {h, wide, false, false, true}}},
      {"llama-2-7b",
       {{3 * h, h, false, true}, {h, h, false, false, true}, {gated, h, true, true}, {h, gated, false, false, true}}}};
  for (const Layer& layer : layers) {
    for (const std::uint32_t tokens : {1U, 4U, 16U, 64U}) {
      if (options.small && tokens > 4) continue;
      measure_products(options, report, "layer_products", {{"model", layer.name}, {"tokens", tokens}, {"type", "bf16"}},
                       layer.products, tokens, limit);
    }
  }
}

void measure_moves(const Options& options, Report& report, double limit) {
  constexpr std::uint32_t kRow = 256;  // bytes of 128 bf16 elements
  const std::uint32_t heads = options.small ? 2 : 32, tokens = options.small ? 32 : 4096;
  for (const std::uint32_t percent : {10U, 50U, 90U}) {
    const std::uint32_t kept = tokens * percent / 100;
    const Json parameters = {{"heads", heads}, {"prompt", tokens}, {"kept_percent", percent}, {"row_bytes", 2 * kRow}};
    report.guarded("compaction", parameters, [&] {
      OpenStream open;
      Stream& stream = open.get();
      const std::size_t rows = std::size_t{heads} * tokens, moves = std::size_t{heads} * kept;
      const DeviceBuffer from = noise(stream, Noise::kBytes, 1, 2 * rows * kRow), to(2 * rows * kRow);
      const DeviceBuffer positions = noise(stream, Noise::kBytes, 1, 8 * rows);
      std::vector<CacheSlots> sources, targets;
      std::vector<std::uint32_t> from_slot, to_slot;
      for (std::uint32_t h = 0; h < heads; ++h) {
        const std::size_t row = std::size_t{h} * tokens;
        const CacheSlots source{from.at(row * kRow),
                                from.at((rows + row) * kRow),
                                nullptr,
                                nullptr,
                                positions.at<std::uint32_t>(4 * row),
                                nullptr};
        const CacheSlots target{to.at(row * kRow),
                                to.at((rows + row) * kRow),
                                nullptr,
                                nullptr,
                                positions.at<std::uint32_t>(4 * (rows + row)),
                                nullptr};
        for (std::uint32_t i = 0; i < kept; ++i) {
          sources.push_back(source);
          targets.push_back(target);
          from_slot.push_back(static_cast<std::uint32_t>(std::uint64_t{i} * tokens / kept));
          to_slot.push_back(i);
        }
      }
      const DeviceBuffer device_sources = uploaded(stream, sources), device_targets = uploaded(stream, targets);
      const DeviceBuffer device_from = uploaded(stream, from_slot), device_to = uploaded(stream, to_slot);
      MoveArguments a;
      a.from = device_sources.at<CacheSlots>();
      a.to = device_targets.at<CacheSlots>();
      a.from_slot = device_from.at<std::uint32_t>();
      a.to_slot = device_to.at<std::uint32_t>();
      a.moves = static_cast<std::uint32_t>(moves);
      a.key_row_bytes = a.value_row_bytes = kRow;
      // A read of other memory between two launches leaves nothing of the rows in the cache of the chip.
      const std::size_t cold = pieces_of(16, options.card) * 16;
      const DeviceBuffer other = noise(stream, Noise::kBytes, 1, cold), sink(16);
      TimedWork reads(stream, 4, [&](unsigned) { run_read(stream, other.at(), cold, sink.at<float>()); });
      TimedWork both(stream, 4, [&](unsigned) {
        run_read(stream, other.at(), cold, sink.at<float>());
        run_moves(stream, a);
      });
      const Measured flush = measure(reads, seconds_a_row(options));
      Measured m = measure(both, seconds_a_row(options));
      m.median -= flush.median;
      m.best -= flush.best;
      report.add("compaction", parameters, results_of(m, 4.0 * static_cast<double>(moves) * kRow, limit));
    });
  }
}

void measure_limits(const Options& options, Report& report) {
  const double limit = measure_bandwidth(options, report);
  measure_linear(options, report, limit);
  measure_attention(options, report, limit);
  measure_moves(options, report, limit);
}

}  // namespace kvroof::suite
