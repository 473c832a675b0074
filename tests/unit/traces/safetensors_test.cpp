#include "traces/safetensors.hpp"

#include <unistd.h>

#include <array>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"

using namespace kvroof;
using kvroof::test::has_part_file;
using kvroof::test::slurp;
using kvroof::test::TemporaryFolder;
using kvroof::test::write_file;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// A file laid out by hand from the description of the format.
std::string file_of(const std::string& json, const std::string& data) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(json.size() >> (8 * i));
  return text + json + data;
}

}  // namespace

TEST_CASE("a safetensors file written by hand is read: types, shapes, metadata, data") {
  TemporaryFolder folder;
  const std::string data(
      "\x00\x00\x80\x3f\x00\x00\x00\xc0"
      "\x80\x3f\x00\xc0"
      "\x00\x3c\x00\xc0"
      "\xff\xff\xff\xff\x02\x00\x00\x00",
      24);
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"h":{"dtype":"F16","shape":[2],"data_offsets":[12,16]},)"
      R"("f":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
      R"("i":{"dtype":"I32","shape":[2],"data_offsets":[16,24]},)"
      R"("none":{"dtype":"U8","shape":[0,3],"data_offsets":[8,8]}}   )";
  write_file(folder.path() / "a.safetensors", file_of(json, data));
  const SafetensorsFile file = SafetensorsFile::open(folder.path() / "a.safetensors").or_throw("a");
  CHECK(file.header().metadata.at("format") == "pt");
  REQUIRE(file.header().tensors.size() == 5);
  CHECK(file.header().tensors[0].name == "f");
  CHECK(file.header().tensors[1].name == "none");
  const std::vector<float> expected{1.0F, -2.0F};
  for (const char* name : {"f", "b", "h"}) CHECK(file.read_floats(*file.header().find(name)) == expected);
  CHECK(file.header().find("f")->shape == std::vector<std::uint64_t>{2, 1});
  CHECK(file.read_integers(*file.header().find("i")) == std::vector<std::int64_t>{-1, 2});
  CHECK(file.read_floats(TensorInfo{"none", DType::kF32, {0}, 8, 0}).empty());
  CHECK(file.header().find("missing") == nullptr);
  CHECK_THROWS_AS(file.read_floats(*file.header().find("i")), Error);
  CHECK_THROWS_AS(file.read_integers(*file.header().find("f")), Error);
}

TEST_CASE("a scalar has an empty shape and one element") {
  const std::string text = file_of(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", std::string(8, 'x'));
  const auto header = parse_safetensors_header(bytes_of(text), text.size()).or_throw("scalar");
  CHECK(header.tensors[0].elements() == 1);
  CHECK(header.tensors[0].offset == text.size() - 8);
}

TEST_CASE("what the safetensors writer wrote is read back, and the same input gives the same bytes") {
  TemporaryFolder folder;
  const std::array<float, 6> values{1, 2, 3, 4, 5, -6.5F};
  const std::array<std::int64_t, 2> ids{7, -1};
  const std::array<TensorToWrite, 3> tensors{{{"ids", DType::kI64, {2}, std::as_bytes(std::span(ids))},
                                              {"q\"uoted", DType::kF32, {2, 3}, std::as_bytes(std::span(values))},
                                              {"empty", DType::kBF16, {0}, {}}}};
  const std::map<std::string, std::string> metadata{{"k", "a \"b\"\n\xc3\xa9"}};
  const auto hash = write_safetensors(folder.path() / "1.safetensors", tensors, metadata);
  CHECK(write_safetensors(folder.path() / "2.safetensors", tensors, metadata) == hash);
  const std::string text = slurp(folder.path() / "1.safetensors");
  CHECK(text == slurp(folder.path() / "2.safetensors"));
  const SafetensorsFile file = SafetensorsFile::open(folder.path() / "1.safetensors").or_throw("1");
  CHECK(file.header().metadata == metadata);
  CHECK(file.header().tensors[0].offset % 8 == 0);
  CHECK(file.read_floats(*file.header().find("q\"uoted")) == std::vector<float>(values.begin(), values.end()));
  CHECK(file.read_integers(*file.header().find("ids")) == std::vector<std::int64_t>{7, -1});
  CHECK_FALSE(has_part_file(folder.path()));
}

TEST_CASE("the safetensors writer that fails leaves no file behind") {
  TemporaryFolder folder;
  const auto path = folder.path() / "taken";
  std::filesystem::create_directory(path);  // a folder cannot be replaced by a file
  CHECK_THROWS_AS(write_safetensors(path, {}, {}), Error);
  CHECK_FALSE(has_part_file(folder.path()));
  CHECK_THROWS_AS(write_safetensors(folder.path() / "absent" / "x", {}, {}), Error);
}

TEST_CASE("a safetensors file that shrinks after it was opened gives an error, not a signal") {
  TemporaryFolder folder;
  const std::array<float, 4> values{1, 2, 3, 4};
  const std::array<TensorToWrite, 1> tensors{{{"x", DType::kF32, {4}, std::as_bytes(std::span(values))}}};
  const auto path = folder.path() / "x.safetensors";
  write_safetensors(path, tensors, {});
  const SafetensorsFile file = SafetensorsFile::open(path).or_throw("x");
  REQUIRE(truncate(path.c_str(), 79) == 0);
  CHECK_THROWS_AS(file.read_floats(file.header().tensors[0]), Error);
}

TEST_CASE("reference files of another safetensors writer are read") {
  const std::filesystem::path path = std::string(KVROOF_SOURCE_DIR) + "/models/demo/model.safetensors";
  const SafetensorsFile file = SafetensorsFile::open(path).or_throw(path.string());
  CHECK(file.header().find("model.embed_tokens.weight") != nullptr);
}
