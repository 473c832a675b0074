#include "kernels/cuda/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "kernels/cuda/measure/attention_work.hpp"
#include "kernels/cuda/measure/product_work.hpp"
#include "kernels/cuda/measure/stream_work.hpp"

namespace kvroof {

using namespace cuda;

namespace {

constexpr double kSecondsAltogether = 50;
constexpr double kSecondsEach = 0.15;
constexpr std::size_t kMiB = std::size_t{1} << 20;

// Rows and columns of a product of bf16 weights, and how many tokens pass it.
struct ProductCase {
  std::uint32_t rows, cols, tokens;
};

// Eight MB to two GB: the matrices of models from 1 to 70 B. Then products that arithmetic binds, as a prompt's.
std::vector<ProductCase> product_cases(bool small) {
  std::vector<ProductCase> cases;
  if (small) {
    for (std::uint32_t rows = 16; rows <= 160; rows += 16) cases.push_back({rows, 64, 1});
    cases.push_back({64, 64, kMostOwnVectors + 1});
    return cases;
  }
  for (const std::uint32_t tokens : {1U, 4U, 16U}) {
    for (const auto& [rows, cols] :
         {std::pair{1024U, 4096U}, {2048U, 4096U}, {4096U, 4096U}, {6144U, 4096U}, {4096U, 11008U}, {16384U, 4096U},
          {8192U, 8192U}, {28672U, 4096U}, {4096U, 28672U}, {50432U, 4096U}, {28672U, 8192U}, {128256U, 8192U}}) {
      cases.push_back({rows, cols, tokens});
    }
  }
  for (const std::uint32_t tokens : {2048U, 4096U, 8192U}) {
    for (const auto& [rows, cols] : {std::pair{4096U, 4096U}, {4096U, 11008U}, {16384U, 4096U}, {8192U, 8192U}}) {
      cases.push_back({rows, cols, tokens});
    }
  }
  return cases;
}

// Batches of equal and of unequal lengths, with and without grouped query heads.
std::vector<AttentionWork> attention_cases(bool small) {
  std::vector<AttentionWork> cases;
  const auto add = [&](std::uint32_t heads, std::uint32_t kv_heads, std::vector<std::uint32_t> lengths) {
    AttentionWork work;
    work.heads = heads;
    work.kv_heads = kv_heads;
    work.lengths = std::move(lengths);
    cases.push_back(std::move(work));
  };
  if (small) {
    for (std::uint32_t length = 8; length <= 80; length += 8) add(2, 2, {length});
    add(2, 2, {60, 3});
    return cases;
  }
  for (const std::uint32_t kv_heads : {32U, 8U}) {
    for (const std::uint32_t context : {512U, 2048U, 8192U, 32768U}) {
      for (const std::uint32_t batch : {1U, 8U, 64U}) {
        if (std::uint64_t{context} * batch <= 131072) add(32, kv_heads, std::vector(batch, context));
      }
    }
    std::vector<std::uint32_t> one_long(8, 1024);
    one_long[0] = 8 * 4096 - 7 * 1024;
    add(32, kv_heads, one_long);
  }
  return cases;
}

std::string text_of(const AttentionWork& work) {
  const std::size_t batch = work.lengths.size(), context = work.tokens() / batch;
  const bool alike = std::all_of(work.lengths.begin(), work.lengths.end(), [&](auto l) { return l == context; });
  return fmt::format("attention, batch {} of {}{} tokens, {} heads on {}", batch, alike ? "" : "unequal lengths, mean ",
                     context, work.heads, work.kv_heads);
}

class Calibrator {
 public:
  explicit Calibrator(const std::function<void(unsigned, unsigned)>& progress) : progress_(progress) {
    check_device(find_device(device_), "looking for a device");
    card_ = card_facts();
    result_.device = device_.name;
    result_.driver = card_.driver_version;
    result_.sm_clock_khz = card_.sm_clock_khz;
    result_.memory_clock_khz = card_.memory_clock_khz;
    load_library();
  }

  CudaCalibration run() {
    const auto products = product_cases(card_.emulated);
    const auto calls = attention_cases(card_.emulated);
    total_ = static_cast<unsigned>(products.size() + calls.size()) + kStreamSizes + 1;
    measure_streams();
    for (const ProductCase& c : products) step([&] { return measure_product(c); });
    for (const AttentionWork& c : calls) step([&] { return measure_call(c); });
    return std::move(result_);
  }

 private:
  static constexpr unsigned kStreamSizes = 4;

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  // A measurement returns false where memory does not suffice for it.
  template <class Body>
  void step(const Body& body) {
    if (seconds() > kSecondsAltogether || !body()) ++result_.cut;
    progress_(++done_, total_);
  }
  // As the back end does it for `--linear auto`.
  void load_library() {
    auto loaded = CublasLt::load();
    if (loaded) {
      library_ = std::move(loaded).value();
    } else {
      result_.no_library = loaded.error();
    }
  }
  [[nodiscard]] bool has_room(double bytes) const {
    return card_.emulated || bytes < 0.5 * static_cast<double>(device_.free_bytes);
  }

  void measure_streams() {
    Streams streams(card_.emulated ? kMiB / 4 : std::min(4096 * kMiB, device_.free_bytes / 4 / kMiB * kMiB), card_);
    step([&] {
      // A read of one pack: the start of a kernel, and nothing else.
      result_.empty_kernel_seconds = streams.time(StreamKind::kRead, 16, kSecondsEach).median;
      return true;
    });
    for (std::size_t bytes = streams.arena() >> 2 * (kStreamSizes - 1); bytes <= streams.arena(); bytes *= 4) {
      step([&] {
        for (const StreamKind kind : {StreamKind::kRead, StreamKind::kCopy}) {
          const Measured m = streams.time(kind, bytes, kSecondsEach);
          const double moved = factor_of(kind) * static_cast<double>(bytes);
          result_.streams.push_back({name_of(kind), bytes, moved / m.median, m.spread});
        }
        return true;
      });
    }
  }

  bool measure_product(const ProductCase& c) {
    const double weights = 2.0 * c.rows * c.cols;
    const double vectors = 8.0 * c.tokens * std::max(c.rows, c.cols);  // in and out
    if (!has_room(weights + vectors + 4.0 * static_cast<double>(card_.l2_bytes))) return false;
    const double flops = 2.0 * c.tokens * c.rows * c.cols;
    const double seconds = product_seconds(c);
    const bool by_library = library_for(c) != nullptr;
    result_.samples.push_back({false,
                               fmt::format("product [{}, {}] x [{}, {}]{}", c.tokens, c.cols, c.cols, c.rows,
                                           by_library ? " by cuBLASLt" : ""),
                               weights, flops, seconds});
    return true;
  }
  [[nodiscard]] CublasLt* library_for(const ProductCase& c) const {
    return c.tokens > kMostOwnVectors ? library_.get() : nullptr;
  }
  // Where the library refuses, our own kernels serve from then on.
  double product_seconds(const ProductCase& c) {
    const auto by = [&](CublasLt* library) {
      return Products({{c.rows, c.cols}}, c.tokens, card_, library).time(kSecondsEach).median;
    };
    if (library_for(c) == nullptr) return by(nullptr);
    try {
      const double seconds = by(library_.get());
      result_.library = "cuBLASLt " + library_->version();
      return seconds;
    } catch (const Error& refused) {
      result_.no_library = refused.what();
      library_.reset();
      return by(nullptr);
    }
  }

  bool measure_call(const AttentionWork& work) {
    const auto m = time_attention(work, device_, card_, kSecondsEach);
    if (!m) return false;
    const double flops = 4.0 * static_cast<double>(work.tokens()) * work.heads * work.dim;  // q · k and p · v
    result_.samples.push_back({true, text_of(work), static_cast<double>(work.bytes()), flops, m->median});
    return true;
  }

  const std::function<void(unsigned, unsigned)>& progress_;
  DeviceFacts device_;
  CardFacts card_;
  std::unique_ptr<CublasLt> library_;  // null: our own kernels make all products
  CudaCalibration result_;
  unsigned done_ = 0, total_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

CudaCalibration calibrate_cuda(const std::function<void(unsigned, unsigned)>& progress) {
  return Calibrator(progress).run();
}

CudaBoard cuda_board() {
  DeviceFacts facts;
  find_device(facts);
  return {facts.name, facts.multiprocessors, facts.total_bytes};
}

}  // namespace kvroof
