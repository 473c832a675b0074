// A back end that notes how many bytes of KV each sequence holds while another one does the work.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/engine/backend.hpp"

namespace kvroof {

// Every call goes on to `inner`, which must outlive this.
class MeteredBackend final : public Backend {
 public:
  explicit MeteredBackend(Backend& inner) : inner_(inner) {}

  // Bytes of KV that a sequence holds after a decode step, mean over steps and sequences; nothing before the first.
  [[nodiscard]] std::optional<double> resident_bytes() const {
    if (entries_ == 0) return std::nullopt;
    return static_cast<double>(resident_) / static_cast<double>(entries_);
  }

  void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested_new_tokens,
               std::span<float> last, const LogitsSink& all) override {
    inner_.prefill(sequence, ids, requested_new_tokens, last, all);
  }
  void decode(std::span<const DecodeEntry> batch, std::span<float> logits) override {
    inner_.decode(batch, logits);
    note(batch);
  }
  bool decode_greedily(std::span<const DecodeEntry> batch, std::span<TokenChoice> choices) override {
    if (!inner_.decode_greedily(batch, choices)) return false;
    note(batch);
    return true;
  }
  void release(std::uint32_t sequence) override { inner_.release(sequence); }
  [[nodiscard]] KvUsage kv_usage() const override { return inner_.kv_usage(); }
  ByteCounters take_counters() override { return inner_.take_counters(); }
  void set_recorder(Recorder* recorder) override { inner_.set_recorder(recorder); }
  void set_observer(LaunchObserver* observer) override { inner_.set_observer(observer); }
  [[nodiscard]] LinearFacts linear_facts() const override { return inner_.linear_facts(); }
  void set_interrupt(const std::atomic<bool>* asked) override { inner_.set_interrupt(asked); }

 private:
  void note(std::span<const DecodeEntry> batch) {
    resident_ += inner_.kv_usage().resident_bytes;
    entries_ += batch.size();
  }

  Backend& inner_;
  std::uint64_t resident_ = 0;
  std::uint64_t entries_ = 0;
};

}  // namespace kvroof
