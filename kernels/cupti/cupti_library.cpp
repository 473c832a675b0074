#include "kernels/cupti/cupti_library.hpp"

#if defined(KVROOF_CUPTI_HEADERS)

#include <cupti.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <string_view>
#include <utility>

#include "kernels/cupti/activity_layout.hpp"
#include "sim/core/monotonic.hpp"

namespace kvroof {
namespace {

// The functions that are called, with the types of the header that this was built with.
#define KVROOF_CUPTI_FUNCTIONS(F)                                                                              \
  F(cuptiGetVersion)                                                                                           \
  F(cuptiGetResultString)                                                                                      \
  F(cuptiGetCallbackName)                                                                                      \
  F(cuptiSubscribe_v2)                                                                                         \
  F(cuptiUnsubscribe)                                                                                          \
  F(cuptiEnableCallback)                                                                                       \
  F(cuptiGetGraphNodeId)                                                                                       \
  F(cuptiActivityRegisterTimestampCallback)                                                                    \
  F(cuptiActivitySetAttribute)                                                                                 \
  F(cuptiActivityRegisterCallbacks)                                                                            \
  F(cuptiActivityEnable)                                                                                       \
  F(cuptiActivityDisable)                                                                                      \
  F(cuptiActivityEnableRuntimeApi)                                                                             \
  F(cuptiActivityEnableDriverApi)                                                                              \
  F(cuptiActivityPushExternalCorrelationId)                                                                    \
  F(cuptiActivityPopExternalCorrelationId)                                                                     \
  F(cuptiActivityFlushAll)                                                                                     \
  F(cuptiActivityGetNumDroppedRecords)                                                                         \
  F(cuptiActivityGetNextRecord)

struct Functions {
#define KVROOF_MEMBER(name) decltype(&::name) name = nullptr;
  KVROOF_CUPTI_FUNCTIONS(KVROOF_MEMBER)
#undef KVROOF_MEMBER
};

// Null, or the function that the library lacks.
const char* find_functions(void* library, Functions& functions) {
#define KVROOF_FIND(name) \
  if (!find_function(library, #name, functions.name)) return #name;
  KVROOF_CUPTI_FUNCTIONS(KVROOF_FIND)
#undef KVROOF_FIND
  return nullptr;
}

// CUPTI's callbacks carry no pointer of ours, and a process has one subscriber.
std::atomic<ActivityBuffers*> g_buffers{nullptr};

void CUPTIAPI on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  ActivityBuffers* const owner = g_buffers.load();
  const std::span<std::byte> given = owner == nullptr ? std::span<std::byte>() : owner->request();
  *buffer = given.empty() ? nullptr : reinterpret_cast<std::uint8_t*>(given.data());
  *size = given.size();
  *most_records = 0;  // as many as fit
}

void CUPTIAPI on_complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t used) {
  if (ActivityBuffers* const owner = g_buffers.load()) owner->complete(reinterpret_cast<std::byte*>(buffer), used);
}

std::uint64_t CUPTIAPI record_time_ns() {
  return monotonic_ns();
}

constexpr std::array kNodeCallbacks = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};

class LibraryActivity final : public ActivityApi {
 public:
  LibraryActivity(const Functions& functions, std::uint32_t version) : cupti_(functions), version_(version) {}
  ~LibraryActivity() override { unsubscribe(); }

  std::string set_device_pool(std::size_t buffers) override {
    std::size_t size = sizeof buffers;
    return answer(cupti_.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &size, &buffers));
  }

  std::string promise_zeroed_buffers() override {
    std::uint8_t zeroed = 1;
    std::size_t size = sizeof zeroed;
    return answer(cupti_.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed));
  }

  void share_buffers() override {
    std::uint8_t per_thread = 0;
    std::size_t size = sizeof per_thread;
    cupti_.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &size, &per_thread);
  }

  std::string subscribe() override {
    std::array<char, 2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> other{};
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "kvroof";
    params.oldSubscriberName = other.data();
    params.oldSubscriberSize = other.size();
    const CUptiResult result = cupti_.cuptiSubscribe_v2(&subscriber_, on_node, this, &params);
    subscribed_ = result == CUPTI_SUCCESS;
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
      other.back() = '\0';
      unnamed_has_it_ = std::string_view(other.data()) == "CUPTI for <not provided>";
      return fmt::format("another profiler holds CUPTI in this process{}{}", other[0] != '\0' ? ": " : "",
                         other.data());
    }
    // What CUPTI answers where no driver can be started.
    if (result == CUPTI_ERROR_UNKNOWN) return "CUPTI finds no NVIDIA driver or no device";
    return answer(result);
  }
  bool unnamed_has_it() const override { return unnamed_has_it_; }
  void unsubscribe() override {
    if (std::exchange(registered_, false)) g_buffers.store(nullptr);
    if (!std::exchange(subscribed_, false)) return;  // another's stays
    cupti_.cuptiUnsubscribe(subscriber_);
    nodes_ = nullptr;
  }
  // A second registration spoils the times of a record (pytorch issue 192021).
  std::string use_monotonic_clock() override {
    static const std::string first = answer(cupti_.cuptiActivityRegisterTimestampCallback(record_time_ns));
    return first;
  }
  std::string watch_nodes(GraphNodes& nodes) override {
    nodes_ = &nodes;
    for (const auto callback : kNodeCallbacks) {
      const CUptiResult result = cupti_.cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, callback);
      if (result != CUPTI_SUCCESS) return answer(result);
    }
    return {};
  }
  std::string set_buffers(ActivityBuffers& buffers) override {
    g_buffers.store(&buffers);
    registered_ = true;
    return answer(cupti_.cuptiActivityRegisterCallbacks(on_request, on_complete));
  }
  std::string enable(std::uint32_t kind) override {
    return answer(cupti_.cuptiActivityEnable(static_cast<CUpti_ActivityKind>(kind)));
  }
  void disable(std::uint32_t kind) override { cupti_.cuptiActivityDisable(static_cast<CUpti_ActivityKind>(kind)); }
  std::string enable_call(bool driver, std::uint32_t function) override {
    return answer(driver ? cupti_.cuptiActivityEnableDriverApi(function, 1)
                         : cupti_.cuptiActivityEnableRuntimeApi(function, 1));
  }
  void disable_call(bool driver, std::uint32_t function) override {
    if (driver) {
      cupti_.cuptiActivityEnableDriverApi(function, 0);
    } else {
      cupti_.cuptiActivityEnableRuntimeApi(function, 0);
    }
  }
  void push_id(std::uint64_t id) override {
    cupti_.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, id);
  }
  void pop_id() override {
    std::uint64_t id = 0;
    cupti_.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &id);
  }
  void flush() override { cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); }
  void flush_completed() override { cupti_.cuptiActivityFlushAll(0); }
  std::uint64_t dropped() override {
    std::size_t records = 0;
    return cupti_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &records) == CUPTI_SUCCESS ? records : 0;
  }
  std::string_view call_name(bool driver, std::uint32_t function) override {
    const char* name = nullptr;
    const auto domain = driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
    return cupti_.cuptiGetCallbackName(domain, function, &name) == CUPTI_SUCCESS && name != nullptr ? name : "";
  }
  // Later versions of 13 have longer records, whose first fields are the same.
  void walk(std::span<const std::byte> buffer, ActivityDecoder& decoder) override {
    if (version_ <= cupti::kApiVersion) return decoder.decode(buffer);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(buffer.data()));
    const auto next = [&](CUpti_Activity*& record) {
      return cupti_.cuptiActivityGetNextRecord(bytes, buffer.size(), &record) == CUPTI_SUCCESS;
    };
    const auto offset = [&](const CUpti_Activity* record) {
      return static_cast<std::size_t>(reinterpret_cast<const std::uint8_t*>(record) - bytes);
    };
    CUpti_Activity* record = nullptr;
    if (!next(record)) return decoder.decode(buffer);  // which says what it cannot read
    while (true) {
      const std::size_t from = offset(record);
      const bool more = next(record);
      decoder.decode_record(buffer.subspan(from, more ? offset(record) - from : buffer.size() - from));
      if (!more) return;
    }
  }

 private:
  // Of the only callbacks that are enabled.
  static void CUPTIAPI on_node(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    auto& own = *static_cast<LibraryActivity*>(self);
    if (domain != CUPTI_CB_DOMAIN_RESOURCE || own.nodes_ == nullptr) return;
    const auto* const graph =
        static_cast<const CUpti_GraphData*>(static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
    std::uint64_t node = 0, original = 0;
    if (own.cupti_.cuptiGetGraphNodeId(graph->node, &node) != CUPTI_SUCCESS) return;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) return own.nodes_->created(node);
    if (own.cupti_.cuptiGetGraphNodeId(graph->originalNode, &original) != CUPTI_SUCCESS) return;
    own.nodes_->cloned(node, original);
  }

  std::string answer(CUptiResult result) const {
    if (result == CUPTI_SUCCESS) return {};
    const char* text = nullptr;
    cupti_.cuptiGetResultString(result, &text);
    return fmt::format("CUPTI: {} ({})", text != nullptr ? text : "unknown error", static_cast<int>(result));
  }

  Functions cupti_;
  std::uint32_t version_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool subscribed_ = false, registered_ = false, unnamed_has_it_ = false;
  GraphNodes* nodes_ = nullptr;
};

Result<CuptiLibrary> use_library(void* library, std::string path) {
  Functions functions;
  if (const char* lacking = find_functions(library, functions)) {
    return failure("{} has no {}: it is not CUPTI of CUDA {}", path, lacking, kCuptiMajor);
  }
  CuptiLibrary loaded;
  loaded.path = std::move(path);
  loaded.handle = library;
  if (functions.cuptiGetVersion(&loaded.version) != CUPTI_SUCCESS || loaded.version / 10000 != kCuptiMajor) {
    return failure("{} is version {}; {}xxxx is needed", loaded.path, loaded.version, kCuptiMajor);
  }
  loaded.activity = std::make_unique<LibraryActivity>(functions, loaded.version);
  return loaded;
}

std::string path_of_loaded(void* library) {
  Dl_info info{};
  void* const function = dlsym(library, "cuptiGetVersion");
  return function != nullptr && dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname
                                                                                          : kCuptiFile;
}

}  // namespace

Result<CuptiLibrary> load_cupti(const Machine& machine) {
  // Two copies in one process would each take the other for a foreign profiler.
  if (void* const loaded = dlopen(kCuptiFile, RTLD_NOW | RTLD_NOLOAD)) {
    return use_library(loaded, path_of_loaded(loaded));
  }
  CuptiLibrary found;
  const TakeLibrary take = [&](void* library, const std::string& path) {
    auto used = use_library(library, path);
    if (!used) return used.error();
    found = std::move(used).value();
    return std::string();
  };
  const std::string why = open_library(machine, std::array{kCuptiFile}, RTLD_NOW | RTLD_GLOBAL, take);
  if (!why.empty()) return Failure{why};
  return found;
}

}  // namespace kvroof

#else

namespace kvroof {

Result<CuptiLibrary> load_cupti(const Machine&) {
  return failure("this build has no CUPTI: its headers were not found (KVROOF_CUPTI_INCLUDE)");
}

}  // namespace kvroof

#endif
