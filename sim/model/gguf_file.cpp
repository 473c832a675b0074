#include <span>
#include <vector>

#include "sim/core/files.hpp"
#include "sim/model/gguf.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

GgufHeader read_header(const fs::path& path) {
  constexpr std::uint64_t kFirst = 1U << 20;
  constexpr std::uint64_t kLongestHeader = 1U << 30;
  const OpenFile file = open_file(path).or_throw(path.string());
  std::vector<std::byte> head;
  for (std::uint64_t wanted = kFirst;; wanted *= 4) {
    const std::size_t have = head.size();
    head.resize(static_cast<std::size_t>(std::min(wanted, file.size)));
    if (const auto problem = read_at(file, have, std::span(head).subspan(have))) {
      throw Error(fmt::format("{}: {}", path.string(), problem->message));
    }
    auto header = parse_gguf_header(head, file.size).or_throw(path.string(), ExitCode::kUsage);
    if (header) return std::move(*header);
    if (wanted >= kLongestHeader) {
      throw usage_error(fmt::format("{}: its header is longer than 1 GiB", path.string()));
    }
  }
}

// Parts are named …-00001-of-00003.gguf. The first has the metadata, each the tensors whose data it holds.
void join_parts(const fs::path& path, GgufHeader& first) {
  const std::uint64_t parts = split_count(first);
  const std::string of = fmt::format("-of-{:05}.gguf", parts);
  const std::string name = path.filename().string();
  const std::string one = "-00001" + of;
  if (!name.ends_with(one)) {
    throw usage_error(fmt::format("{}: a part of a split model; give the first of its {} parts, by the name …{}",
                                  path.string(), parts, one));
  }
  for (std::uint64_t part = 2; part <= parts; ++part) {
    const fs::path next =
        path.parent_path() / fmt::format("{}-{:05}{}", name.substr(0, name.size() - one.size()), part, of);
    const GgufHeader header = read_header(next);
    first.tensors.insert(first.tensors.end(), header.tensors.begin(), header.tensors.end());
  }
  first.values.erase("split.count");
}

}  // namespace

GgufModel load_gguf(const fs::path& path) {
  GgufHeader header = read_header(path);
  if (split_count(header) > 1) join_parts(path, header);
  GgufModel model = gguf_model(header).or_throw(path.string(), ExitCode::kUsage);
  if (model.shape.name.empty()) model.shape.name = path.stem().string();
  return model;
}

}  // namespace kvroof
