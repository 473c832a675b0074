// RowCache: the attention rows of a trace at one byte a weight, in a folder; the first replay that asks for them makes
// them, later ones read them in place of q · k.
//
// A file for each layer of each sequence, `s<id>.l<layer>.safetensors`: `codes`, U8 [Σ rows · heads · (position + 1)],
// row after row, [heads][position + 1] each (row_codes.hpp); `peaks`, F32 [tokens, heads, 4], of each row the exact sum
// of its exponentials, the token with the largest, the exponential to be used for it, and what makes logits of their
// logarithms: a token's weight is its code's / sum, the largest one's exponential / sum; `checksum`, U8 [8],
// XXH3-64 of all before it. Its metadata name the trace by the checksum of its seal. That is half a byte a head and
// pair of tokens: for contexts of some thousands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/files.hpp"
#include "sim/core/ids.hpp"
#include "sim/core/thread_pool.hpp"
#include "sim/replay/exact_rows.hpp"
#include "sim/replay/row_codes.hpp"
#include "traces/checksum.hpp"
#include "traces/reader.hpp"
#include "traces/safetensors.hpp"

namespace kvroof {

class RowCache {
 public:
  // Makes the folder. Throws Error where it cannot, and where what is missing is more than the disk has room for.
  RowCache(const TraceReader& trace, std::filesystem::path folder);
  // Bytes of the rows that were not there.
  [[nodiscard]] std::uint64_t missing_bytes() const { return missing_bytes_; }

  // The rows of a layer follow, in blocks. Returns whether they are made, so that every one has to be asked for, from
  // the first to the last. `layer` stays alive. Throws Error for a damaged file.
  bool start_layer(std::uint32_t sequence, LayerId number, const TraceLayer& layer, std::uint32_t tokens);
  // ExactRows::compute(), of the logits that the codes stand for.
  void compute(ExactRows& rows, std::uint32_t first, std::uint32_t count, std::span<const std::byte> q,
               RowsWanted wanted, ThreadPool& pool);

 private:
  [[nodiscard]] bool makes() const { return part_.has_value(); }
  void finish_layer();
  [[nodiscard]] std::filesystem::path path_of(std::uint32_t sequence, std::uint32_t layer) const;
  [[nodiscard]] std::vector<TensorToWrite> tensors() const;
  [[nodiscard]] std::map<std::string, std::string> metadata() const;
  void open(const std::filesystem::path& path);
  void make(ExactRows& rows, std::uint32_t first, std::uint32_t count, std::span<const std::byte> q, ThreadPool& pool);
  // Of one row of the block from `first` on.
  std::span<std::uint8_t> codes_of(std::uint32_t first, std::uint32_t position, std::size_t head);
  void put(std::span<const std::byte> bytes);

  std::filesystem::path folder_;
  std::string trace_;  // checksum of its seal
  std::uint64_t missing_bytes_ = 0;
  // Of the layer at hand.
  const TraceLayer* layer_ = nullptr;
  std::uint32_t tokens_ = 0;
  std::optional<SafetensorsFile> file_;  // that is read
  std::optional<AtomicFile> part_;       // that is made
  std::unique_ptr<Xxh3> hash_;
  RowEncoder encoder_;
  std::vector<float> peaks_;          // [tokens, heads, kPeakColumns]
  std::vector<std::uint8_t> codes_;   // of the block
  std::vector<float> logits_;         // of the block, as ExactRows lays them out
};

}  // namespace kvroof
