// A sink that keeps nothing: for sinks of tests that look at a few kinds of records.
#pragma once

#include "traces/kernel_records.hpp"

namespace kvroof::test {

class NullSink : public ProfileSink {
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

}  // namespace kvroof::test
