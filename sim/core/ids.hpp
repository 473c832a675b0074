// Indices that cannot be swapped: a LayerId is not a HeadId, a slot is not a token position.
#pragma once

#include <compare>
#include <cstdint>

namespace kvroof {

template <class Tag>
struct Id {
  std::uint32_t value = 0;
  constexpr Id() = default;
  constexpr explicit Id(std::uint32_t v) : value(v) {}
  friend constexpr auto operator<=>(Id, Id) = default;
};

using LayerId = Id<struct LayerTag>;
using HeadId = Id<struct HeadTag>;   // a unit of KV storage unless a name says "query head"
using SlotId = Id<struct SlotTag>;   // a row of one head's KV cache
using TokenPos = Id<struct TokenTag>;  // position of a token in its sequence, from 0
using StepId = Id<struct StepTag>;   // 0 is the prompt, i the i-th decoded token

}  // namespace kvroof
