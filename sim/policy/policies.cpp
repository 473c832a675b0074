// The table of all policies: a new policy is a new file and a line in each of the two lists here.
#include <algorithm>
#include <array>

#include "sim/policy/policy.hpp"

namespace kvroof {

extern const PolicyInfo kA2sfPolicy;
extern const PolicyInfo kAdaKvPolicy;
extern const PolicyInfo kChunkKvPolicy;
extern const PolicyInfo kCriticalKvPolicy;
extern const PolicyInfo kCurPolicy;
extern const PolicyInfo kD2oPolicy;
extern const PolicyInfo kDuoPolicy;
extern const PolicyInfo kExpectedAttentionPolicy;
extern const PolicyInfo kFastGenPolicy;
extern const PolicyInfo kFullPolicy;
extern const PolicyInfo kH2oMaskedPolicy;
extern const PolicyInfo kH2oPolicy;
extern const PolicyInfo kKeydiffPolicy;
extern const PolicyInfo kKeyformerPolicy;
extern const PolicyInfo kKeyformerRefcompatPolicy;
extern const PolicyInfo kKnormPolicy;
extern const PolicyInfo kKvCompressPolicy;
extern const PolicyInfo kLagkvPolicy;
extern const PolicyInfo kObservedAttentionPolicy;
extern const PolicyInfo kOracleCausalPolicy;
extern const PolicyInfo kOraclePolicy;
extern const PolicyInfo kPyramidKvPolicy;
extern const PolicyInfo kQuestPolicy;
extern const PolicyInfo kRandomPolicy;
extern const PolicyInfo kRkvPolicy;
extern const PolicyInfo kScissorhandsPolicy;
extern const PolicyInfo kScissorhandsRefcompatPolicy;
extern const PolicyInfo kSnapKvPolicy;
extern const PolicyInfo kStreamingPolicy;
extern const PolicyInfo kThresholdPolicy;
extern const PolicyInfo kTovaPolicy;
extern const PolicyInfo kWindowPolicy;

namespace {

struct Line {
  std::string_view name;
  const PolicyInfo* info;
};

constexpr std::array kLines = {
    Line{"a2sf", &kA2sfPolicy},
    Line{"adakv", &kAdaKvPolicy},
    Line{"chunkkv", &kChunkKvPolicy},
    Line{"criticalkv", &kCriticalKvPolicy},
    Line{"cur", &kCurPolicy},
    Line{"d2o", &kD2oPolicy},
    Line{"duo", &kDuoPolicy},
    Line{"expected-attention", &kExpectedAttentionPolicy},
    Line{"fastgen", &kFastGenPolicy},
    Line{"full", &kFullPolicy},
    Line{"h2o", &kH2oPolicy},
    Line{"h2o-masked", &kH2oMaskedPolicy},
    Line{"keydiff", &kKeydiffPolicy},
    Line{"keyformer", &kKeyformerPolicy},
    Line{"keyformer-refcompat", &kKeyformerRefcompatPolicy},
    Line{"knorm", &kKnormPolicy},
    Line{"kv-compress", &kKvCompressPolicy},
    Line{"lagkv", &kLagkvPolicy},
    Line{"observed-attention", &kObservedAttentionPolicy},
    Line{"oracle", &kOraclePolicy},
    Line{"oracle-causal", &kOracleCausalPolicy},
    Line{"pyramidkv", &kPyramidKvPolicy},
    Line{"quest", &kQuestPolicy},
    Line{"r-kv", &kRkvPolicy},
    Line{"random", &kRandomPolicy},
    Line{"scissorhands", &kScissorhandsPolicy},
    Line{"scissorhands-refcompat", &kScissorhandsRefcompatPolicy},
    Line{"snapkv", &kSnapKvPolicy},
    Line{"streaming", &kStreamingPolicy},
    Line{"threshold", &kThresholdPolicy},
    Line{"tova", &kTovaPolicy},
    Line{"window", &kWindowPolicy},
};
static_assert(std::ranges::is_sorted(kLines, std::ranges::less_equal(), &Line::name), "sorted by name, no name twice");

}  // namespace

std::span<const PolicyInfo> policy_table() {
  static const auto table = [] {
    std::array<PolicyInfo, kLines.size()> infos{};
    std::ranges::transform(kLines, infos.begin(), [](const Line& line) { return *line.info; });
    return infos;
  }();
  return table;
}

}  // namespace kvroof
