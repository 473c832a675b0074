#include "kernels/cupti/activity_decoder.hpp"

#include <fmt/format.h>

#include <cstring>

#include "kernels/cupti/activity_layout.hpp"
#include "traces/kernel_names.hpp"

namespace kvroof {
namespace {

using namespace cupti;

// A program that opens ranges and never closes them must not fill the memory.
constexpr std::size_t kMostOpenRanges = 1U << 16;
constexpr std::size_t kMostDevices = 1024;

template <class F>
typename F::Type get(std::span<const std::byte> record) {
  typename F::Type value{};
  if (F::kAt + sizeof value <= record.size()) std::memcpy(&value, record.data() + F::kAt, sizeof value);
  return value;
}

std::uint32_t kind_of(std::span<const std::byte> record) { return get<U32<0>>(record); }

// As NVIDIA's tools write it: GPU-8-4-4-4-12 digits. Of a record without one: empty.
std::string text_of_uuid(const std::array<std::uint8_t, 16>& uuid) {
  if (uuid == std::array<std::uint8_t, 16>{}) return {};
  std::string text = "GPU";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    const bool group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", group ? "-" : "", uuid[i]);
  }
  return text;
}

// Sizes are undefined in a record of a pool that is not local.
template <class F>
PoolState pool_state(std::span<const std::byte> record) {
  PoolState pool;
  pool.type = get<typename F::PoolType>(record);
  pool.address = get<typename F::PoolAddress>(record);
  if (pool.type != kLocalPool) return pool;
  pool.release_threshold = get<typename F::ReleaseThreshold>(record);
  pool.bytes = get<typename F::PoolBytes>(record);
  pool.used_bytes = get<typename F::UsedBytes>(record);
  return pool;
}

}  // namespace

void ActivityDecoder::decode(std::span<const std::byte> buffer) {
  while (!buffer.empty()) {
    const std::uint32_t size = buffer.size() < sizeof(std::uint32_t) ? 0 : record_size(kind_of(buffer));
    const bool cut = buffer.size() < sizeof(std::uint32_t) || size > buffer.size();
    if (cut || size == 0) {
      ++(cut ? counts_.cut : counts_.unknown);
      counts_.lost_bytes += buffer.size();
      return;
    }
    decode_record(buffer.first(size));
    buffer = buffer.subspan(size);
  }
}

void ActivityDecoder::decode_record(Record record) {
  const std::uint32_t kind = kind_of(record);
  if (record_size(kind) == 0) {
    ++counts_.unknown;
    counts_.lost_bytes += record.size();
    return;
  }
  ++counts_.records;
  switch (kind) {
    case kConcurrentKernel: return kernel(record);
    case kMemcpy: return copy(record);
    case kMemset: return fill(record);
    case kGraphTrace: return graph(record);
    case kRuntime: return call(record, false);
    case kDriver: return call(record, true);
    case kExternalCorrelation: return external(record);
    case kMarker: return marker(record);
    case kMemory2: return memory(record);
    case kMemoryPool: return pool(record);
    case kOverhead: return overhead(record);
    case kEnvironment: return environment(record);
    case kDevice: return device(record);
    default: return;  // a kind that brings nothing for a trace
  }
}

void ActivityDecoder::finish() {
  counts_.open_ranges += ranges_.size();
  ranges_.clear();
}

// Times that are not a start and an end are none: a duration must never come out of them.
void ActivityDecoder::settle(DeviceWork& work) {
  if (work.start_ns != 0 && work.start_ns <= work.end_ns) return;
  work.start_ns = work.end_ns = 0;
  ++counts_.without_time;
}

template <class Fields>
DeviceWork ActivityDecoder::work(Record record) {
  DeviceWork work;
  work.start_ns = get<typename Fields::Start>(record);
  work.end_ns = get<typename Fields::End>(record);
  work.device = get<typename Fields::Device>(record);
  work.context = get<typename Fields::Context>(record);
  work.stream = get<typename Fields::Stream>(record);
  work.correlation = get<typename Fields::Correlation>(record);
  work.process = process_;
  settle(work);
  return work;
}

void ActivityDecoder::kernel(Record r) {
  using F = KernelFields;
  ++counts_.kernels;
  KernelRecord kernel;
  kernel.work = work<F>(r);
  kernel.work.graph_node = get<F::GraphNode>(r);
  kernel.mangled_name = lookup_.text(get<F::Name>(r));
  kernel.grid = {get<F::GridX>(r), get<F::GridY>(r), get<F::GridZ>(r)};
  kernel.block = {get<F::BlockX>(r), get<F::BlockY>(r), get<F::BlockZ>(r)};
  kernel.registers = get<F::Registers>(r);
  kernel.static_shared = get<F::StaticShared>(r);
  kernel.dynamic_shared = get<F::DynamicShared>(r);
  kernel.shared_executed = get<F::SharedExecuted>(r);
  kernel.local_per_thread = get<F::LocalPerThread>(r);
  kernel.local_total = get<F::LocalTotal>(r);
  kernel.grid_id = get<F::GridId>(r);
  sink_.add(kernel);
}

void ActivityDecoder::copy(Record r) {
  using F = CopyFields;
  CopyRecord copy;
  copy.work = work<F>(r);
  copy.work.graph_node = get<F::GraphNode>(r);
  copy.bytes = get<F::Bytes>(r);
  copy.kind = get<F::Kind>(r);
  copy.source_kind = get<F::SourceKind>(r);
  copy.target_kind = get<F::TargetKind>(r);
  sink_.add(copy);
}

void ActivityDecoder::fill(Record r) {
  using F = FillFields;
  FillRecord fill;
  fill.work = work<F>(r);
  fill.work.graph_node = get<F::GraphNode>(r);
  fill.bytes = get<F::Bytes>(r);
  fill.value = get<F::Value>(r);
  fill.memory_kind = get<F::MemoryKind>(r);
  sink_.add(fill);
}

// One record for all kernels of a graph launch, which then have none of their own: it stands for them as one kernel.
void ActivityDecoder::graph(Record r) {
  using F = GraphFields;
  ++counts_.kernels;
  KernelRecord kernel;
  kernel.work = work<F>(r);
  const std::string name = fmt::format("{}{}", kWholeGraph, get<F::Graph>(r));
  kernel.mangled_name = name;
  sink_.add(kernel);
}

void ActivityDecoder::call(Record r, bool driver) {
  using F = CallFields;
  const auto function = get<F::Function>(r);
  CallRecord call;
  call.start_ns = get<F::Start>(r);
  call.end_ns = get<F::End>(r);
  call.process = get<F::Process>(r);
  call.thread = get<F::Thread>(r);
  call.correlation = get<F::Correlation>(r);
  call.result = get<F::Result>(r);
  call.driver = driver;
  call.name = lookup_.call(driver, function);
  std::string number;
  if (call.name.empty()) call.name = number = fmt::format("{} call {}", driver ? "driver" : "runtime", function);
  sink_.add(call);
}

void ActivityDecoder::external(Record r) {
  using F = ExternalFields;
  if (get<F::Kind>(r) != kExternalCustom) return;
  const auto correlation = get<F::Correlation>(r);
  for (OperatorRecord& meant : lookup_.meaning(get<F::Id>(r), correlation)) {
    meant.correlation = correlation;
    sink_.add(meant);
  }
}

void ActivityDecoder::join(std::uint32_t id, const HalfRange& first, const HalfRange& second) {
  const HalfRange& start = first.has_start ? first : second;
  const HalfRange& end = first.has_start ? second : first;
  RangeRecord range;
  range.start_ns = start.time_ns;
  range.end_ns = end.time_ns;
  range.process = start.process;
  range.thread = start.thread;
  range.text = start.text;
  if (range.end_ns >= range.start_ns && range.end_ns != 0) sink_.add(range);
  ranges_.erase(id);
}

void ActivityDecoder::marker(Record r) {
  using F = MarkerFields;
  const bool of_thread = get<F::ObjectKind>(r) == kObjectThread;
  const auto flags = get<F::Flags>(r);
  HalfRange half;
  half.has_start = (flags & kMarkerStart) != 0;
  half.time_ns = get<F::Time>(r);
  half.process = of_thread ? get<F::Process>(r) : process_;
  half.thread = of_thread ? get<F::Thread>(r) : 0;
  half.text = lookup_.text(get<F::Name>(r));
  if ((flags & kMarkerInstant) != 0) {
    RangeRecord mark;
    mark.start_ns = half.time_ns;
    mark.process = half.process;
    mark.thread = half.thread;
    mark.text = half.text;
    return sink_.add(mark);
  }
  if ((flags & (kMarkerStart | kMarkerEnd)) == 0) return;
  const auto id = get<F::Id>(r);
  const auto other = ranges_.find(id);
  if (other != ranges_.end() && other->second.has_start != half.has_start) {
    const HalfRange first = std::move(other->second);
    return join(id, first, half);
  }
  if (other == ranges_.end() && ranges_.size() >= kMostOpenRanges) {
    ++counts_.open_ranges;
    return;
  }
  if (other != ranges_.end()) ++counts_.open_ranges;  // the id is used again: its first half stays alone
  ranges_[id] = std::move(half);
}

void ActivityDecoder::memory(Record r) {
  using F = MemoryFields;
  MemoryRecord memory;
  memory.time_ns = get<F::Time>(r);
  memory.process = get<F::Process>(r);
  memory.device = get<F::Device>(r);
  memory.context = get<F::Context>(r);
  memory.address = get<F::Address>(r);
  memory.bytes = get<F::Bytes>(r);
  memory.memory_kind = get<F::MemoryKind>(r);
  memory.release = get<F::Operation>(r) == kMemoryRelease;
  memory.pool = pool_state<F>(r);
  if (memory.pool.type == kImportedPool) memory.pool.owner = get<F::PoolBytes>(r);
  memory.code_address = get<F::CodeAddress>(r);
  memory.correlation = get<F::Correlation>(r);
  if (get<F::InOrder>(r) != 0) memory.stream = get<F::Stream>(r);
  memory.name = lookup_.text(get<F::Name>(r));
  sink_.add(memory);
}

void ActivityDecoder::pool(Record r) {
  using F = PoolFields;
  PoolRecord pool;
  pool.time_ns = get<F::Time>(r);
  pool.process = get<F::Process>(r);
  pool.device = get<F::Device>(r);
  pool.correlation = get<F::Correlation>(r);
  pool.operation = get<F::Operation>(r);
  pool.least_bytes = pool.operation == kPoolTrimmed ? get<F::LeastBytes>(r) : 0;
  pool.pool = pool_state<F>(r);
  sink_.add(pool);
}

void ActivityDecoder::overhead(Record r) {
  using F = OverheadFields;
  sink_.add(OverheadRecord{get<F::Start>(r), get<F::End>(r), get<F::Kind>(r)});
}

void ActivityDecoder::environment(Record r) {
  using F = EnvironmentFields;
  const auto id = get<F::Device>(r);
  if (environments_.size() >= kMostDevices && environments_.count(id) == 0) return;
  EnvironmentRecord& now = environments_[id];
  now.device = id;
  now.time_ns = get<F::Time>(r);
  switch (get<F::Kind>(r)) {
    case kEnvironmentSpeed:
      now.sm_clock_mhz = get<F::SmClock>(r);
      now.memory_clock_mhz = get<F::MemoryClock>(r);
      break;
    case kEnvironmentTemperature: now.temperature_c = get<F::Temperature>(r); break;
    case kEnvironmentPower: now.power_mw = get<F::Power>(r); break;
    default: return;
  }
  sink_.add(now);
}

void ActivityDecoder::device(Record r) {
  using F = DeviceFields;
  DeviceRecord device;
  device.device = get<F::Id>(r);
  device.name = lookup_.text(get<F::Name>(r));
  device.memory_bytes = get<F::MemoryBytes>(r);
  device.l2_bytes = get<F::L2Bytes>(r);
  device.multiprocessors = get<F::Multiprocessors>(r);
  device.compute_major = get<F::Major>(r);
  device.compute_minor = get<F::Minor>(r);
  device.process = process_;
  const std::string uuid = text_of_uuid(get<F::Uuid>(r));
  device.uuid = uuid;
  sink_.add(device);
}

}  // namespace kvroof
