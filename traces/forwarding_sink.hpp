// A sink that hands everything on, for those that treat one or two kinds of records in their own way.
#pragma once

#include "traces/kernel_records.hpp"

namespace kvroof {

class ForwardingSink : public ProfileSink {
 public:
  void add(const KernelRecord& r) override { to().add(r); }
  void add(const CopyRecord& r) override { to().add(r); }
  void add(const FillRecord& r) override { to().add(r); }
  void add(const CallRecord& r) override { to().add(r); }
  void add(const RangeRecord& r) override { to().add(r); }
  void add(const MemoryRecord& r) override { to().add(r); }
  void add(const PoolRecord& r) override { to().add(r); }
  void add(const OverheadRecord& r) override { to().add(r); }
  void add(const EnvironmentRecord& r) override { to().add(r); }
  void add(const DeviceRecord& r) override { to().add(r); }
  void add(const ProcessRecord& r) override { to().add(r); }
  void add(const OperatorRecord& r) override { to().add(r); }
  void add(const CounterRecord& r) override { to().add(r); }
  void note(std::string_view key, std::string_view value) override { to().note(key, value); }
  void flush() override { to().flush(); }

 private:
  // Asked for each record; must outlive its call.
  virtual ProfileSink& to() = 0;
};

}  // namespace kvroof
