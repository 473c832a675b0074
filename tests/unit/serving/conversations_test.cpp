// Conversations: what prompts of later turns hold, what a prefix cache has of them, and when they come.
#include "sim/serving/conversations.hpp"

#include <algorithm>

#include "sim/serving/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/support/hand_costs.hpp"

namespace kvroof {
namespace {

using test::HandCosts;
using test::limits_of;

constexpr std::uint32_t kPage = ConversationBlocks::kTokens;

DrawnRequests drawn_turns(std::uint32_t count, std::uint32_t turns, double spread) {
  return {.count = count, .rate = 2, .turns = turns, .message = 30, .prompt = 100, .output = 50, .spread = spread,
          .seed = 5};
}

struct Talk {
  std::vector<Request> requests;
  PrefixTree tree;
};

// With blocks, none of which several conversations begin with.
Talk talk_of(std::vector<Request> requests) {
  PrefixTreeBuilder tree;
  std::optional<ConversationBlocks> blocks;
  for (Request& r : requests) {
    if (!r.follows) blocks.emplace(tree, kNoPrefix, 0);
    blocks->add(r);
  }
  return {std::move(requests), tree.take()};
}

ServingOutcome serve(const Talk& talk, PrefixCacheSetup cache, std::uint32_t clients = 0, double most = 1e9) {
  cache.tree = &talk.tree;
  ServingSetup setup{limits_of(64, 100000), 1, clients, cache};
  return simulate_serving(HandCosts(most), setup, talk.requests);
}

TEST_CASE("turns of conversations come at the rate of requests, a conversation at a time") {
  const std::vector<Request> turns = draw_requests(drawn_turns(8000, 4, 0.3));
  CHECK(turns.size() == 8000);
  CHECK(7999 / turns.back().arrival == Approx(2).epsilon(0.05));
  for (std::size_t i = 0; i < turns.size(); ++i) {
    REQUIRE(turns[i].turn == i % 4 + 1);
    REQUIRE(turns[i].follows == (i % 4 > 0));
    REQUIRE((!turns[i].follows || turns[i].arrival == turns[i - 1].arrival));
  }
}

TEST_CASE("a later prompt is all that was said and a message, until no turn has room") {
  std::vector<Request> turns = draw_requests(drawn_turns(7, 3, 0));
  CHECK(add_history(turns, 1000) == 0);
  std::vector<std::uint32_t> prompts;
  for (const Request& r : turns) prompts.push_back(r.prompt);
  CHECK(prompts == std::vector<std::uint32_t>{100, 180, 260, 100, 180, 260, 100});
  turns = draw_requests(drawn_turns(7, 3, 0));
  CHECK(add_history(turns, 309) == 2);  // 260 + 50 are one more
  CHECK(turns.size() == 5);
  CHECK_FALSE(turns[2].follows);
  turns = draw_requests(drawn_turns(7, 3, 0));
  CHECK(add_history(turns, 1) == 4);  // a first turn is always there
}

TEST_CASE("clients begin so that each turn is as frequent, and there is enough for them to send") {
  std::vector<Request> all = draw_requests(drawn_turns(100, 4, 0));
  add_history(all, 100000);
  CHECK(turns_for(24, 8, 4) == 24 + 12 + 8 * 3 + 4);
  const std::vector<Request> sent = turns_of_clients(all, 8, 24);
  REQUIRE(sent.size() == 24 + 8 * 3);
  std::vector<std::uint32_t> first, prompts;  // of the clients
  for (std::size_t i = 0; i < 20; ++i) {      // 4 + 3 + 2 + 1, twice
    if (!sent[i].follows) first.push_back(sent[i].turn), prompts.push_back(sent[i].prompt);
  }
  CHECK(first == std::vector<std::uint32_t>{1, 2, 3, 4, 1, 2, 3, 4});
  CHECK(prompts == std::vector<std::uint32_t>{100, 180, 260, 340, 100, 180, 260, 340});
  CHECK(sent[20].turn == 1);
  // Of requests that nothing follows these are the first.
  const std::vector<Request> plain = draw_requests(drawn_turns(9, 1, 0.3));
  CHECK(turns_of_clients(plain, 4, 6) == std::vector<Request>(plain.begin(), plain.begin() + 6));
}

TEST_CASE("a turn finds whole blocks of all that was computed before it: prompts, and answers but their last tokens") {
  std::vector<Request> turns = draw_requests(drawn_turns(60, 5, 0.6));
  add_history(turns, 100000);
  const Talk talk = talk_of(turns);
  std::uint64_t most = 1;  // blocks, with the root
  for (std::size_t i = 4; i < turns.size(); i += 5) {
    most += ConversationBlocks::most(turns[i].prompt + turns[i].output, 5);
  }
  CHECK(talk.tree.size() <= most);
  for (const bool lossless : {false, true}) {
    PrefixCacheSetup cache;
    cache.loses_nothing = lossless;
    const ServingOutcome o = serve(talk, cache);
    std::uint32_t said = 0;
    for (const ServedRequest& r : o.requests) {
      // In the order of arrival; turns of one conversation are told apart by what is before them.
      const auto before = std::ranges::find_if(o.requests, [&](const ServedRequest& b) {
        return r.request.follows && b.request.answered != kNoPrefix &&
               talk.tree.end(b.request.answered) == r.request.cached && b.request.turn + 1 == r.request.turn &&
               b.finished == r.request.arrival;
      });
      if (r.request.turn == 1) {
        CHECK(r.cached == 0);
        continue;
      }
      REQUIRE(before != o.requests.end());
      const std::uint32_t computed = before->request.prompt + before->request.output - 1;
      CHECK(r.cached == computed / kPage * kPage);
      CHECK(r.cached == r.request.cached);
      ++said;
    }
    CHECK(said == 48);
  }
}

TEST_CASE("what a conversation leaves is given up from its end, and takes what its tokens take") {
  // 96 + 33 tokens: six blocks of prompt, two of the answer, and a last token that no block has.
  // Another conversation is between that and its second turn.
  PrefixTreeBuilder tree;
  ConversationBlocks blocks(tree, kNoPrefix, 0), others(tree, kNoPrefix, 0);
  Talk talk{{{0, 6 * kPage, 2 * kPage + 1}, {100, 3 * kPage, 1}, {200, 8 * kPage + 9, 1}}, {}};
  blocks.add(talk.requests[0]);
  others.add(talk.requests[1]);
  blocks.add(talk.requests[2]);
  talk.tree = tree.take();
  const auto found = [&](double bytes) {
    PrefixCacheSetup cache;
    cache.most_bytes = bytes;
    return serve(talk, cache).requests[2].cached;
  };
  CHECK(found(1e9) == 8 * kPage);
  CHECK(found(11 * kPage) == 8 * kPage);  // 8 and 3
  CHECK(found(9 * kPage) == 6 * kPage);   // the answer went
  CHECK(found(8 * kPage) == 0);           // and the prompt, which is one block here
}

TEST_CASE("servers fall behind where many conversations wait, however many turns they have") {
  for (const double rate : {0.0005, 5.0}) {
    DrawnRequests drawn = drawn_turns(static_cast<std::uint32_t>(turns_for(2000, 0, 20)), 20, 0.1);
    drawn.rate = rate;
    std::vector<Request> turns = draw_requests(drawn);
    add_history(turns, 100000);
    const Talk talk = talk_of(turns);
    PrefixCacheSetup cache;
    cache.tree = &talk.tree;
    ServingSetup setup{limits_of(4, 100000), 1, 0, cache};
    setup.most_requests = 2000;
    const ServingOutcome o = simulate_serving(HandCosts(1e9), setup, talk.requests);
    CHECK(o.requests.size() == 2000);
    CHECK(falls_behind(o) == (rate > 1));
    CHECK(o.waiting_at_end <= 200);  // conversations that began
  }
}

TEST_CASE("copies that are kept beside what a policy holds are of prompts alone") {
  std::vector<Request> turns = draw_requests(drawn_turns(10, 5, 0));
  add_history(turns, 100000);
  const Talk talk = talk_of(turns);
  PrefixCacheSetup cache;
  cache.copies = true;
  for (const ServedRequest& r : serve(talk, cache).requests) {
    if (r.request.turn > 1) CHECK(r.cached == (r.request.prompt - 80) / kPage * kPage);
  }
}

TEST_CASE("clients that hold conversations ask as often as answers and pauses allow") {
  std::vector<Request> turns = draw_requests(drawn_turns(4000, 5, 0.3));
  add_history(turns, 100000);
  const Talk talk = talk_of(turns_of_clients(turns, 20, 3000));
  const std::vector<double> pauses = draw_pauses(3000, 400, 1);
  PrefixCacheSetup cache;
  cache.tree = &talk.tree;
  ServingSetup setup{limits_of(64, 100000), 1, 20, cache};
  setup.most_requests = 3000;
  setup.pauses = pauses;
  const ServingOutcome o = simulate_serving(HandCosts(1e9), setup, talk.requests);
  const ServingSummary s = summarise_serving(o);
  CHECK(s.requests_per_s == Approx(20 / (400 + s.whole.mean)).epsilon(0.05));
}

}  // namespace
}  // namespace kvroof
