// The emulator's launches as activity records of CUPTI's layout, timed by the host's clock: what is recorded, decoded
// and reported of a GPU can be shown to work without one.
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/device_activity.hpp"
#include "kernels/cuda/emulated_queue.hpp"
#include "kernels/cupti/activity_api.hpp"
#include "kernels/cupti/activity_layout.hpp"

namespace kvroof::cuda {
namespace {

using namespace cupti;

constexpr const char* kKernelName = "emulated kernel";
constexpr const char* kDeviceName = "emulator";

template <std::uint32_t kKind>
class Record {
 public:
  Record() { std::memcpy(bytes_.data(), &kind_, sizeof kind_); }
  template <class F>
  Record& put(typename F::Type value) {
    std::memcpy(bytes_.data() + F::kAt, &value, sizeof value);
    return *this;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::uint32_t kind_ = kKind;
  std::array<std::byte, record_size(kKind)> bytes_{};
};

std::uint64_t address(const char* text) { return reinterpret_cast<std::uintptr_t>(text); }

// One thread: the emulator has no other.
class EmulatedActivity final : public ActivityApi, public emulator::Watcher {
 public:
  std::string set_device_pool(std::size_t) override { return {}; }
  std::string promise_zeroed_buffers() override { return {}; }
  void share_buffers() override {}
  std::string use_monotonic_clock() override { return {}; }
  std::string subscribe() override {
    emulator::watcher = this;
    return {};
  }
  void unsubscribe() override {
    emulator::watcher = nullptr;
    buffers_ = nullptr;
    nodes_ = nullptr;
  }
  std::string set_buffers(ActivityBuffers& buffers) override {
    buffers_ = &buffers;
    return {};
  }
  std::string watch_nodes(GraphNodes& nodes) override {
    nodes_ = &nodes;
    return {};
  }
  std::string enable(std::uint32_t kind) override {
    enabled_[kind % enabled_.size()] = true;
    if (kind == kDevice) put(Record<kDevice>().put<DeviceFields::Name>(address(kDeviceName)));
    return {};
  }
  void disable(std::uint32_t kind) override { enabled_[kind % enabled_.size()] = false; }
  std::string enable_call(bool, std::uint32_t) override { return {}; }
  void disable_call(bool, std::uint32_t) override {}
  void push_id(std::uint64_t id) override { id_ = id; }
  void pop_id() override { id_ = 0; }
  void flush() override {
    if (!open_.empty()) buffers_->complete(open_.data(), used_);
    open_ = {};
  }
  void flush_completed() override { flush(); }
  std::uint64_t dropped() override { return std::exchange(dropped_, 0); }
  std::string_view call_name(bool, std::uint32_t) override { return {}; }

  std::uint64_t captured() override {
    if (nodes_ != nullptr) nodes_->created(++last_node_);
    return last_node_;
  }
  std::uint64_t cloned(std::uint64_t node) override {
    if (nodes_ != nullptr) nodes_->cloned(++last_node_, node);
    return last_node_;
  }
  void begin_call() override {
    ++correlation_;
    if (id_ == 0) return;
    using F = ExternalFields;
    put(Record<kExternalCorrelation>()
            .put<F::Kind>(kExternalCustom)
            .put<F::Id>(id_)
            .put<F::Correlation>(correlation_));
  }
  void ran(std::uint64_t node, std::uint64_t start_ns, std::uint64_t end_ns) override {
    using F = KernelFields;
    put(Record<kConcurrentKernel>()
            .put<F::Start>(start_ns)
            .put<F::End>(end_ns)
            .put<F::Correlation>(correlation_)
            .put<F::GraphNode>(node)
            .put<F::Name>(address(kKernelName)));
  }
  void copied(bool to_device, std::size_t bytes, std::uint64_t start_ns, std::uint64_t end_ns) override {
    using F = CopyFields;
    put(Record<kMemcpy>()
            .put<F::Kind>(to_device ? 1 : 2)
            .put<F::Bytes>(bytes)
            .put<F::Start>(start_ns)
            .put<F::End>(end_ns)
            .put<F::Correlation>(++correlation_));
  }

 private:
  // As CUPTI: where no buffer is left a record is dropped and counted.
  template <std::uint32_t kKind>
  void put(const Record<kKind>& record) {
    if (buffers_ == nullptr || !enabled_[kKind]) return;
    const auto bytes = record.bytes();
    if (used_ + bytes.size() > open_.size()) flush();
    if (open_.empty()) {
      open_ = buffers_->request();
      used_ = 0;
    }
    if (open_.size() < bytes.size()) {
      ++dropped_;
      return;
    }
    std::memcpy(open_.data() + used_, bytes.data(), bytes.size());
    used_ += bytes.size();
  }

  ActivityBuffers* buffers_ = nullptr;
  GraphNodes* nodes_ = nullptr;
  std::array<bool, 64> enabled_{};
  std::span<std::byte> open_;
  std::size_t used_ = 0;
  std::uint64_t dropped_ = 0, id_ = 0, last_node_ = 0;
  std::uint32_t correlation_ = 0;
};

// Tells a library that stands for CUPTI what its device does, by functions that the real one has not; nothing is told
// while it is not loaded.
class ToldCupti final : public emulator::Watcher {
 public:
  std::uint64_t captured() override { return node(0); }
  std::uint64_t cloned(std::uint64_t of) override { return node(of); }
  void begin_call() override { tell<bool>("made_call", false); }
  void ran(std::uint64_t node, std::uint64_t start_ns, std::uint64_t end_ns) override {
    tell<std::uint64_t, std::uint64_t, std::uint64_t, const char*>("made_kernel", node, start_ns, end_ns, kKernelName);
  }
  void copied(bool to_device, std::size_t bytes, std::uint64_t start_ns, std::uint64_t end_ns) override {
    tell<bool, std::uint64_t, std::uint64_t, std::uint64_t>("made_copy", to_device, bytes, start_ns, end_ns);
  }

 private:
  template <class Function>
  static Function* find(const char* name) {
    void* const cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (cupti == nullptr) return nullptr;
    auto* const function = reinterpret_cast<Function*>(dlsym(cupti, name));
    dlclose(cupti);  // whoever loaded it keeps it
    return function;
  }
  template <class... Values>
  static void tell(const char* name, Values... values) {
    if (auto* const function = find<void(Values...)>(name)) function(values...);
  }
  static std::uint64_t node(std::uint64_t of) {
    auto* const function = find<std::uint64_t(std::uint64_t)>("made_node");
    return function != nullptr ? function(of) : 0;
  }
};

}  // namespace

ActivityApi* emulated_activity() {
  if (std::getenv("KVROOF_EMULATED_CUPTI") != nullptr) {
    static ToldCupti told;
    dlopen("libcuda.so.1", RTLD_NOW);  // as CUDA's runtime does
    emulator::watcher = &told;
    return nullptr;
  }
  static EmulatedActivity activity;
  return &activity;
}

}  // namespace kvroof::cuda
