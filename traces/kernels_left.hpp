// What a writer that did not end left of kernels.sqlite, and whether another can go on with it.
#pragma once

#include <filesystem>
#include <string>

namespace kvroof {

struct KernelsLeft {
  bool is_usable = false;    // every page is whole, and the tables are those that KernelDatabase writes
  bool has_records = false;  // of a profiler
  std::string problem;       // what is damaged, in a few words; empty where there is nothing, or nothing yet
};

// Takes back a transaction that was cut and reads every page. Throws Error where this cannot be told now: another
// program has the file, the disk is full or fails, nothing may be written.
KernelsLeft look_at_left_kernels(const std::filesystem::path& database);

}  // namespace kvroof
