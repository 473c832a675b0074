// What prompts share: a tree of blocks, in which a prompt is the path from the root to its last block. Blocks are as
// long as whoever says what is alike tells apart: 512 tokens in Mooncake's traces, 16 in Bailian's.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace kvroof {

// A block of a tree; children have higher numbers than their parents.
using PrefixBlock = std::uint32_t;
inline constexpr PrefixBlock kNoPrefix = 0;  // the root: nothing of a prompt

class PrefixTree {
 public:
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] PrefixBlock parent(PrefixBlock block) const { return nodes_[block].parent; }
  // Tokens from the prompt's first to the block's last.
  [[nodiscard]] std::uint32_t end(PrefixBlock block) const { return nodes_[block].end; }
  [[nodiscard]] std::uint32_t tokens(PrefixBlock block) const { return end(block) - end(parent(block)); }

 private:
  friend class PrefixTreeBuilder;
  struct Node {
    PrefixBlock parent = kNoPrefix;
    std::uint32_t end = 0;
  };
  std::vector<Node> nodes_ = {{}};
};

class PrefixTreeBuilder {
 public:
  [[nodiscard]] std::size_t size() const { return tree_.size(); }
  // The child of `parent` that is called `id`; a new one if there is none.
  PrefixBlock child(PrefixBlock parent, std::uint64_t id, std::uint32_t end);
  // The last block of a prompt whose blocks, of `block_tokens` each, have these names; the last may be shorter. Of two
  // blocks with one name and one past the longer counts.
  struct Path {
    PrefixBlock last = kNoPrefix;
    std::uint32_t known = 0;  // leading tokens of the prompt that were in the tree before
  };
  Path add(std::span<const std::uint64_t> ids, std::uint32_t block_tokens, std::uint32_t prompt);

  PrefixTree take() { return std::move(tree_); }

 private:
  struct Key {
    PrefixBlock parent;
    std::uint64_t id;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct HashOfKey {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>((key.id * 0x9e3779b97f4a7c15U ^ key.parent) * 0xff51afd7ed558ccdU >> 7U);
    }
  };

  PrefixTree tree_;
  std::unordered_map<Key, PrefixBlock, HashOfKey> children_;
};

}  // namespace kvroof
