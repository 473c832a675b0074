#include "sim/serving/conversations.hpp"

#include <algorithm>
#include <utility>

namespace kvroof {

std::size_t add_history(std::vector<Request>& turns, std::uint64_t longest) {
  std::vector<Request> kept;
  kept.reserve(turns.size());
  std::uint64_t said = 0;
  bool over = false;
  for (Request turn : turns) {
    if (!turn.follows) said = 0, over = false;
    const std::uint64_t prompt = said + turn.prompt;
    said = prompt + turn.output - turn.thoughts;
    over = over || (turn.follows && prompt + turn.output > longest);
    if (over) continue;
    turn.prompt = static_cast<std::uint32_t>(prompt);
    kept.push_back(turn);
  }
  const std::size_t left_out = turns.size() - kept.size();
  turns = std::move(kept);
  return left_out;
}

std::vector<Request> turns_of_clients(std::span<const Request> turns, std::uint32_t clients, std::size_t sent) {
  std::uint32_t longest = 1;
  for (const Request& turn : turns) longest = std::max(longest, turn.turn);
  const std::size_t most = sent + std::size_t{clients} * (longest - 1);  // all of them may be in their first turn
  std::vector<Request> theirs;
  std::uint32_t conversation = 0;
  for (std::size_t i = 0; i < turns.size() && theirs.size() < most; ++conversation) {
    std::size_t end = i + 1;
    while (end < turns.size() && turns[end].follows) ++end;
    const std::size_t over = conversation < clients ? std::min<std::size_t>(conversation % longest, end - i - 1) : 0;
    for (std::size_t turn = i + over; turn < end && theirs.size() < most; ++turn) {
      theirs.push_back(turns[turn]);
      if (turn == i + over) theirs.back().follows = false;
    }
    i = end;
  }
  return theirs;
}

std::uint64_t turns_for(std::uint64_t sent, std::uint32_t clients, std::uint32_t turns) {
  const std::uint64_t before = (std::uint64_t{clients} * (turns - 1) + 1) / 2;
  return clients > 0 ? sent + before + std::uint64_t{clients} * (turns - 1) + turns : 2 * sent;
}

PrefixBlock ConversationBlocks::extend(std::uint32_t tokens) {
  const std::uint32_t whole = tokens / kTokens * kTokens;
  while (end_ < whole) {
    end_ = std::min(end_ + kWhole, whole);
    last_ = own_child(end_);
  }
  return last_;
}

// Behind the last block, and of no other conversation: named as no block is that others share.
PrefixBlock ConversationBlocks::own_child(std::uint32_t end) {
  return tree_.child(last_, std::uint64_t{1} << 32U | tree_.size(), end);
}

void ConversationBlocks::add(Request& turn) {
  turn.cached = std::min(end_, turn.prompt - 1);
  turn.prefix = extend(turn.prompt);
  if (end_ < turn.prompt) turn.prefix = own_child(turn.prompt);
  // Behind thoughts nothing is where later prompts have it.
  turn.answered = extend(turn.thoughts > 0 ? turn.prompt : turn.prompt + turn.output - 1);
}

}  // namespace kvroof
