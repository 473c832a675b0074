#include "sim/policy/host_needs.hpp"

#include <fmt/format.h>

#include "sim/core/error.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

static const char* text_of(HostNeed need) {
  switch (need) {
    case HostNeed::kSelecting: return ", which reads a part of what it keeps";
    case HostNeed::kSlotPositions: return " with positions=slot";
    case HostNeed::kMerging: return ", which merges tokens";
    case HostNeed::kWholeModel: return ", which decides for all layers at once";
    case HostNeed::kAllRows:
    case HostNeed::kFuture: return ", which looks ahead";
    case HostNeed::kTokenKinds: return ", which tells kinds of tokens apart";
    case HostNeed::kOutputProjection: return ", which looks at the output projection";
    case HostNeed::kRepetition: return ", which has the model repeat the prompt";
  }
  check(false, "every need has a text");
  return "";
}

HostNeeds PolicyTraits::host_needs() const {
  HostNeeds all = needs;
  all.add(HostNeed::kSelecting, selects);
  all.add(HostNeed::kMerging, merges);
  all.add(HostNeed::kWholeModel, scope == Scope::kModel);
  all.add(HostNeed::kAllRows, bound);
  return all;
}

bool asks_for(const PolicySpec& policy, HostNeed need) {
  return policy_info(policy.name).traits(policy).needs.has(need);
}

std::optional<std::string> unserved(const PolicySpec& policy, HostNeeds served) {
  const HostNeeds asked = policy_info(policy.name).traits(policy).host_needs();
  const auto lacking = asked.without(served).first();
  if (!lacking) return std::nullopt;
  return fmt::format("policy {}{}", policy.name, text_of(*lacking));
}

}  // namespace kvroof
