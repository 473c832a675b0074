#include <fstream>

#include "sim/model/gguf.hpp"

namespace kvroof {

GgufModel load_gguf(const std::filesystem::path& path) {
  constexpr std::uint64_t kFirst = 1U << 20;
  constexpr std::uint64_t kLongestHeader = 1U << 30;
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) throw Error(fmt::format("{}: cannot be read", path.string()));
  std::vector<char> head;
  for (std::uint64_t wanted = kFirst;; wanted *= 4) {
    const auto have = static_cast<std::uint64_t>(head.size());
    head.resize(static_cast<std::size_t>(std::min(wanted, size)));
    if (!file.read(head.data() + have, static_cast<std::streamsize>(head.size() - have))) {
      throw Error(fmt::format("{}: cannot be read", path.string()));
    }
    auto header = parse_gguf_header(std::as_bytes(std::span(head)), size).or_throw(path.string(), ExitCode::kUsage);
    if (header) {
      GgufModel model = gguf_model(*header).or_throw(path.string(), ExitCode::kUsage);
      if (model.shape.name.empty()) model.shape.name = path.stem().string();
      return model;
    }
    if (wanted >= kLongestHeader) {
      throw usage_error(fmt::format("{}: its header is longer than 1 GiB", path.string()));
    }
  }
}

}  // namespace kvroof
