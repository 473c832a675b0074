#include "traces/kineto_operators.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "sim/core/byte_counters.hpp"

namespace kvroof {
namespace {

using Shape = std::vector<std::uint64_t>;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48U;

// Bytes of an element; 0: not known.
std::uint64_t element_bytes(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 4> kTypes = {
      {{"float", 4}, {"double", 8}, {"c10::Half", 2}, {"c10::BFloat16", 2}}};
  const auto* const it = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.first == type; });
  return it == kTypes.end() ? 0 : it->second;
}

bool is_float8(std::string_view type) {
  constexpr std::array<std::string_view, 4> kTypes = {"c10::Float8_e4m3fn", "c10::Float8_e5m2",
                                                      "c10::Float8_e4m3fnuz", "c10::Float8_e5m2fnuz"};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

// 0 where it is more than any tensor has.
std::uint64_t elements(const Shape& shape) {
  std::uint64_t product = 1;
  for (const std::uint64_t n : shape) {
    if (n == 0 || product > kMostElements / n) return 0;
    product *= n;
  }
  return product;
}

std::string named(std::string_view name, std::span<const Shape> shapes) {
  std::string text(name);
  for (const Shape& shape : shapes) {
    for (std::size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i == 0 ? ' ' : 'x', shape[i]);
  }
  return text;
}

// Bytes of an element of each.
struct Widths {
  std::uint64_t a, b, result;
};

// a [batch, m, k] · b [batch, k, n], both without the batch where there is none. What addmm adds is small beside them.
std::optional<ShapedOperator> product(std::string_view name, std::span<const Shape> operands, std::size_t rank,
                                      const Widths& width) {
  const Shape& a = operands[0];
  const Shape& b = operands[1];
  if (a.size() != rank || b.size() != rank || a[rank - 1] != b[rank - 2] || (rank == 3 && a[0] != b[0])) return {};
  const std::uint64_t read = elements(a), weights = elements(b);
  if (read == 0 || weights == 0) return {};
  const std::uint64_t n = b[rank - 1], rows = read / a[rank - 1];
  if (rows > kMostElements / n || read > kMostElements / n) return {};
  const std::uint64_t written = rows * n;
  const std::uint64_t flops = width.a == 2 ? 2 * n * read : 0;
  return ShapedOperator{named(name, operands), width.a * read + width.b * weights + width.result * written, flops};
}

// aten::_scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, …): 8 bits times 8 bits, with scales of whole
// tensors, rows or blocks. The type of the result is a number that the profiler writes since PyTorch 2.1; without it
// the result has that of a. Before 2.5 the arguments had another order, which the types of the scales tell.
std::optional<ShapedOperator> scaled_product(const KinetoEvent& event) {
  constexpr std::size_t kResultType = 6;
  const std::vector<std::string>& types = event.types;
  if (std::min({event.shapes.size(), types.size(), event.values.size()}) <= kResultType) return {};
  const std::uint64_t scale = types[2] == "float" ? 4 : types[2] == "c10::Float8_e8m0fnu" ? 1 : 0;
  if (!is_float8(types[0]) || !is_float8(types[1]) || scale == 0 || types[3] != types[2]) return {};
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 7> kResultBytes = {
      {{"", 1}, {"None", 1}, {"5", 2}, {"6", 4}, {"15", 2}, {"23", 1}, {"24", 1}}};  // c10::ScalarType
  const auto* const result = std::find_if(kResultBytes.begin(), kResultBytes.end(),
                                          [&](const auto& known) { return known.first == event.values[kResultType]; });
  if (result == kResultBytes.end()) return {};
  auto made = product(event.name, std::span(event.shapes).first(2), 2, {1, 1, result->second});
  if (made) made->bytes += scale * (elements(event.shapes[2]) + elements(event.shapes[3]));
  return made;
}

// q, k and v, and an output of q's shape; whether heads or tokens come first in it does not matter.
std::optional<ShapedOperator> attention(std::string_view name, std::span<const Shape> operands, std::uint64_t width) {
  std::uint64_t all = elements(operands[0]);
  for (const Shape& shape : operands) {
    if (shape.size() < 3 || elements(shape) == 0) return {};
    all += elements(shape);
  }
  return ShapedOperator{named(name, operands), width * all, 0};
}

struct Known {
  std::string_view name;
  std::size_t first;  // of its arguments, that counts
  std::size_t rank;   // of a product; 0: attention
};
// Scaled dot product attention calls an operator that launches its kernels, or launches them itself, by the version.
constexpr std::array<Known, 10> kKnown = {{{"aten::mm", 0, 2},
                                           {"aten::addmm", 1, 2},
                                           {"aten::bmm", 0, 3},
                                           {"aten::baddbmm", 1, 3},
                                           {"aten::_flash_attention_forward", 0, 0},
                                           {"aten::_efficient_attention_forward", 0, 0},
                                           {"aten::_cudnn_attention_forward", 0, 0},
                                           {"aten::_scaled_dot_product_flash_attention", 0, 0},
                                           {"aten::_scaled_dot_product_efficient_attention", 0, 0},
                                           {"aten::_scaled_dot_product_cudnn_attention", 0, 0}}};

}  // namespace

std::optional<ShapedOperator> shaped_operator(const KinetoEvent& event) {
  if (event.name == "aten::_scaled_mm") return scaled_product(event);
  const auto* const known =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return k.name == event.name; });
  if (known == kKnown.end()) return {};
  const std::size_t count = known->rank > 0 ? 2 : 3;
  if (event.shapes.size() < known->first + count || event.types.size() < known->first + count) return {};
  const std::span<const Shape> operands(event.shapes.data() + known->first, count);
  const std::uint64_t width = element_bytes(event.types[known->first]);
  for (std::size_t i = 1; i < count; ++i) {
    if (event.types[known->first + i] != event.types[known->first]) return {};
  }
  if (width == 0) return {};
  return known->rank > 0 ? product(event.name, operands, known->rank, {width, width, width})
                         : attention(event.name, operands, width);
}

std::uint64_t KinetoOperators::see(const KinetoEvent& event, ProfileSink& to) {
  if (event.external == 0 || event.phase != "X") return 0;
  if (event.category == "cpu_op") {
    if (const auto shaped = shaped_operator(event)) {
      calls_.insert_or_assign(event.external,
                              Call{&*names_.insert(shaped->name).first, shaped->bytes, shaped->flops});
    }
    return 0;
  }
  if (event.category != "kernel" || event.correlation > UINT32_MAX) return 0;
  of_operators_ = of_operators_ || event.external != event.correlation;
  if (const auto it = calls_.find(event.external); it != calls_.end()) {
    OperatorRecord record;
    record.graph_node = event.graph_node;
    record.correlation = static_cast<std::uint32_t>(event.correlation);
    record.step = kNoStep;
    record.name = *it->second.name;
    record.cause = kCauseNames[static_cast<std::size_t>(Cause::kActivations)];
    record.declared_bytes = std::exchange(it->second.bytes, 0);
    record.declared_flops = std::exchange(it->second.flops, 0);
    waiting_.push_back(record);
  }
  if (!of_operators_) return 0;
  for (const OperatorRecord& record : waiting_) to.add(record);
  const std::uint64_t told = waiting_.size();
  waiting_.clear();
  return told;
}

}  // namespace kvroof
