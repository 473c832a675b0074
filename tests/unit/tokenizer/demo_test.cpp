// The demo model's prompts have the ids that its reference results were computed from.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/tokenizer/tokenizer.hpp"
#include "tests/catch.hpp"

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// One int64 tensor of a safetensors file: 8 bytes of header length, header, data.
std::vector<std::int64_t> int64_tensor(const std::string& bytes, const std::string& name) {
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_size));
  const auto offsets = header.at(name).at("data_offsets").get<std::vector<std::size_t>>();
  std::vector<std::int64_t> values((offsets[1] - offsets[0]) / sizeof(std::int64_t));
  std::memcpy(values.data(), bytes.data() + 8 + header_size + offsets[0], offsets[1] - offsets[0]);
  return values;
}

}  // namespace

TEST_CASE("the demo prompts give the ids of the reference run, begin of text first, and decode back") {
  const std::filesystem::path demo = KVROOF_SOURCE_DIR "/models/demo";
  const auto tokenizer = kvroof::Tokenizer::load(demo / "tokenizer.json");
  const std::string reference = read_file(demo / "reference.safetensors");
  int prompts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(demo / "prompts")) {
    INFO(entry.path());
    const std::string text = read_file(entry.path());
    const auto ids = tokenizer.encode(text, true);
    CHECK(ids == int64_tensor(reference, entry.path().stem().string() + ".ids"));
    CHECK(tokenizer.decode(ids, true) == text);
    ++prompts;
  }
  CHECK(prompts == 5);
}
