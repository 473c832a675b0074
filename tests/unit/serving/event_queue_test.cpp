// The order of what happens in a simulation.
#include "sim/serving/event_queue.hpp"

#include "tests/catch.hpp"

namespace kvroof {
namespace {

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
  Arrivals arrivals({{2, 20, 5}, {3, 20, 5}}, 0, {}, served);
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
  Arrivals arrivals({{9, 20, 5}, {9, 20, 5}, {9, 20, 5}}, 2, {}, served);
  arrivals.take();
  arrivals.take();
  CHECK_FALSE(arrivals.more());
  arrivals.answered(2, 4.5);
  CHECK(arrivals.take() == 2);
  CHECK(served[1].request.arrival == 0);
  CHECK(served[2].request.arrival == 4.5);
  CHECK_FALSE(arrivals.more());
}

TEST_CASE("a client that pauses sends its next request so long after the answer, whoever was answered first") {
  std::vector<ServedRequest> served;
  const std::vector<double> pauses = {3, 1, 9, 2};
  Arrivals arrivals(std::vector<Request>(4, Request{0, 20, 5}), 2, pauses, served);
  EventQueue events;
  events.note(0, 2.0);
  CHECK(arrivals.come_before(events));  // the second client, after 1
  CHECK(arrivals.take() == 0);
  CHECK_FALSE(arrivals.come_before(events));
  arrivals.answered(1, 2.0);  // and waits for 9
  CHECK(arrivals.take() == 1);
  arrivals.answered(1, 5.0);  // for 2
  CHECK(arrivals.take() == 2);
  CHECK(arrivals.take() == 3);
  CHECK_FALSE(arrivals.more());
  const double came[] = {1, 3, 7, 11};
  for (std::size_t i = 0; i < 4; ++i) CHECK(served[i].request.arrival == came[i]);
}

}  // namespace
}  // namespace kvroof
