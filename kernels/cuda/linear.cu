#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_many.cuh"

namespace kvroof::cuda {
namespace {

template <Stored kType>
void run(Stream& stream, const LinearArguments& a) {
  const auto blocks = [&](unsigned rows) { return (a.w.rows + rows - 1) / rows; };
  constexpr unsigned kFew = kLinearWarps * kRowsOfWarp;
  if (a.tokens == 1) {
    launch(stream, &linear<kType, 1>, {blocks(kFew)}, kLinearThreads, a);
  } else if (a.tokens <= 4) {
    launch(stream, &linear<kType, 4>, {blocks(kFew)}, kLinearThreads, a);
  } else if (a.tokens <= 16) {
    launch(stream, &linear_many<kType, 16>, {blocks(kBlockRows)}, kLinearThreads, a);
  } else {
    launch(stream, &linear_many<kType, 64>, {blocks(kBlockRows), (a.tokens + 63) / 64}, kLinearThreads, a);
  }
}

}  // namespace

void run_linear(Stream& stream, Stored weights, const LinearArguments& a) {
  weights == Stored::kBF16 ? run<Stored::kBF16>(stream, a) : run<Stored::kF16>(stream, a);
}

}  // namespace kvroof::cuda
