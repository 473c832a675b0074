// Activity buffers as CUPTI fills them, written by offsets of its header, and a sink that keeps what it is given.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cupti/activity_decoder.hpp"
#include "traces/kernel_records.hpp"

namespace kvroof::test {

// Bytes of one record; a put of a value at an offset.
class RecordBytes {
 public:
  RecordBytes(std::uint32_t kind, std::size_t size) : bytes_(size) { put<std::uint32_t>(0, kind); }
  template <class T>
  RecordBytes& put(std::size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
    return *this;
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

inline RecordBytes kernel_bytes(std::uint64_t start, std::uint64_t end, std::uint32_t correlation,
                                std::uint64_t graph_node = 0) {
  RecordBytes record(10, 216);
  record.put<std::uint16_t>(6, 40).put(16, start).put(24, end).put<std::uint32_t>(40, 1).put<std::uint32_t>(48, 7);
  record.put<std::uint32_t>(52, 11).put<std::uint32_t>(56, 12).put<std::uint32_t>(60, 13);
  record.put<std::uint32_t>(64, 128).put<std::uint32_t>(68, 2).put<std::uint32_t>(72, 1);
  record.put<std::uint32_t>(76, 1000).put<std::uint32_t>(80, 2000).put(92, correlation);
  record.put<std::uint64_t>(104, 0x1000).put<std::uint32_t>(140, 4096).put(144, graph_node);
  return record.put<std::uint64_t>(192, std::uint64_t{5} << 32U);
}

inline RecordBytes marker_bytes(std::uint32_t flags, std::uint64_t time, std::uint32_t id, std::uint64_t name) {
  RecordBytes record(12, 56);
  record.put(4, flags).put(8, time).put(16, id).put<std::uint32_t>(20, 2);
  return record.put<std::uint32_t>(24, 500).put<std::uint32_t>(28, 501).put(40, name);
}

inline RecordBytes external_bytes(std::uint64_t id, std::uint32_t correlation) {
  return RecordBytes(39, 24).put<std::uint32_t>(4, 3).put(8, id).put(16, correlation);
}

inline std::vector<std::byte> buffer_of(const std::vector<RecordBytes>& records) {
  std::vector<std::byte> buffer;
  for (const RecordBytes& record : records) buffer.insert(buffer.end(), record.bytes().begin(), record.bytes().end());
  return buffer;
}

class KeepingSink final : public ProfileSink {
 public:
  void add(const KernelRecord& r) override {
    kernels.push_back(r);
    names.emplace_back(r.mangled_name);
    kernels.back().mangled_name = {};
  }
  void add(const CopyRecord& r) override { copies.push_back(r); }
  void add(const FillRecord& r) override { fills.push_back(r); }
  void add(const CallRecord& r) override {
    calls.push_back(r);
    call_names.emplace_back(r.name);
  }
  void add(const RangeRecord& r) override {
    ranges.push_back(r);
    range_texts.emplace_back(r.text);
  }
  void add(const MemoryRecord& r) override {
    memory.push_back(r);
    memory_names.emplace_back(r.name);
    memory.back().name = {};
  }
  void add(const PoolRecord& r) override { pools.push_back(r); }
  void add(const OverheadRecord& r) override { overheads.push_back(r); }
  void add(const EnvironmentRecord& r) override { environments.push_back(r); }
  void add(const ProcessRecord& r) override { processes.emplace_back(r.process, r.name); }
  void add(const DeviceRecord& r) override {
    devices.push_back(r);
    device_names.emplace_back(r.name);
  }
  void add(const OperatorRecord& r) override {
    operators.push_back(r);
    operator_names.emplace_back(r.name);
  }
  void add(const CounterRecord& r) override {
    counters.push_back(r);
    counter_names.emplace_back(r.name);
  }
  void note(std::string_view key, std::string_view value) override { notes[std::string(key)] = value; }

  std::vector<KernelRecord> kernels;
  std::vector<CopyRecord> copies;
  std::vector<FillRecord> fills;
  std::vector<CallRecord> calls;
  std::vector<RangeRecord> ranges;
  std::vector<MemoryRecord> memory;
  std::vector<std::string> memory_names;
  std::vector<PoolRecord> pools;
  std::vector<OverheadRecord> overheads;
  std::vector<EnvironmentRecord> environments;
  std::vector<DeviceRecord> devices;
  std::vector<std::pair<std::uint32_t, std::string>> processes;
  std::vector<OperatorRecord> operators;
  std::vector<CounterRecord> counters;
  std::vector<std::string> names, call_names, range_texts, device_names, operator_names, counter_names;
  std::map<std::string, std::string> notes;
};

// Addresses and ids that a test made up.
class MadeLookup final : public ActivityLookup {
 public:
  std::string_view text(std::uint64_t address) override { return texts[address]; }
  std::string_view call(bool driver, std::uint32_t function) override {
    return !driver && function == 211 ? "cudaLaunchKernel" : "";
  }
  std::vector<OperatorRecord> meaning(std::uint64_t id, std::uint32_t) override {
    if (id != 9) return {};
    OperatorRecord record;
    record.step = 4;
    record.name = "attention";
    return {record};
  }
  std::map<std::uint64_t, std::string> texts{{0x1000, "_Z4gemvPf"}, {0x2000, "forward"}};
};

}  // namespace kvroof::test
