// Prompts that begin alike, by the names of their blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "sim/serving/prefix_tree.hpp"
#include "sim/serving/requests.hpp"

namespace kvroof::test {

using Ids = std::vector<std::uint64_t>;
inline constexpr std::uint32_t kBlock = 4;  // tokens

// Requests with the names of their blocks, all whole.
struct Prompts {
  std::vector<Request> requests;
  std::vector<Ids> ids;
  PrefixTree tree;
};

inline Prompts prompts_of(const std::vector<Ids>& ids, double apart, std::uint32_t output = 1) {
  Prompts prompts;
  PrefixTreeBuilder tree;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto tokens = static_cast<std::uint32_t>(ids[i].size()) * kBlock;
    Request request{apart * static_cast<double>(i), tokens, output};
    request.prefix = tree.add(ids[i], kBlock, tokens).last;
    prompts.requests.push_back(request);
  }
  prompts.ids = ids;
  prompts.tree = tree.take();
  return prompts;
}

// Random prompts that begin alike now and then: each goes on from a part of an earlier one, or anew.
inline std::vector<Ids> random_ids(std::mt19937& random, std::size_t count) {
  std::vector<Ids> all;
  std::uint64_t fresh = 0;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t i = 0; i < count; ++i) {
    Ids ids;
    if (i > 0 && below(4) > 0) {
      const Ids& earlier = all[below(2) > 0 ? i - 1 - below(std::min<std::size_t>(i, 4)) : below(i)];
      ids.assign(earlier.begin(), earlier.begin() + static_cast<std::ptrdiff_t>(below(earlier.size() + 1)));
    }
    for (std::size_t more = below(5) + (ids.empty() ? 1 : 0); more > 0; --more) ids.push_back(++fresh);
    all.push_back(ids);
  }
  return all;
}

}  // namespace kvroof::test
