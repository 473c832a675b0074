#include "sim/policy/tile_attention.hpp"

#include <algorithm>

namespace kvroof {
namespace {
constexpr std::uint32_t kDefaultTile = 256;
constexpr std::uint32_t kMostTile = 1U << 20;
}  // namespace

TileAttention::TileAttention(const PolicySpec& spec)
    : tile_(spec.count("tile", kDefaultTile, 1)), pads_(yes_or_no(spec, "pad", true)) {}

TensorNeed TileAttention::needs(const PolicySpec& spec) {
  if (const std::uint32_t tile = spec.count("tile", kDefaultTile, 1); tile > kMostTile) {
    throw usage_error(fmt::format("policy {}: tile={}: expected at most {} tokens", spec.name, tile, kMostTile));
  }
  (void)yes_or_no(spec, "pad", true);
  return {.keys = true, .values = true, .queries = TensorNeed::kWholePrompt};
}

// sums[j] += what the queries of the tile pay to its token j, as a mean over the group.
void TileAttention::add_tile(const TileRows& rows, std::size_t first, std::size_t count, std::span<double> sums) {
  const std::size_t width = rows.width;
  const RowsView keys{reinterpret_cast<const std::byte*>(rows.keys.data() + first * width), DType::kF32, width, width,
                      count};
  const std::size_t filled = pads_ ? tile_ : count;
  for (std::size_t i = first * rows.group; i < (first + count) * rows.group; ++i) {
    weights_.assign(filled, 0.0F);  // the logits of rows of zeros
    compute_logits(rows.queries.subspan(i * width, width), keys, {}, std::span(weights_).first(count));
    softmax(weights_, weights_);
    for (std::size_t j = 0; j < count; ++j) sums[j] += static_cast<double>(weights_[j]) / rows.group;
  }
  // A query of zeros pays the same to all.
  const double by_zeros = static_cast<double>(filled - count) / static_cast<double>(filled);
  for (std::size_t j = 0; j < count; ++j) sums[j] += by_zeros;
}

void TileAttention::score(const TileRows& rows, std::vector<double>& scores) {
  const std::size_t n = rows.keys.size() / rows.width;
  sums_.assign(n + 2, 0.0);  // a zero before the first token and after the last
  const std::span<double> sums = std::span(sums_).subspan(1, n);
  flops_ = 0;
  for (std::size_t first = 0; first < n; first += tile_) {
    const std::size_t count = std::min<std::size_t>(tile_, n - first);
    add_tile(rows, first, count, sums.subspan(first, count));
    flops_ += 2.0 * static_cast<double>(rows.width * rows.group * count * count);
  }
  const std::size_t v_width = rows.values.size() / std::max<std::size_t>(n, 1);
  for (std::size_t j = 0; j < n; ++j) sums[j] *= norm_of(rows.values.subspan(j * v_width, v_width));
  flops_ += 2.0 * static_cast<double>(rows.values.size());
  scores.resize(n);
  for (std::size_t j = 0; j < n; ++j) scores[j] = (sums_[j] + sums_[j + 1] + sums_[j + 2]) / 3;
}

void read_queries_of_last(HeadTensors& tensors, const PolicyContext& context, std::size_t n, std::vector<float>& out) {
  tensors.read_queries(context.prompt, out);
  const std::size_t row = context.group * tensors.key_width();
  check(out.size() >= n * row, "the queries of all tokens that a head holds after the prompt");
  out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(n * row));
}

}  // namespace kvroof
