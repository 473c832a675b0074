#include "sim/core/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace kvroof {

namespace {

// Waits a while before somebody sleeps.
template <class Condition>
void yield_while(const Condition& condition) {
  for (int spin = 0; spin < 2000 && condition(); ++spin) std::this_thread::yield();
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::vector<std::thread> workers;
  const std::function<void(std::size_t)>* body = nullptr;
  std::size_t count = 0;
  std::atomic<std::size_t> next{0};
  std::atomic<std::uint64_t> generation{0};
  std::atomic<std::size_t> busy{0};
  std::exception_ptr first_error;
  bool stopping = false;

  void work() {
    try {
      for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) (*body)(i);
    } catch (...) {
      next.store(count);
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void run_worker() {
    std::uint64_t seen = 0;
    for (;;) {
      // Decode steps follow each other within microseconds.
      yield_while([&] { return generation.load(std::memory_order_acquire) == seen; });
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stopping || generation.load() != seen; });
        if (stopping) return;
        seen = generation.load();
      }
      work();
      if (busy.fetch_sub(1) == 1) {
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(unsigned threads) : state_(std::make_unique<State>()) {
  try {
    for (unsigned i = 1; i < std::max(1U, threads); ++i) {
      state_->workers.emplace_back([state = state_.get()] { state->run_worker(); });
    }
  } catch (...) {  // no thread is to be had any more: those that run must not outlive what they work on
    state_->stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

unsigned ThreadPool::threads() const { return static_cast<unsigned>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(std::size_t count, const std::function<void(std::size_t)>& body) {
  if (state_->workers.empty() || count <= 1) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->body = &body;
    state_->count = count;
    state_->next.store(0);
    state_->busy.store(state_->workers.size());
    state_->first_error = nullptr;
    state_->generation.fetch_add(1);
  }
  state_->wake.notify_all();
  state_->work();
  // The others finish within microseconds as well; a wake-up would cost more than their rest.
  yield_while([&] { return state_->busy.load(std::memory_order_acquire) != 0; });
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [&] { return state_->busy.load() == 0; });
  if (state_->first_error) std::rethrow_exception(state_->first_error);
}

unsigned default_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1U, static_cast<unsigned>(CPU_COUNT(&set)));
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace kvroof
