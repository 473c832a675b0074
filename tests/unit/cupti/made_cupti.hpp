// A made CUPTI that follows the real one's rules, as far as the recorder can tell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/cupti/activity_api.hpp"
#include "tests/unit/cupti/activity_bytes.hpp"

namespace kvroof::test {

// Fills the buffers that it is given with records, as CUPTI does: a record goes where there is a buffer and room, else
// it is dropped and counted.
class MadeCupti final : public ActivityApi {
 public:
  std::string set_device_pool(std::size_t buffers) override { return say("pool " + std::to_string(buffers)); }
  std::string promise_zeroed_buffers() override { return say("zeroed"); }
  void share_buffers() override { say("share"); }
  std::string subscribe() override { return say("subscribe"); }
  bool unnamed_has_it() const override { return unnamed; }
  bool unnamed = false;
  void unsubscribe() override { say("unsubscribe"); }
  std::string use_monotonic_clock() override { return say("clock"); }
  std::string watch_nodes(GraphNodes& nodes) override {
    graphs = &nodes;
    return say("nodes");
  }
  std::string set_buffers(ActivityBuffers& buffers) override {
    buffers_ = &buffers;
    return say("buffers");
  }
  std::string enable(std::uint32_t kind) override { return say("enable " + std::to_string(kind)); }
  void disable(std::uint32_t kind) override { say("disable " + std::to_string(kind)); }
  std::string enable_call(bool, std::uint32_t) override {
    if (refuse == "calls") return "no";
    ++calls_enabled;
    return {};
  }
  void disable_call(bool, std::uint32_t) override { --calls_enabled; }
  void push_id(std::uint64_t id) override { pushed_ = id; }
  void pop_id() override { pushed_ = 0; }
  void flush() override {
    say("flush");
    if (at_end) at_end();
    const std::lock_guard lock(mutex_);
    hand_over();
  }
  void flush_completed() override {
    say("hand over");
    if (in_flush) in_flush();
    const std::lock_guard lock(mutex_);
    hand_over();
  }
  std::uint64_t dropped() override { return dropped_; }
  std::string_view call_name(bool, std::uint32_t) override { return "cudaLaunchKernel"; }

  void put(const RecordBytes& record) {
    const std::lock_guard lock(mutex_);
    const auto& bytes = record.bytes();
    if (used_ + bytes.size() > open_.size()) {
      hand_over();
      open_ = buffers_->request();
      if (open_.empty()) {
        ++dropped_;
        return;
      }
      zeros = zeros && std::all_of(open_.begin(), open_.end(), [](std::byte b) { return b == std::byte{0}; });
    }
    std::copy(bytes.begin(), bytes.end(), open_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += bytes.size();
  }
  void launch(std::uint32_t correlation, std::uint64_t start) { launch_graph(correlation, start, {0}); }
  // One call that runs the kernels of these nodes.
  void launch_graph(std::uint32_t correlation, std::uint64_t start, const std::vector<std::uint64_t>& nodes) {
    if (pushed_ != 0) put(external_bytes(pushed_, correlation));
    for (const std::uint64_t node : nodes) {
      RecordBytes kernel = kernel_bytes(start, start + 10, correlation, node);
      put(kernel.put<std::uint64_t>(104, reinterpret_cast<std::uintptr_t>("gemv")));
    }
  }
  ActivityBuffers& buffers() { return *buffers_; }
  // Everything that was asked, in order.
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_of_words_);
    return words_;
  }

  std::function<void()> in_flush, at_end;  // called within a flush of complete buffers, of all
  std::string refuse;  // the word that is answered with "no"
  int calls_enabled = 0;
  bool zeros = true;   // of every buffer that was given
  GraphNodes* graphs = nullptr;

 private:
  std::string say(const std::string& word) {
    const std::lock_guard lock(mutex_of_words_);
    words_.push_back(word);
    return word == refuse ? "no" : "";
  }
  void hand_over() {
    if (!open_.empty()) buffers_->complete(open_.data(), used_);
    open_ = {};
    used_ = 0;
  }

  std::mutex mutex_, mutex_of_words_;
  ActivityBuffers* buffers_ = nullptr;
  std::span<std::byte> open_;
  std::size_t used_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t pushed_ = 0;
  std::vector<std::string> words_;
};

}  // namespace kvroof::test
