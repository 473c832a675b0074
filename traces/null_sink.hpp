// A sink that keeps nothing; one that looks at a few kinds of records derives from it.
#pragma once

#include "traces/kernel_records.hpp"

namespace kvroof {

class NullSink : public ProfileSink {
 public:
  void add(const KernelRecord&) override {}
  void add(const CopyRecord&) override {}
  void add(const FillRecord&) override {}
  void add(const CallRecord&) override {}
  void add(const RangeRecord&) override {}
  void add(const MemoryRecord&) override {}
  void add(const PoolRecord&) override {}
  void add(const OverheadRecord&) override {}
  void add(const EnvironmentRecord&) override {}
  void add(const DeviceRecord&) override {}
  void add(const ProcessRecord&) override {}
  void add(const OperatorRecord&) override {}
  void add(const CounterRecord&) override {}
  void note(std::string_view, std::string_view) override {}
};

}  // namespace kvroof
