#include "sim/policy/shared_slots.hpp"

#include <algorithm>
#include <numeric>

namespace kvroof {
namespace {

// One head's claim on the slots of the layer.
struct Claim {
  float score;
  std::uint32_t head;
  std::uint32_t rank;  // by position
};

// Appends the claims that a head has beside its `safe` best.
void add_claims(std::span<const float> scores, std::uint32_t head, std::size_t safe, std::vector<Claim>& claims) {
  std::vector<std::uint32_t> ranks(scores.size());
  std::iota(ranks.begin(), ranks.end(), 0U);
  safe = std::min(safe, ranks.size());
  if (safe > 0) {
    const auto end = ranks.begin() + static_cast<std::ptrdiff_t>(safe);
    std::nth_element(ranks.begin(), end, ranks.end(), [&](std::uint32_t a, std::uint32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
    });
  }
  for (const std::uint32_t rank : std::span(ranks).subspan(safe)) claims.push_back({scores[rank], head, rank});
}

}  // namespace

std::vector<std::uint32_t> share_slots(std::span<const std::span<const float>> scores, std::size_t safe,
                                       std::size_t open) {
  std::vector<Claim> claims;
  for (std::uint32_t h = 0; h < scores.size(); ++h) add_claims(scores[h], h, safe, claims);
  const auto end = claims.begin() + static_cast<std::ptrdiff_t>(std::min(open, claims.size()));
  std::nth_element(claims.begin(), end, claims.end(), [](const Claim& a, const Claim& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.rank != b.rank ? a.rank > b.rank : a.head > b.head;
  });
  std::vector<std::uint32_t> slots(scores.size(), static_cast<std::uint32_t>(safe));
  for (auto claim = claims.begin(); claim != end; ++claim) ++slots[claim->head];
  return slots;
}

std::size_t safe_slots(double safeguard, std::uint32_t k) {
  if (safeguard == 0) return 0;
  return std::max<std::size_t>(1, static_cast<std::size_t>(k * safeguard));
}

}  // namespace kvroof
