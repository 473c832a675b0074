// Conversations: requests that follow each other, each with all that was said before in its prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/serving/requests.hpp"

namespace kvroof {

// What was said before, but for thoughts, becomes part of the prompts of turns that follow, which were messages until
// then. A turn of more tokens than `longest` with its answer ends its conversation before it; those that are left out
// are counted.
std::size_t add_history(std::vector<Request>& turns, std::uint64_t longest);

// What clients send who are in the middle of something when they are looked at first: of the first so many
// conversations, one each, none, one, two … turns are over, so that a turn is as likely as any other. As many as are
// enough for `sent` requests, whoever sends them.
std::vector<Request> turns_of_clients(std::span<const Request> turns, std::uint32_t clients, std::size_t sent);
// Turns that are enough to have so many requests sent: those before the clients began, and after they end, as well.
// Without clients, of conversations that go on beginning, half of which may be under way when the last request comes.
std::uint64_t turns_for(std::uint64_t sent, std::uint32_t clients, std::uint32_t turns);

// Adds the blocks of a conversation to a tree, turn by turn.
class ConversationBlocks {
 public:
  // Of the blocks that a cache has, whole ones are found: vLLM's have so many tokens.
  static constexpr std::uint32_t kTokens = 16;

  // At most so many blocks are added for a conversation of so many tokens.
  static std::uint64_t most(std::uint64_t tokens, std::uint64_t turns) { return tokens / kWhole + 3 * turns; }

  // `begins`: the last block of what others begin with as well.
  ConversationBlocks(PrefixTreeBuilder& tree, PrefixBlock begins, std::uint32_t tokens)
      : tree_(tree), last_(begins), end_(tokens) {}
  // Sets the blocks of the next turn, and what a cache that loses nothing has of its prompt. The answer's last token is
  // in no block: nothing was computed from it.
  void add(Request& turn);

 private:
  // Blocks are longer than an engine's, so that histories are walked in few steps: a cache gives them up as wholes.
  static constexpr std::uint32_t kWhole = 16 * kTokens;

  // The last block that ends by so many tokens, all of which are there then.
  PrefixBlock extend(std::uint32_t tokens);
  PrefixBlock own_child(std::uint32_t end);

  PrefixTreeBuilder& tree_;
  PrefixBlock last_;   // whole blocks of the last answer
  std::uint32_t end_;
};

}  // namespace kvroof
