// The table of all policies: a new policy is a new file and a line here.
#include <algorithm>
#include <vector>

#include "sim/policy/policy.hpp"

#define KVROOF_POLICIES(line) \
  line(kA2sfPolicy) \
  line(kAdaKvPolicy) \
  line(kCakePolicy) \
  line(kCapKvPolicy) \
  line(kChunkKvPolicy) \
  line(kCompactorPolicy) \
  line(kCriticalKvPolicy) \
  line(kCurPolicy) \
  line(kD2oPolicy) \
  line(kDuoPolicy) \
  line(kEntropyGatedChunkKvPolicy) \
  line(kExpectedAttentionPolicy) \
  line(kFastGenPolicy) \
  line(kFinchPolicy) \
  line(kFullPolicy) \
  line(kH2oPolicy) \
  line(kH2oMaskedPolicy) \
  line(kKeydiffPolicy) \
  line(kKeyformerPolicy) \
  line(kKeyformerRefcompatPolicy) \
  line(kKnormPolicy) \
  line(kKvCompressPolicy) \
  line(kKvZipPolicy) \
  line(kLagkvPolicy) \
  line(kLeveragePolicy) \
  line(kNonCausalPolicy) \
  line(kObservedAttentionPolicy) \
  line(kOraclePolicy) \
  line(kOracleCausalPolicy) \
  line(kPyramidKvPolicy) \
  line(kQFiltersPolicy) \
  line(kQuestPolicy) \
  line(kRkvPolicy) \
  line(kRandomPolicy) \
  line(kRoCoPolicy) \
  line(kScissorhandsPolicy) \
  line(kScissorhandsRefcompatPolicy) \
  line(kScoresPolicy) \
  line(kSimLayerKvPolicy) \
  line(kSnapKvPolicy) \
  line(kStreamingPolicy) \
  line(kThresholdPolicy) \
  line(kTovaPolicy) \
  line(kVatpPolicy) \
  line(kWindowPolicy)

namespace kvroof {

#define KVROOF_DECLARE(info) extern const PolicyInfo info;
KVROOF_POLICIES(KVROOF_DECLARE)

std::span<const PolicyInfo> policy_table() {
  static const auto table = [] {
#define KVROOF_ENTRY(info) info,
    std::vector<PolicyInfo> infos = {KVROOF_POLICIES(KVROOF_ENTRY)};
    std::ranges::sort(infos, {}, &PolicyInfo::name);
    return infos;
  }();
  return table;
}

}  // namespace kvroof
