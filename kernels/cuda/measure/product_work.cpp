#include "kernels/cuda/measure/product_work.hpp"

#include <algorithm>

namespace kvroof::cuda {

double bytes_of(const Product& p, std::uint32_t tokens) {
  const double weights = 2.0 * p.rows * p.cols * (p.gated ? 2 : 1);
  return weights + 4.0 * tokens * (p.cols + double{1} * p.rows * (p.add ? 2 : 1));
}

double flops_of(const Product& p, std::uint32_t tokens) {
  return 2.0 * p.rows * p.cols * tokens * (p.gated ? 2 : 1);
}

Products::Products(std::vector<Product> products, std::uint32_t tokens, const CardFacts& card, CublasLt* library)
    : library_linear_(open_.get(), library, LinearBy::kCublasLt),
      split_k_(open_.get(), card.multiprocessors),
      by_library_(library != nullptr),
      products_(std::move(products)),
      tokens_(tokens),
      card_(card) {
  std::uint32_t widest = 0;
  for (const Product& p : products_) {
    at_.push_back(set_bytes_);
    set_bytes_ += (std::size_t{2} * p.rows * p.cols * (p.gated ? 2 : 1) + 255) / 256 * 256;
    widest = std::max({widest, p.rows, p.cols});
  }
  sets_ = pieces_of(set_bytes_, card);
  weights_ = noise(open_.get(), Noise::kBF16, 0.05F, sets_ * set_bytes_);
  vectors_ = noise(open_.get(), Noise::kF32, 1, std::size_t{8} * tokens * widest);
  out_at_ = std::size_t{4} * tokens * widest;
  if (library == nullptr && SplitKMemory::serves(tokens)) split_k_.reserve();
  scale_ = noise(open_.get(), Noise::kBF16, 1, std::size_t{2} * widest + 16);
}

void Products::launch(unsigned set) {
  for (std::size_t i = 0; i < products_.size(); ++i) {
    const Product& p = products_[i];
    const std::byte* w = weights_.at(set % sets_ * set_bytes_ + at_[i]);
    LinearArguments a;
    a.x = vectors_.at<float>();
    a.tokens = tokens_;
    if (p.norm != NormMode::kNone) {
      a.norm = p.norm;
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
    if (!by_library_) {
      split_k_.cut(Stored::kBF16, a);
      run_linear(open_.get(), Stored::kBF16, a);
    } else if (!library_linear_.run(Stored::kBF16, a)) {
      check_device(open_.get().problem, "launching products");
      throw Error(library_linear_.problem());
    }
  }
}

Measured Products::time(double seconds) {
  const unsigned all = std::max(static_cast<unsigned>(sets_), repetitions_for(set_bytes_, card_));
  TimedWork work(open_.get(), all, [&](unsigned i) { launch(i); }, weight_bytes());
  return measure(work, seconds);
}

double Products::flops() const {
  double sum = 0;
  for (const Product& p : products_) sum += flops_of(p, tokens_);
  return sum;
}

double Products::bytes() const {
  double sum = 0;
  for (const Product& p : products_) sum += bytes_of(p, tokens_);
  return sum;
}

}  // namespace kvroof::cuda
