// A sink for a recording that must begin before the place for its records is there.
#pragma once

#include <condition_variable>
#include <mutex>

#include "traces/forwarding_sink.hpp"

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
  class Nowhere final : public ProfileSink {
   public:
    void add(const KernelRecord&) override {}
    void add(const CopyRecord&) override {}
    void add(const FillRecord&) override {}
    void add(const CallRecord&) override {}
    void add(const RangeRecord&) override {}
    void add(const MemoryRecord&) override {}
    void add(const OverheadRecord&) override {}
    void add(const EnvironmentRecord&) override {}
    void add(const DeviceRecord&) override {}
    void add(const OperatorRecord&) override {}
    void add(const CounterRecord&) override {}
    void note(std::string_view, std::string_view) override {}
  };

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

  Nowhere nowhere_;
  std::mutex mutex_;
  std::condition_variable settled_;
  ProfileSink* sink_ = nullptr;
};

}  // namespace kvroof
