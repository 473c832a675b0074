// What policies ask of the program that hosts them, beside rows of attention to observe and slots to free.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

namespace kvroof {

struct PolicySpec;

// In the order in which a host that lacks several of them names one.
enum class HostNeed : std::uint8_t {
  kSelecting,         // reads a part of what it keeps (select())
  kSlotPositions,     // while decoding, attention takes query and keys to stand where they lie among the tokens held
  kMerging,           // survivors take up tokens that go (merge())
  kWholeModel,        // decides for all layers at once
  kAllRows,           // is no method but a bound: it knows rows before they are there
  kFuture,            // PolicyContext::future
  kTokenKinds,        // PolicyContext::token_kinds
  kOutputProjection,  // PolicyContext::output_projection
  kRepetition,        // PolicySpec::token_scores, of passes in which the model repeats the prompt
};

// A set of them: what a policy asks for (PolicyTraits::host_needs()), or what a host serves. A host says what it
// serves, so that what is new is refused until somebody has made it serve that.
class HostNeeds {
 public:
  constexpr HostNeeds() = default;
  constexpr HostNeeds(std::initializer_list<HostNeed> needs) {
    for (const HostNeed need : needs) add(need);
  }

  constexpr void add(HostNeed need, bool asked = true) {
    if (asked) bits_ |= bit(need);
  }
  [[nodiscard]] constexpr bool has(HostNeed need) const { return (bits_ & bit(need)) != 0; }
  [[nodiscard]] constexpr HostNeeds without(HostNeeds served) const {
    HostNeeds left;
    left.bits_ = bits_ & ~served.bits_;
    return left;
  }
  [[nodiscard]] constexpr std::optional<HostNeed> first() const {
    for (unsigned i = 0; i < 32; ++i) {
      if ((bits_ >> i & 1U) != 0) return static_cast<HostNeed>(i);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::uint32_t bit(HostNeed need) { return 1U << static_cast<unsigned>(need); }

  std::uint32_t bits_ = 0;
};

// Whether the policy asks for this beside what its other traits tell of.
bool asks_for(const PolicySpec& policy, HostNeed need);

// "policy d2o, which merges tokens": what a host that serves only so much does not run; nothing: it runs the policy.
std::optional<std::string> unserved(const PolicySpec& policy, HostNeeds served);

}  // namespace kvroof
