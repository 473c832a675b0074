// The order of what happens in a simulation.
#include "sim/serving/event_queue.hpp"

#include <initializer_list>

#include "tests/catch.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kAll = 100;
using Event = std::pair<double, std::size_t>;

TEST_CASE("of events the earliest comes first, and of those at one time the lowest number") {
  EventQueue events;
  events.note(7, 2.0);
  events.note(3, 5.0);
  events.note(1, 2.0);
  CHECK(events.next() == Event{2, 1});
  events.note(1, 6.0);  // in place of what was noted
  CHECK(events.next() == Event{2, 7});
  events.note(7, std::nullopt);
  CHECK(events.next() == Event{5, 3});
  events.note(3, std::nullopt);
  events.note(1, std::nullopt);
  CHECK(events.empty());
}

TEST_CASE("a request comes before an event at the same time") {
  std::vector<ServedRequest> served;
  Arrivals arrivals({{2, 20, 5}, {3, 20, 5}}, 0, {}, kAll, served);
  EventQueue events;
  CHECK(arrivals.come_before(events));
  events.note(0, 2.0);
  CHECK(arrivals.come_before(events));
  CHECK(arrivals.take() == 0);
  CHECK_FALSE(arrivals.come_before(events));
  CHECK(arrivals.is_last());
  CHECK(arrivals.take() == 1);
  CHECK_FALSE(arrivals.more());
}

TEST_CASE("a client sends its next request when the one before is answered, as long as there are some") {
  std::vector<ServedRequest> served;
  Arrivals arrivals({{9, 20, 5}, {9, 20, 5}, {9, 20, 5}}, 2, {}, kAll, served);
  arrivals.take();
  arrivals.take();
  CHECK_FALSE(arrivals.more());
  arrivals.answered(std::vector<std::size_t>{0, 1}, 4.5);
  CHECK(arrivals.take() == 2);
  CHECK(served[1].request.arrival == 0);
  CHECK(served[2].request.arrival == 4.5);
  CHECK_FALSE(arrivals.more());
}

TEST_CASE("a client that pauses sends its next request so long after the answer, whoever was answered first") {
  std::vector<ServedRequest> served;
  const std::vector<double> pauses = {3, 1, 9, 2};
  Arrivals arrivals(std::vector<Request>(4, Request{0, 20, 5}), 2, pauses, kAll, served);
  EventQueue events;
  events.note(0, 2.0);
  CHECK(arrivals.come_before(events));  // the second client, after 1
  CHECK(arrivals.take() == 0);
  CHECK_FALSE(arrivals.come_before(events));
  arrivals.answered(std::vector<std::size_t>{0}, 2.0);  // and waits for 9
  CHECK(arrivals.take() == 1);
  arrivals.answered(std::vector<std::size_t>{1}, 5.0);  // for 2
  CHECK(arrivals.take() == 2);
  CHECK(arrivals.take() == 3);
  CHECK_FALSE(arrivals.more());
  const double came[] = {1, 3, 7, 11};
  for (std::size_t i = 0; i < 4; ++i) CHECK(served[i].request.arrival == came[i]);
}

// Conversations of so many turns, which begin at those times.
std::vector<Request> conversations(std::initializer_list<std::pair<double, std::uint32_t>> of) {
  std::vector<Request> requests;
  for (const auto& [arrival, turns] : of) {
    for (std::uint32_t turn = 1; turn <= turns; ++turn) {
      requests.push_back({arrival, 20, 5});
      requests.back().turn = turn;
      requests.back().follows = turn > 1;
    }
  }
  return requests;
}

TEST_CASE("a turn comes so long after the answer before it, between what comes by itself") {
  std::vector<ServedRequest> served;
  const std::vector<double> pauses = {2, 4};
  Arrivals arrivals(conversations({{0, 2}, {5, 2}, {6, 1}}), 0, pauses, kAll, served);
  CHECK(arrivals.take() == 0);
  arrivals.answered(std::vector<std::size_t>{0}, 1.5);
  CHECK(arrivals.take() == 1);  // at 3.5
  CHECK(served[1].request.arrival == 3.5);
  CHECK_FALSE(arrivals.is_last());
  CHECK(arrivals.take() == 2);
  CHECK(arrivals.is_last());  // whatever follows
  arrivals.answered(std::vector<std::size_t>{1, 2}, 5.5);
  CHECK(arrivals.take() == 4);
  CHECK_FALSE(arrivals.is_last());
  CHECK(arrivals.take() == 3);
  CHECK(served[3].request.arrival == 5.5 + 4);
  CHECK_FALSE(arrivals.more());
  arrivals.end();
  double before = 0;
  for (const ServedRequest& r : served) {
    CHECK(r.request.arrival >= before);
    before = r.request.arrival;
  }
}

TEST_CASE("a client goes on with its own conversation, and begins the next one when that is over") {
  std::vector<ServedRequest> served;
  Arrivals arrivals(conversations({{0, 3}, {0, 1}, {0, 2}}), 2, {}, kAll, served);
  CHECK(arrivals.take() == 0);
  CHECK(arrivals.take() == 3);
  CHECK_FALSE(arrivals.more());
  arrivals.answered(std::vector<std::size_t>{0}, 1);
  CHECK(arrivals.take() == 1);
  arrivals.answered(std::vector<std::size_t>{3}, 2);
  CHECK(arrivals.take() == 4);  // the second client's next
  arrivals.answered(std::vector<std::size_t>{1, 4}, 3);
  CHECK(arrivals.take() == 2);
  CHECK(arrivals.take() == 5);
  arrivals.answered(std::vector<std::size_t>{2, 5}, 4);
  CHECK_FALSE(arrivals.more());
}

TEST_CASE("after as many requests as are sent none comes, whatever follows, and others are gone") {
  std::vector<ServedRequest> served;
  Arrivals arrivals(conversations({{0, 3}, {0, 2}, {0, 2}}), 2, {}, 4, served);
  CHECK(arrivals.take() == 0);
  CHECK(arrivals.take() == 3);
  arrivals.answered(std::vector<std::size_t>{0, 3}, 1);
  CHECK(arrivals.take() == 1);
  CHECK(arrivals.is_last());
  CHECK(arrivals.take() == 4);
  arrivals.answered(std::vector<std::size_t>{1, 4}, 2);
  CHECK_FALSE(arrivals.more());
  served[4].finished = 9;
  arrivals.end();
  CHECK(served.size() == 4);
  CHECK(served[3].finished == 9);
}

}  // namespace
}  // namespace kvroof
