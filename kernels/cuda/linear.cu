#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_append.cuh"
#include "kernels/cuda/linear_many.cuh"
#include "kernels/cuda/linear_rows.cuh"

namespace kvroof::cuda {
namespace {

// With so many rows a block a multiprocessor remains where a warp has sixteen of them to itself; with fewer, four warps
// share them.
constexpr unsigned kManyRows = 16384;
constexpr unsigned kSplit = 4;

unsigned parts(unsigned all, unsigned part) { return (all + part - 1) / part; }

// Launches as many blocks of few_products as make all rows in equal rounds, all blocks at once.
template <auto kKernel, class Arguments>
void launch_few(Stream& stream, const LinearArguments& linear, const Arguments& a) {
  static const unsigned resident = resident_blocks(kKernel, kLinearThreads);  // asked once: a step has many launches
  const unsigned rounds = parts(linear.w.rows, rows_of_round(linear));
  const unsigned most = stream.multiprocessors * resident;
  launch(stream, kKernel, {most == 0 ? rounds : parts(rounds, parts(rounds, most))}, kLinearThreads, a);
}

template <Stored kType>
void run_routed(Stream& stream, const LinearArguments& a) {
  if (a.tokens <= kFewPairs) {
    return launch(stream, &linear_of_pairs<kType>, {parts(a.w.rows, rows_of_round(a)), a.tokens}, kLinearThreads, a);
  }
  const Grid grid = {a.routed.most_tiles, parts(a.w.rows, kBlockRows)};
  if (tile_pairs(a.tokens) == kSmallTile) {
    launch(stream, &linear_many<kType, kSmallTile, 1>, grid, kLinearThreads, a);
  } else {
    launch(stream, &linear_many<kType, kLargeTile, 1>, grid, kLinearThreads, a);
  }
}

template <Stored kType>
void run(Stream& stream, const LinearArguments& a) {
  if (a.routed.chosen != nullptr) return run_routed<kType>(stream, a);
  const auto blocks = [&](unsigned rows) { return parts(a.w.rows, rows); };
  const unsigned heads = a.heads.count > 0 ? a.heads.count : 1;
  if (a.heads.count > 0 && a.tokens <= kFewTokens) {
    launch(stream, &linear_of_heads<kType>, {blocks(rows_of_round(a)), a.tokens * heads}, kLinearThreads, a);
  } else if (a.tokens == 1) {
    launch_few<&linear<kType, 1>>(stream, a, a);
  } else if (a.tokens <= kFewTokens) {
    launch_few<&linear<kType, kFewTokens>>(stream, a, a);
  } else if (a.tokens <= kSmallTile && a.w.rows * heads < kManyRows) {
    launch(stream, &linear_many<kType, kSmallTile, kSplit>, {blocks(kRowsOfBlock<kSplit>) * heads}, kLinearThreads, a);
  } else if (a.tokens <= kSmallTile) {
    launch(stream, &linear_many<kType, kSmallTile, 1>, {blocks(kBlockRows) * heads}, kLinearThreads, a);
  } else {
    const unsigned tiles = parts(a.tokens, kLargeTile);
    launch(stream, &linear_many<kType, kLargeTile, 1>, {blocks(kBlockRows) * heads, tiles * a.split_k.splits},
           kLinearThreads, a);
  }
}

template <Stored kType>
void run_append(Stream& stream, const AppendArguments& a) {
  const auto blocks = [&](unsigned rows) { return parts(a.linear.w.rows, rows); };
  if (a.linear.tokens == 1) {
    launch_few<&linear_append<kType, 1>>(stream, a.linear, a);
  } else if (a.linear.tokens <= kFewTokens) {
    launch_few<&linear_append<kType, kFewTokens>>(stream, a.linear, a);
  } else if (a.linear.tokens <= kSmallTile && a.linear.w.rows < kManyRows) {
    launch(stream, &linear_many_append<kType, kSmallTile, kSplit>, {blocks(kRowsOfBlock<kSplit>)}, kLinearThreads, a);
  } else if (a.linear.tokens <= kSmallTile) {
    launch(stream, &linear_many_append<kType, kSmallTile, 1>, {blocks(kBlockRows)}, kLinearThreads, a);
  } else {
    const unsigned shares = kType == Stored::kBF16 ? a.linear.split_k.splits : 1;  // linear_many_append
    launch(stream, &linear_many_append<kType, kMostAppended, 1>, {blocks(kBlockRows), shares}, kLinearThreads, a);
  }
}

void run_norms(Stream& stream, Stored weights, LinearArguments& a) {
  // Kernels for so many tokens have the norm wait (norm_waits): made before, it would be taken twice.
  if (weights == Stored::kBF16 && a.norm == NormMode::kRms && a.tokens > kFewTokens) a.norms = nullptr;
  if (a.norms != nullptr) launch(stream, &make_norms, {a.tokens}, kLinearThreads, a);
}

}  // namespace

void run_choose_experts(Stream& stream, const RouteArguments& a) {
  launch(stream, &choose_experts, {parts(a.tokens, kRouteThreads / 32)}, kRouteThreads, a);
}

void run_group_pairs(Stream& stream, const GroupArguments& a) {
  launch(stream, &group_pairs, {a.experts}, kGroupThreads, a);
}

void run_add_pairs(Stream& stream, const AddPairsArguments& a) {
  launch(stream, &add_pairs, {a.tokens}, kRouteThreads, a);
}

void run_round_vectors(Stream& stream, Stored weights, const ProductArguments& a) {
  launch(stream, weights == Stored::kBF16 ? &round_vectors<Stored::kBF16> : &round_vectors<Stored::kF16>,
         {a.linear.tokens}, kLinearRowThreads, a);
}

void run_finish_products(Stream& stream, Stored weights, const ProductArguments& a) {
  launch(stream, weights == Stored::kBF16 ? &finish_products<Stored::kBF16> : &finish_products<Stored::kF16>,
         {a.linear.tokens, parts(a.linear.w.rows, kFinishedRows)}, kLinearRowThreads, a);
}

void run_linear(Stream& stream, Stored weights, LinearArguments a) {
  set_steps(a);
  run_norms(stream, weights, a);
  weights == Stored::kBF16 ? run<Stored::kBF16>(stream, a) : run<Stored::kF16>(stream, a);
}

void run_linear_append(Stream& stream, Stored weights, AppendArguments a) {
  set_steps(a.linear);
  run_norms(stream, weights, a.linear);
  weights == Stored::kBF16 ? run_append<Stored::kBF16>(stream, a) : run_append<Stored::kF16>(stream, a);
}

}  // namespace kvroof::cuda
