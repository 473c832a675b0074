// A sink for a recording that must begin before the place for its records is there.
#pragma once

#include <condition_variable>
#include <mutex>

#include "traces/forwarding_sink.hpp"
#include "traces/null_sink.hpp"

namespace kvroof {

// Whoever adds a record waits until there is a place for it; records that come after close() without one are dropped.
class LateSink final : public ForwardingSink {
 public:
  LateSink() = default;
  ~LateSink() override { close(); }
  LateSink(const LateSink&) = delete;
  LateSink& operator=(const LateSink&) = delete;

  void attach(ProfileSink& sink) { settle(sink); }
  void close() { settle(nowhere_); }

 private:
  ProfileSink& to() override {
    std::unique_lock lock(mutex_);
    settled_.wait(lock, [this] { return sink_ != nullptr; });
    return *sink_;
  }
  void settle(ProfileSink& sink) {
    {
      const std::lock_guard lock(mutex_);
      if (sink_ == nullptr) sink_ = &sink;
    }
    settled_.notify_all();
  }

  NullSink nowhere_;
  std::mutex mutex_;
  std::condition_variable settled_;
  ProfileSink* sink_ = nullptr;
};

}  // namespace kvroof
