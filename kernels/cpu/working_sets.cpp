#include "kernels/cpu/working_sets.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/cpu/bandwidth.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kWidth = 4096;               // columns of the products
constexpr std::uint64_t kTimedBytes = 16 * kMiB;   // of one measurement: about half a millisecond
constexpr std::size_t kSmallHidden = 256, kSmallFfn = 704, kSmallLayers = 6;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The rate of chunks that take `turns` with a start, which a disturbed measurement may make seem longer than it is.
Measured rate_of(double chunk, const Turns& turns, double start) {
  return {chunk / std::max(turns.seconds - start, 0.5 * turns.seconds), turns.spread};
}

}  // namespace

Turns turns_of(std::vector<double> seconds) {
  const double middle = median(seconds);
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  return {middle, std::max(*most / middle, middle / *least) - 1};
}

WorkingSets::WorkingSets(Ops& ops)
    : ops_(ops),
      cache_bytes_(last_level_cache_bytes()),
      x_(kWidth, 0.5F),
      elementwise_(ops),
      one_slot_(ops, 1, 1) {
  for (const std::uint64_t bytes :
       {cache_bytes_ / 16, cache_bytes_ / 4, cache_bytes_ / 2, cache_bytes_, 2 * cache_bytes_, uncached_bytes()}) {
    if (bytes >= kMiB && (sets_.empty() || bytes > sets_.back().bytes)) add_set(bytes / kMiB * kMiB);
  }
  for (std::size_t layer = 0; layer < kSmallLayers; ++layer) {
    for (int i = 0; i < 4; ++i) small_.push_back(constant_weight(DType::kBF16, kSmallHidden, kSmallHidden));
    for (int i = 0; i < 2; ++i) small_.push_back(constant_weight(DType::kBF16, kSmallFfn, kSmallHidden));
    small_.push_back(constant_weight(DType::kBF16, kSmallHidden, kSmallFfn));
  }
}

void WorkingSets::add_set(std::uint64_t bytes) {
  const std::uint64_t chunk = std::clamp(bytes / 16 / kMiB * kMiB, kMiB, 16 * kMiB);
  const std::size_t chunks = bytes / chunk, rows = chunk / (2 * kWidth);
  Set set;
  set.bytes = chunks * chunk;
  set.chunk = chunk;
  const auto slots = static_cast<std::uint32_t>(chunk / AttentionWork::kSlotBytes);
  set.cache = std::make_unique<AttentionWork>(ops_, slots, chunks);
  for (std::size_t i = 0; i < chunks; ++i) set.weights.push_back(constant_weight(DType::kBF16, rows, kWidth));
  out_.resize(std::max({out_.size(), rows, kSmallFfn}));
  sets_.push_back(std::move(set));
}

// A set that a cache may hold is read once before: the sets before it have taken its place.
void WorkingSets::work_on(Set& set) {
  const bool warm = set.bytes <= cache_bytes_;
  const std::size_t all = set.weights.size(), rows = set.weights.front().rows;
  const std::size_t timed = std::min<std::size_t>(all, (kTimedBytes + set.chunk - 1) / set.chunk);
  const auto product = [&](std::size_t i) {
    ops_.linear(x_, set.weights[i % all], nullptr, std::span(out_).first(rows));
  };
  const auto time = [&](std::vector<double>& seconds, const auto& run) {
    for (std::size_t i = 0; warm && i < all; ++i) run(i);
    const auto start = Clock::now();
    for (std::size_t i = 0; i < timed; ++i) run(set.next + i);
    seconds.push_back(seconds_since(start) / static_cast<double>(timed));
  };
  time(set.products, product);
  time(set.calls, [&](std::size_t) { set.cache->run(); });
  set.next += timed;
}

// The operators of some layers as a step calls them, one kind after the other.
void WorkingSets::small_layers() {
  const auto time = [](Start& start, std::size_t calls, const auto& run) {
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < calls; ++i) run(i);
    start.seconds.push_back(seconds_since(begin) / static_cast<double>(calls));
  };
  const auto product = [&](std::size_t i) {
    const Weight& w = small_[i];
    ops_.linear(std::span(x_).first(w.cols), w, nullptr, std::span(out_).first(w.rows));
  };
  for (std::size_t i = 0; i < small_.size(); ++i) product(i);  // into the cache
  time(small_products_, small_.size(), product);
  time(attention_start_, kSmallLayers, [&](std::size_t) { one_slot_.run(); });
  time(elementwise_start_, kSmallLayers, [&](std::size_t) { elementwise_.run(); });
}

void WorkingSets::take_turn(double seconds) {
  const auto start = Clock::now();
  do {
    for (Set& set : sets_) work_on(set);
    small_layers();
  } while (seconds_since(start) < seconds);
  const auto end_turn = [](std::vector<double>& of_turn, std::vector<double>& turns) {
    turns.push_back(median(of_turn));
    of_turn.clear();
  };
  for (Set& set : sets_) {
    end_turn(set.products, set.product_turns);
    end_turn(set.calls, set.call_turns);
  }
  for (Start* of : {&small_products_, &elementwise_start_, &attention_start_}) {
    end_turn(of->seconds, of->turns);
  }
}

void WorkingSets::report(CpuCalibration& result) const {
  result.attention_start = turns_of(attention_start_.turns);
  result.elementwise = turns_of(elementwise_start_.turns);
  for (const Set& set : sets_) {
    const auto chunk = static_cast<double>(set.chunk);
    result.by_working_set.push_back(
        {set.bytes, rate_of(chunk, turns_of(set.product_turns), result.linear_start_seconds),
         rate_of(chunk, turns_of(set.call_turns), result.attention_start.seconds)});
  }
  // What reads a smaller set more slowly than a larger one was disturbed.
  for (std::size_t i = result.by_working_set.size() - 1; i-- > 0;) {
    SetSample &smaller = result.by_working_set[i], &larger = result.by_working_set[i + 1];
    smaller.product.rate = std::max(smaller.product.rate, larger.product.rate);
    smaller.attention.rate = std::max(smaller.attention.rate, larger.attention.rate);
  }
  double bytes = 0;
  for (const Weight& w : small_) bytes += static_cast<double>(w.bytes());
  const auto holds = [&](const SetSample& s) { return static_cast<double>(s.bytes) >= bytes; };
  const auto& sets = result.by_working_set;
  const auto set = std::find_if(sets.begin(), sets.end() - 1, holds);
  const double reading = bytes / static_cast<double>(small_.size()) / set->product.rate;
  result.small_linear_start = turns_of(small_products_.turns);
  double& start = result.small_linear_start.seconds;
  start = std::max(start - reading, 0.05 * start);
}

}  // namespace kvroof
