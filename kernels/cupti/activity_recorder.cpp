#include "kernels/cupti/activity_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "kernels/cupti/activity_layout.hpp"
#include "kernels/cupti/blocked_signals.hpp"

namespace kvroof {
namespace {

using namespace cupti;

constexpr std::uint64_t kKernelsPerPoolBuffer = 80'000;
// Buffers come back late and out of order: so many records of meanings may wait for theirs.
constexpr std::size_t kMeantRecordsKept = 1U << 20;
constexpr std::size_t kLongestName = 1U << 16;

std::uint64_t kernel_limit(const ActivityOptions& options) {
  return std::min<std::uint64_t>(options.most_kernels, options.device_pool * kKernelsPerPoolBuffer);
}

}  // namespace

ActivityRecorder::ActivityRecorder(ActivityApi& api, ProfileSink& sink, const ActivityOptions& options)
    : api_(api), sink_(sink), options_(options), decoder_(sink, *this, options.process) {
  // What CUPTI calls with the lock held appends without allocating.
  buffers_.reserve(options.most_buffers);
  free_.reserve(options.most_buffers);
  full_.reserve(options.most_buffers);
}

ActivityRecorder::~ActivityRecorder() { stop(); }

std::string ActivityRecorder::start() {
  if (std::string why = api_.subscribe(); !why.empty()) {
    if (!options_.beside_unnamed || !api_.unnamed_has_it()) return why;
    sink_.note("beside", "a client of CUPTI that gave no name; from when it records, nothing more is recorded here");
  } else {  // what is set for the whole process would hold for another client too
    if (why = api_.set_device_pool(options_.device_pool); !why.empty()) miss("sizes of pools", why);
    if (why = api_.promise_zeroed_buffers(); !why.empty()) miss("buffers known to be zero", why);
    if (options_.shared_buffers) api_.share_buffers();
  }
  if (options_.monotonic_clock) {
    if (const std::string why = api_.use_monotonic_clock(); !why.empty()) miss("the clock of the steps", why);
  }
  if (options_.nodes != nullptr) {
    if (const std::string why = api_.watch_nodes(*options_.nodes); !why.empty()) miss("nodes of graphs", why);
  }
  std::string why = api_.set_buffers(*this);
  if (why.empty()) why = enable_kinds();
  if (why.empty()) why = start_writer();
  if (!why.empty()) {
    disable_kinds();
    api_.flush();  // CUPTI must not keep a buffer of ours
    api_.unsubscribe();
    return why;
  }
  started_ = true;
  return {};
}

std::string ActivityRecorder::start_writer() {
  round_ = std::chrono::milliseconds(options_.flush_ms);
  next_round_ = std::chrono::steady_clock::now() + round_;
  if (monitor_ != nullptr) {
    const std::chrono::milliseconds every(options_.monitor_ms);
    round_ = round_.count() == 0 ? every : std::min(round_, every);
    next_round_ = std::chrono::steady_clock::now();
  }
  try {
    const BlockedSignals blocked;
    writer_ = std::thread([this] { write(); });
  } catch (const std::system_error& refused) {
    return fmt::format("no thread to write records: {}", refused.what());
  }
  return {};
}

// Launching calls first: the records of kernels refer to theirs. Kernels must be had; others are noted when missing.
std::string ActivityRecorder::enable_kinds() {
  const auto enable_call = [this](bool driver, std::uint32_t function) {
    if (api_.enable_call(driver, function).empty()) calls_.emplace_back(driver, function);
  };
  for (const std::uint32_t function : kRuntimeLaunches) enable_call(false, function);
  for (const std::uint32_t function : kDriverLaunches) enable_call(true, function);
  if (calls_.empty()) miss("launching calls", {});
  const std::uint32_t work = options_.whole_graphs ? kGraphTrace : kConcurrentKernel;
  struct Wanted {
    std::uint32_t kind;
    const char* name;
    bool wanted;
  };
  const std::array<Wanted, 11> wanted = {{{kExternalCorrelation, "ids of operators", true},
                                          {work, "kernels", true},
                                          {kConcurrentKernel, "kernels outside graphs", options_.whole_graphs},
                                          {kMemcpy, "copies", true},
                                          {kMemset, "fills", true},
                                          {kMemory2, "allocations", true},
                                          {kMemoryPool, "memory pools", true},
                                          {kMarker, "NVTX ranges", options_.ranges},
                                          {kOverhead, "overhead", true},
                                          {kDevice, "devices", true},
                                          {kEnvironment, "clocks and power", options_.environment}}};
  for (const Wanted& kind : wanted) {
    if (!kind.wanted) continue;
    const std::string why = api_.enable(kind.kind);
    if (why.empty()) {
      enabled_.push_back(kind.kind);
    } else if (kind.kind == work) {
      return why;
    } else if (kind.kind == kEnvironment) {
      miss_environment(why);
    } else {
      miss(kind.name, why);
    }
  }
  return {};
}

void ActivityRecorder::miss(const char* what, const std::string& why) {
  missing_ += fmt::format("{}{}{}", missing_.empty() ? "" : ", ", what, why.empty() ? "" : " (" + why + ")");
}

// CUPTI 13.0 looks for NVML in folders that Debian's and Ubuntu's drivers do not use, and answers NOT_COMPATIBLE where
// it does not find it.
void ActivityRecorder::miss_environment(const std::string& why) {
  constexpr const char* kWhat = "clocks and power";
  if (!options_.open_monitor) return miss(kWhat, why);
  auto opened = options_.open_monitor();
  if (!opened) return miss(kWhat, fmt::format("{}; {}", why, opened.error()));
  monitor_ = std::move(opened).value();
}

void ActivityRecorder::disable_kinds() {
  for (auto kind = enabled_.rbegin(); kind != enabled_.rend(); ++kind) api_.disable(*kind);
  for (const auto& [driver, function] : calls_) api_.disable_call(driver, function);
}

// CUPTI asks in threads of the program, through which no exception must go.
std::span<std::byte> ActivityRecorder::request() {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && buffers_.size() < options_.most_buffers) {
    try {
      buffers_.push_back(std::make_unique<Buffer>(options_.buffer_bytes));
      free_.push_back(buffers_.back().get());
    } catch (const std::exception&) {  // no memory: counted below
    }
  }
  if (free_.empty()) {
    ++refused_;
    return {};
  }
  Buffer* const buffer = free_.back();
  free_.pop_back();
  return *buffer;
}

void ActivityRecorder::complete(std::byte* buffer, std::size_t used) {
  {
    const std::lock_guard lock(mutex_);
    const auto own = std::find_if(buffers_.begin(), buffers_.end(), [&](const auto& b) { return b->data() == buffer; });
    if (own == buffers_.end()) {
      ++foreign_;
      return;
    }
    full_.push_back({own->get(), std::min(used, (*own)->size())});
  }
  changed_.notify_all();
}

// A sink that fails (a full disk) ends the recording, never the program that is recorded.
void ActivityRecorder::take_in(std::span<const std::byte> records) {
  if (!ended_early_.empty()) return;
  try {
    api_.walk(records, decoder_);
    sink_.flush();
  } catch (const std::exception& problem) {
    return end_early(problem.what());
  }
  if (decoder_.counts().kernels >= kernel_limit(options_)) {
    end_early(fmt::format("after {} kernels, before CUPTI 13.0 gives wrong times", decoder_.counts().kernels));
  }
}

void ActivityRecorder::end_early(std::string why) {
  ended_early_ = std::move(why);
  disable_kinds();
}

// The thread of the recorder: decodes, hands to the sink, and makes buffers zero again, so that CUPTI need not do it in
// a thread of the program.
void ActivityRecorder::write() {
  std::unique_lock lock(mutex_);
  while (true) {
    wait_for_work(lock);
    if (full_.empty()) break;
    const Full full = full_.front();
    full_.erase(full_.begin());
    lock.unlock();
    take_in(std::span<const std::byte>(*full.buffer).first(full.used));
    std::memset(full.buffer->data(), 0, full.buffer->size());  // CUPTI may have begun a record that it does not count
    lock.lock();
    free_.push_back(full.buffer);
  }
  lock.unlock();
  read_monitor();  // of how the device was left
}

// Until there is a full buffer, or nothing more to come. Rounds are made on the way, however many buffers there are.
void ActivityRecorder::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const auto woken = [this] { return closing_ || !full_.empty(); };
  while (round_.count() > 0 && !closing_) {
    if (full_.empty() && changed_.wait_until(lock, next_round_, woken)) return;
    if (std::chrono::steady_clock::now() < next_round_) return;
    lock.unlock();
    make_round();
    lock.lock();
    next_round_ = std::chrono::steady_clock::now() + round_;
  }
  changed_.wait(lock, woken);
}

// CUPTI's own period hands over full buffers alone, so that a program that is killed would lose all that is in the
// others. Buffers come back in this thread, which holds no lock meanwhile.
void ActivityRecorder::make_round() {
  read_monitor();
  if (options_.flush_ms == 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (rounds_ended_) return;
    flushing_ = true;
  }
  api_.flush_completed();
  {
    const std::lock_guard lock(mutex_);
    flushing_ = false;
  }
  changed_.notify_all();
}

// Whoever ends the recording asks CUPTI for the rest alone: while a process ends, the driver may go at any moment.
void ActivityRecorder::end_rounds() {
  std::unique_lock lock(mutex_);
  rounds_ended_ = true;
  changed_.wait(lock, [this] { return !flushing_; });
}

void ActivityRecorder::read_monitor() {
  if (monitor_ == nullptr || !ended_early_.empty()) return;
  try {
    sink_.add(monitor_->read());
  } catch (const std::exception& problem) {
    end_early(problem.what());
  }
}

void ActivityRecorder::begin_launch(std::vector<OperatorRecord> meaning) {
  std::uint64_t id = 0;
  bool many_wait = false;
  {
    const std::lock_guard lock(mutex_);
    id = ++last_id_;
    meant_records_ += meaning.size();
    meant_since_ += meaning.size();
    many_wait = meant_since_ > kMeantRecordsKept / 4;
    if (many_wait) meant_since_ = 0;
    meanings_.emplace_hint(meanings_.end(), id, Meaning{std::move(meaning)});
    for (; meant_records_ > kMeantRecordsKept; meanings_.erase(meanings_.begin())) {
      const Meaning& oldest = meanings_.begin()->second;
      forgotten_ += !oldest.used;
      meant_records_ -= oldest.records.size();
    }
  }
  // Launches of graphs alone fill a buffer with records of launching calls so slowly that meanings would be forgotten.
  if (many_wait) api_.flush_completed();
  api_.push_id(id);
}

void ActivityRecorder::end_launch() { api_.pop_id(); }

// The driver's and the runtime's record of a call have one correlation, and an id before each.
std::vector<OperatorRecord> ActivityRecorder::meaning(std::uint64_t external_id, std::uint32_t correlation) {
  const std::lock_guard lock(mutex_);
  const auto found = meanings_.find(external_id);
  if (found == meanings_.end()) return {};
  Meaning& kept = found->second;
  if (kept.used && kept.correlation == correlation) return {};
  kept.correlation = correlation;
  std::vector<OperatorRecord> meant = kept.records;
  kept.used = true;
  for (OperatorRecord& record : kept.records) record.declared_bytes = record.declared_flops = 0;
  return meant;
}

// Addresses come from CUPTI's own records, and it keeps names for the life of the process.
std::string_view ActivityRecorder::text(std::uint64_t address) {
  if (address == 0) return {};
  const auto* const text = reinterpret_cast<const char*>(static_cast<std::uintptr_t>(address));
  return {text, strnlen(text, kLongestName)};
}

std::string_view ActivityRecorder::call(bool driver, std::uint32_t function) {
  return api_.call_name(driver, function);
}

// What was launched before is handed over while its kinds are on, what ended in between after.
void ActivityRecorder::stop() {
  if (!started_) return;
  end_rounds();
  api_.flush();
  disable_kinds();
  take_rest();
  api_.unsubscribe();
}

void ActivityRecorder::leave() {
  if (!started_) return;
  end_rounds();
  take_rest();
}

void ActivityRecorder::take_rest() {
  started_ = false;
  api_.flush();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  writer_.join();
  decoder_.finish();
  try {
    note_losses();
  } catch (const std::exception& problem) {
    if (ended_early_.empty()) ended_early_ = problem.what();
  }
}

void ActivityRecorder::note_losses() {
  const ActivityCounts& counts = decoder_.counts();
  dropped_ = api_.dropped();
  const auto number = [this](const char* key, std::uint64_t value) { sink_.note(key, std::to_string(value)); };
  number("records", counts.records);
  number("dropped", dropped_);
  for (const auto& [key, value] : {std::pair("buffers_refused", refused_), std::pair("buffers_unknown", foreign_),
                                   std::pair("records_unknown", counts.unknown), std::pair("records_cut", counts.cut),
                                   std::pair("bytes_lost", counts.lost_bytes),
                                   std::pair("without_time", counts.without_time),
                                   std::pair("ranges_open", counts.open_ranges),
                                   std::pair("meanings_lost", forgotten_)}) {
    if (value != 0) number(key, value);
  }
  if (!missing_.empty()) sink_.note("not_recorded", missing_);
  if (monitor_ != nullptr) sink_.note("clocks_by", fmt::format("NVML, every {} ms", options_.monitor_ms));
  if (!ended_early_.empty()) sink_.note("ended_early", ended_early_);
}

}  // namespace kvroof
