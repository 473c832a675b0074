#include "sim/serving/prefix_tree.hpp"

#include <algorithm>

namespace kvroof {

PrefixBlock PrefixTreeBuilder::child(PrefixBlock parent, std::uint64_t id, std::uint32_t end) {
  const auto next = static_cast<PrefixBlock>(tree_.nodes_.size());
  const auto [at, is_new] = children_.try_emplace({parent, id}, next);
  if (is_new) tree_.nodes_.push_back({parent, end});
  PrefixTree::Node& node = tree_.nodes_[at->second];
  node.end = std::max(node.end, end);
  return at->second;
}

PrefixTreeBuilder::Path PrefixTreeBuilder::add(std::span<const std::uint64_t> ids, std::uint32_t block_tokens,
                                               std::uint32_t prompt) {
  const std::size_t before = tree_.size();
  Path path;
  std::uint32_t end = 0;
  for (const std::uint64_t id : ids) {
    if (end == prompt) break;  // more names than blocks
    end += std::min(block_tokens, prompt - end);
    path.last = child(path.last, id, end);
    if (path.last < before) path.known = end;
  }
  return path;
}

}  // namespace kvroof
