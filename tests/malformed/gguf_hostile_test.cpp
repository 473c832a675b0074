// Hostile GGUF headers: each is refused with one sentence, before anything is allocated for it.
#include "sim/model/gguf.hpp"
#include "tests/catch.hpp"
#include "tests/support/gguf_bytes.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::string refusal(const std::string& head, std::uint64_t file_size) {
  const auto header = parse_gguf_header(std::as_bytes(std::span(head)), file_size);
  return header.ok() ? "accepted" : header.error();
}
std::string refusal(const GgufBytes& file) { return refusal(file.header(), file.file_size()); }

const std::string kHuge = GgufBytes::raw(~std::uint64_t{0});

}  // namespace

TEST_CASE("Another magic, version or byte order is no GGUF file") {
  CHECK(refusal("PK\3\4....", 8) == "not a GGUF file: it does not begin with 'GGUF'");
  CHECK(refusal(GgufBytes(1)) == "GGUF version 1 is not supported, only 2 and 3");
  CHECK(refusal(GgufBytes(4)) == "GGUF version 4 is not supported, only 2 and 3");
  CHECK(refusal(GgufBytes(0x03000000)) == "a big-endian GGUF file, which is not supported");
  CHECK(refusal("", 0) == "the file ends within its header");
  CHECK(refusal("GGUF", 4) == "the file ends within its header");
}

TEST_CASE("Counts and lengths beyond the file are refused before they are used") {
  const std::string start = "GGUF" + GgufBytes::raw(std::uint32_t{3});
  CHECK(refusal(start + kHuge + GgufBytes::raw(std::uint64_t{0}), 1 << 20).find("tensors cannot be in a file") !=
        std::string::npos);
  CHECK(refusal(start + GgufBytes::raw(std::uint64_t{0}) + kHuge, 1 << 20).find("metadata values cannot be") !=
        std::string::npos);
  const std::string one = start + GgufBytes::raw(std::uint64_t{0}) + GgufBytes::raw(std::uint64_t{1});
  CHECK(refusal(one + kHuge, 1 << 20).find("goes beyond the end of the file") != std::string::npos);
  CHECK(refusal(GgufBytes().value("k", 8, kHuge)).find("'k': a text of 18446744073709551615 bytes") == 0);
  CHECK(refusal(GgufBytes().list("k", 10, ~std::uint64_t{0} / 4, "")).find("goes beyond the end") != std::string::npos);
  CHECK(refusal(GgufBytes().list("k", 8, 1, kHuge)).find("goes beyond the end") != std::string::npos);
  CHECK(refusal(GgufBytes().value("", 4, GgufBytes::raw(1))) == "a metadata key of 0 bytes, expected 1 to 65535");
}

TEST_CASE("Unknown and nested values, doubled keys and bad truths are refused by name") {
  CHECK(refusal(GgufBytes().value("k", 13, "")) == "'k' has the unknown value type 13");
  CHECK(refusal(GgufBytes().list("k", 9, 1, "")) == "'k' is a list of the unknown value type 9");
  CHECK(refusal(GgufBytes().value("k", 7, "\2")) == "'k' is 2, expected 0 or 1");
  CHECK(refusal(GgufBytes().size("k", 1).size("k", 1)) == "the metadata key 'k' occurs twice");
  CHECK(refusal(GgufBytes().size("general.alignment", 33).tensor("t", {1}, 0, 4)).find("power of two") !=
        std::string::npos);
  CHECK(refusal(GgufBytes().size("general.alignment", 0)).find("power of two") != std::string::npos);
}

TEST_CASE("Tensors with impossible shapes, types or places are refused by name") {
  const auto tensor = [](const std::vector<std::uint64_t>& dims, std::uint32_t type = 0, std::uint64_t bytes = 4) {
    return refusal(GgufBytes().tensor("t", dims, type, bytes));
  };
  CHECK(tensor({1, 1, 1, 1, 1}) == "tensor 't' has 5 dimensions, expected at most 4");
  CHECK(tensor({1}, 31) == "tensor 't' has the type 31, which is not known here");
  CHECK(tensor({0}) == "tensor 't' has an impossible shape");
  CHECK(tensor({std::uint64_t{1} << 33, std::uint64_t{1} << 33}) == "tensor 't' has an impossible shape");
  CHECK(tensor({std::uint64_t{1} << 62}) == "tensor 't' is larger than the file");
  CHECK(tensor({33}, 2) == "tensor 't': rows of 33 do not fill blocks of 32 (q4_0)");
  CHECK(tensor({16}, 0, 32) == "tensor 't' ends outside the file, which may be cut off");
  CHECK(tensor({}, 0, 4) == "accepted");  // a scalar
  GgufBytes file;
  file.tensor("a", {8}, 0, 32).tensor("a", {8}, 0, 32);
  CHECK(refusal(file) == "the tensor 'a' occurs twice");
  GgufBytes overlap;
  overlap.tensor("a", {16}, 0, 32).tensor("b", {16}, 0, 64);
  CHECK(refusal(overlap) == "tensor 'b' overlaps the one before it");
  GgufBytes odd;
  odd.tensor("a", {8}, 0, 32);
  odd.offset += 8;
  odd.tensor("b", {8}, 0, 32);
  CHECK(refusal(odd) == "tensor 'b' begins at 40, not a multiple of 32");
}

TEST_CASE("kvroof models show answers a damaged GGUF file in one sentence and a good one in a row") {
  const TemporaryFolder folder;
  const GgufBytes file = llama_gguf({}, 8, 32, 34);
  std::string bytes = file.header();
  bytes.resize(file.file_size());
  std::ofstream(folder.file("good.gguf"), std::ios::binary) << bytes;
  std::ofstream(folder.file("cut.gguf"), std::ios::binary) << bytes.substr(0, bytes.size() - 64);
  std::ofstream(folder.file("short.gguf"), std::ios::binary) << bytes.substr(0, 1000);
  const Ran good = run_program("models show " + folder.file("good.gguf") + " --format csv --context 10");
  INFO(good.err);
  CHECK(good.code == 0);
  // 2 layers · 30,720 and 2 · 3,200 elements in q8_0, 5 norms of 64 in f32; k and v of 2 layers, 2 heads, 16 in f16.
  const std::uint64_t q8 = (2 * 30720 + 2 * 3200) / 32 * 34;
  CHECK(good.out.find("tiny,68160,q8_0:" + std::to_string(q8) + " f32:1280," + std::to_string(q8 + 1280) +
                      ",f16,1,10,256,2560,") != std::string::npos);
  for (const auto& [name, expected] : {std::pair("cut", "ends outside the file, which may be cut off"),
                                       std::pair("short", "is larger than the file")}) {
    const Ran ran = run_program("models show " + folder.file(name + std::string(".gguf")));
    INFO(ran.err);
    CHECK(ran.code == 2);
    CHECK(ran.out.empty());
    CHECK(ran.err.find(expected) != std::string::npos);
  }
  const Ran projected = run_program("models show " + folder.file("good.gguf") + " --dtype f16");
  CHECK(projected.code == 2);
}

TEST_CASE("the parts of a split GGUF model are read from the first, and one that is missing is named") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const GgufBytes& file) {
    std::string bytes = file.header();
    bytes.resize(file.file_size());
    std::ofstream(folder.file(name), std::ios::binary) << bytes;
  };
  GgufBytes first = llama_gguf({}, 1, 1, 2);
  first.value("split.count", 2, GgufBytes::raw(std::uint16_t{2}));
  GgufBytes second;
  second.tensor("rope_freqs.weight", {8}, 0, 32);
  write("tiny-00001-of-00002.gguf", first);
  const Ran alone = run_program("models show " + folder.file("tiny-00001-of-00002.gguf"));
  CHECK(alone.code == 1);
  CHECK(alone.err.find("tiny-00002-of-00002.gguf: cannot open: No such file") != std::string::npos);
  write("tiny-00002-of-00002.gguf", second);
  const Ran both = run_program("models show " + folder.file("tiny-00001-of-00002.gguf") + " --format csv --context 10");
  INFO(both.err);
  CHECK(both.code == 0);
  // The matrices of the first part in f16, five norms and the second part in f32.
  CHECK(both.out.find("tiny,68160,f16:" + std::to_string(2 * (2 * 30720 + 2 * 3200)) + " f32:1312,") !=
        std::string::npos);
  const Ran last = run_program("models show " + folder.file("tiny-00002-of-00002.gguf"));
  CHECK(last.code == 2);
}
