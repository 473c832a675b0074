#include "kernels/cuda/library_linear.hpp"

#include <algorithm>
#include <utility>

namespace kvroof::cuda {
namespace {

// Something is left of a map whose results the library has written: finish_products does it.
bool has_more(const LinearArguments& a) {
  return a.bias != nullptr || a.up.rows > 0 || a.activation != ActivationMode::kNone || a.factor != 1 ||
         a.token_factors != nullptr || a.softcap > 0;
}

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % CublasLt::kAlignment == 0; }

// The library adds its products, times a factor, to what is there; of what follows a product only a bias may come after
// it.
bool can_serve(const LinearArguments& a) {
  if (a.routed.chosen != nullptr || a.heads.count > 0) return false;
  if (!aligned(a.w.data) || !aligned(a.up.data) || !aligned(a.out)) return false;
  LinearArguments rest = a;
  if (a.bias == nullptr) rest.factor = 1;
  rest.bias = nullptr;
  return !a.add || !has_more(rest);
}

}  // namespace

bool LibraryLinear::wins(const LinearArguments& a) const {
  if (library_ == nullptr || !no_memory_.empty() || !can_serve(a)) return false;
  return by_ == LinearBy::kCublasLt || (by_ == LinearBy::kAuto && a.tokens > kMostOwnVectors);
}

// Without the memory the library is not used again: our own kernels need none.
bool LibraryLinear::reserve(const LinearArguments& a) {
  try {
    workspace_.reserve(CublasLt::kWorkspaceBytes);
    const std::size_t vectors = std::min(a.tokens, kSliceVectors);
    rounded_.reserve(2 * vectors * a.w.cols);
    if (a.up.rows > 0) ups_.reserve(sizeof(float) * vectors * a.up.rows);
  } catch (const OutOfDeviceMemory& refused) {
    no_memory_ = fmt::format("cuBLASLt has no room beside the model: {}", refused.what());
    for (DeviceBuffer* buffer : {&workspace_, &rounded_, &ups_}) *buffer = DeviceBuffer();
    return false;
  }
  return true;
}

bool LibraryLinear::multiply(Stored weights, const ProductArguments& p) {
  const LinearArguments& a = p.linear;
  CublasLt::Product product{weights, a.w, p.rounded, a.tokens, a.out, a.out_row, a.add, a.add ? a.factor : 1};
  // The gate's products go last: where the other's are refused, nothing was written that is added to.
  if (a.up.rows > 0) {
    if (!library_->serves(product)) return false;
    CublasLt::Product up = product;
    up.w = a.up;
    up.out = ups_.at<float>();
    up.out_row = a.up.rows;
    if (!library_->multiply(stream_, up, workspace_.at())) return false;
  }
  return library_->multiply(stream_, product, workspace_.at());
}

bool LibraryLinear::run_slice(Stored weights, const LinearArguments& a) {
  ProductArguments p{a, rounded_.at(), ups_.at<float>()};
  run_round_vectors(stream_, weights, p);
  if (!multiply(weights, p)) return false;
  library_->note_served();
  if (std::exchange(p.linear.add, false)) p.linear.factor = 1;  // it is done
  if (has_more(p.linear)) run_finish_products(stream_, weights, p);
  return true;
}

bool LibraryLinear::run(Stored weights, LinearArguments a) {
  missed_ = missed_ || (library_ == nullptr && a.tokens > kMostOwnVectors && can_serve(a));
  if (!wins(a) || !reserve(a)) return false;
  set_steps(a);
  for (std::uint32_t first = 0; first < a.tokens; first += kSliceVectors) {
    LinearArguments slice = a;
    slice.tokens = std::min(a.tokens - first, kSliceVectors);
    slice.x += std::size_t{first} * a.x_row;
    slice.out += std::size_t{first} * a.out_row;
    if (a.token_factors != nullptr) slice.token_factors += first;
    if (run_slice(weights, slice)) continue;
    if (first == 0) return false;
    run_linear(stream_, weights, slice);
  }
  return true;
}

std::uint64_t LibraryLinear::most_bytes(std::uint32_t vectors, std::uint32_t cols, std::uint32_t gated_rows) const {
  if (library_ == nullptr || !no_memory_.empty()) return 0;
  const std::uint64_t each = 2 * std::uint64_t{cols} + sizeof(float) * gated_rows;
  return CublasLt::kWorkspaceBytes + std::min(vectors, kSliceVectors) * each;
}

std::string LibraryLinear::problem() const {
  if (library_ == nullptr) return {};
  return no_memory_.empty() ? library_->problem() : no_memory_;
}

}  // namespace kvroof::cuda
