#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/states.cuh"

namespace kvroof::cuda {
namespace {

unsigned parts(unsigned all, unsigned part) { return (all + part - 1) / part; }

template <unsigned kLanes>
void run_state_rule_by(Stream& stream, const StateRuleArguments& a) {
  const unsigned columns = parts(a.value_dim, kRuleThreads / kLanes);
  launch(stream, a.skip == nullptr ? &state_rule<kLanes, true> : &state_rule<kLanes, false>,
         {a.heads * columns, a.states.prompt ? 1 : a.tokens}, kRuleThreads, a);
}

}  // namespace

void run_convolve(Stream& stream, Stored weights, const ConvolveArguments& a) {
  launch(stream, weights == Stored::kBF16 ? &convolve<Stored::kBF16> : &convolve<Stored::kF16>,
         {a.tokens, parts(a.channels, kConvolveThreads)}, kConvolveThreads, a);
}

void run_state_rule(Stream& stream, const StateRuleArguments& a) {
  switch (parts(a.key_dim, kKeysOfLane)) {
    case 1: return run_state_rule_by<1>(stream, a);
    case 2: return run_state_rule_by<2>(stream, a);
    case 3:
    case 4: return run_state_rule_by<4>(stream, a);
    default: return run_state_rule_by<kMostStateKeys / kKeysOfLane>(stream, a);
  }
}

void run_gate_heads(Stream& stream, Stored weights, const GateArguments& a) {
  launch(stream, weights == Stored::kBF16 ? &gate_heads<Stored::kBF16> : &gate_heads<Stored::kF16>,
         {parts(a.tokens * a.heads, kGateThreads / 32)}, kGateThreads, a);
}

void run_gate_groups(Stream& stream, Stored weights, const GateArguments& a) {
  launch(stream, weights == Stored::kBF16 ? &gate_groups<Stored::kBF16> : &gate_groups<Stored::kF16>,
         {a.tokens, a.heads}, kGateThreads, a);
}

}  // namespace kvroof::cuda
