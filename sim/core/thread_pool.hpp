// A fixed team of threads for parallel loops whose results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace kvroof {

class ThreadPool {
 public:
  // `threads` ≥ 1 counts the calling thread; 1 starts none.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] unsigned threads() const;

  // Calls body(i) once for each i in [0, count), on any thread of the team, and returns when all are done. The first
  // exception is rethrown on the calling thread. `body` must write only what belongs to i. Not reentrant.
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// --threads 0 or absent: the cores this process may use (its affinity mask), at least 1.
unsigned default_threads();

}  // namespace kvroof
