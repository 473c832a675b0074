// Hostile and damaged safetensors headers: every rule of the format, and the attacks known from other readers.
#include <filesystem>
#include <set>
#include <span>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/safetensors.hpp"

using namespace kvroof;

namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return text + rest;
}

std::string file_of(const std::string& json, std::size_t data_bytes) {
  return with_length(json.size(), json) + std::string(data_bytes, 'd');
}

Result<SafetensorsHeader> parse(const std::string& text) {
  return parse_safetensors_header(std::as_bytes(std::span(text)), text.size());
}

// The reason for refusing a header over `data_bytes` bytes of data.
std::string refusal(const std::string& json, std::size_t data_bytes) {
  const auto result = parse(file_of(json, data_bytes));
  return result.ok() ? "accepted" : result.error();
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

const std::string kOne = tensor("a", "U8", "[4]", "[0,4]");

}  // namespace

TEST_CASE("hostile safetensors: the length of the header is checked before anything is allocated") {
  CHECK(parse("").error() == "0 bytes are too few for a safetensors file");
  CHECK(parse("1234567").error() == "7 bytes are too few for a safetensors file");
  CHECK(parse(with_length(3, "{}")).error() == "a header of 3 bytes does not fit into a file of 10");
  CHECK(parse(with_length(~std::uint64_t{0}, "{}")).error() ==
        "a header of 18446744073709551615 bytes; at most 100000000 are allowed");
  CHECK(parse(with_length(~std::uint64_t{0} - 7, "{}")).error().ends_with("at most 100000000 are allowed"));
  CHECK(parse(with_length(100'000'001, "{}")).error() == "a header of 100000001 bytes; at most 100000000 are allowed");
  CHECK(parse(with_length(100'000'000, "{}")).error() == "a header of 100000000 bytes does not fit into a file of 10");
  CHECK(parse(with_length(std::uint64_t{2} << 56, "{}"))
            .error()
            .ends_with("at most 100000000 are allowed"));  // other byte order
  CHECK(parse(with_length(0, "")).error() == "the header does not start with '{'");
  CHECK(parse(with_length(2, "{}")).ok());
}

TEST_CASE("hostile safetensors: only one JSON object, padded with spaces, is a header") {
  CHECK(refusal(" {}", 0) == "the header does not start with '{'");
  CHECK(refusal("[]", 0) == "the header does not start with '{'");
  CHECK(refusal("\xef\xbb\xbf{}", 0) == "the header does not start with '{'");
  CHECK(refusal("{}      ", 0) == "accepted");
  CHECK(refusal("{}x", 0).starts_with("the header is not valid JSON"));
  CHECK(refusal("{}{}", 0).starts_with("the header is not valid JSON"));
  CHECK(refusal(std::string("{}\0{}", 5), 0) == "the header holds a zero byte");
  CHECK(refusal("{", 0).starts_with("the header is not valid JSON"));
  CHECK(refusal("{" + kOne + ",}", 4).starts_with("the header is not valid JSON"));
  CHECK(refusal("{/* x */}", 0).starts_with("the header is not valid JSON"));
  CHECK(refusal("{\"\xff\":{}}", 0).starts_with("the header is not valid JSON"));
  CHECK(refusal("{\"a\":1}", 0).find("'a' is a number") == 0);
  CHECK(refusal("{\"a\":null}", 0).find("'a' is null") == 0);
  CHECK(refusal("{\"a\":[]}", 0).find("'a' is an array") == 0);
}

TEST_CASE("hostile safetensors: metadata maps strings to strings, each key once") {
  CHECK(refusal(R"({"__metadata__":{"a":"b","":"c"}})", 0) == "accepted");
  CHECK(refusal(R"({"__metadata__":{"a":1}})", 0) == "__metadata__: 'a' is a number, expected a string");
  CHECK(refusal(R"({"__metadata__":{"a":{}}})", 0) == "__metadata__: 'a' is an object, expected a string");
  CHECK(refusal(R"({"__metadata__":{"a":null}})", 0) == "__metadata__: 'a' is null, expected a string");
  CHECK(refusal(R"({"__metadata__":[]})", 0) == "'__metadata__' is an array, expected an object");
  CHECK(refusal(R"({"__metadata__":{"a":"1","a":"2"}})", 0) == "__metadata__: the key 'a' occurs twice");
  CHECK(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0) == "the name '__metadata__' occurs twice");
}

TEST_CASE("hostile safetensors: a tensor has exactly dtype, shape and data_offsets, each once") {
  CHECK(refusal("{" + kOne + "}", 4) == "accepted");
  CHECK(refusal("{\"t\":{}}", 0) == "tensor 't': dtype, shape or data_offsets is missing");
  CHECK(refusal(R"({"t":{"shape":[0],"data_offsets":[0,0]}})", 0) ==
        "tensor 't': dtype, shape or data_offsets is missing");
  CHECK(refusal(R"({"t":{"dtype":"U8","data_offsets":[0,0]}})", 0) ==
        "tensor 't': dtype, shape or data_offsets is missing");
  CHECK(refusal(R"({"t":{"dtype":"U8","shape":[0]}})", 0) == "tensor 't': dtype, shape or data_offsets is missing");
  CHECK(refusal(R"({"t":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0) ==
        "tensor 't': dtype occurs twice");
  CHECK(refusal(R"({"t":{"shape":[0],"shape":[0],"dtype":"U8","data_offsets":[0,0]}})", 0) ==
        "tensor 't': shape occurs twice");
  CHECK(refusal(R"({"t":{"data_offsets":[0,0],"data_offsets":[0,0]}})", 0) == "tensor 't': data_offsets occurs twice");
  CHECK(refusal(R"({"t":{"strides":[1],"dtype":"U8"}})", 0) == "tensor 't': unknown field 'strides'");
  CHECK(refusal("{" + kOne + "," + kOne + "}", 4) == "the name 'a' occurs twice");
  CHECK(refusal("{" + kOne + R"(,"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 4) ==
        "the name 'a' occurs twice");
}

TEST_CASE("hostile safetensors: element types are known names") {
  for (const char* type : {"F8_E5M2", "f32", "F32 ", "", "C64", "F4"}) {
    CHECK(refusal("{" + tensor("t", type, "[0]", "[0,0]") + "}", 0) ==
          std::string("tensor 't': element type '") + type + "' is not supported");
  }
  CHECK(refusal(R"({"t":{"dtype":1,"shape":[0],"data_offsets":[0,0]}})", 0) == "tensor 't': dtype holds a number");
}

TEST_CASE("hostile safetensors: shapes and offsets are whole numbers from 0 to 2^53, read as integers") {
  const auto shape = [](const std::string& n) {
    return refusal("{" + tensor("t", "U8", "[" + n + "]", "[0,0]") + "}", 0);
  };
  CHECK(shape("-1") == "tensor 't': shape holds a negative number");
  CHECK(shape("-0") == "tensor 't': shape holds a negative number");
  CHECK(shape("1.0") == "tensor 't': shape holds a number that is not a whole one");
  CHECK(shape("1e2") == "tensor 't': shape holds a number that is not a whole one");
  CHECK(shape("1e400").starts_with("the header is not valid JSON"));
  CHECK(shape("18446744073709551616") == "tensor 't': shape holds a number that is not a whole one");
  CHECK(shape("9007199254740993") == "tensor 't': shape is 9007199254740993, above 2^53");
  CHECK(shape("\"4\"") == "tensor 't': shape holds a string");
  CHECK(shape("[4]") == "tensor 't': shape holds an array");
  CHECK(shape("null") == "tensor 't': shape holds null");
  CHECK(shape("true") == "tensor 't': shape holds a truth value");
  CHECK(refusal(R"({"t":{"dtype":"U8","shape":4,"data_offsets":[0,4]}})", 4) == "tensor 't': shape holds a number");
  for (const char* offsets : {"[]", "[0]", "[0,4,4]"}) {
    CHECK(refusal("{" + tensor("t", "U8", "[4]", offsets) + "}", 4).ends_with("expected 2"));
  }
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  CHECK(shape(many) == "tensor 't': more than 64 numbers in shape");
}

TEST_CASE("hostile safetensors: a shape whose size wraps to zero is not an empty tensor") {
  const std::string wraps = "[4294967296,4294967296]";
  CHECK(refusal("{" + tensor("t", "U8", wraps, "[0,0]") + "}", 0) == "tensor 't': the size of its shape overflows");
  CHECK(refusal("{" + tensor("t", "U8", "[4294967296,4294967296,0]", "[0,0]") + "}", 0) ==
        "tensor 't': the size of its shape overflows");
  CHECK(refusal("{" + tensor("t", "F64", "[2305843009213693952]", "[0,0]") + "}", 0).find("above 2^53") !=
        std::string::npos);
  CHECK(refusal("{" + tensor("t", "F64", "[4503599627370496,512]", "[0,0]") + "}", 0) ==
        "tensor 't': the size of its shape overflows");  // the count fits, its bytes do not
  CHECK(refusal("{" + tensor("t", "U8", wraps, "[4096,1048576]") + "}", 16).find("lie outside") != std::string::npos);
}

TEST_CASE("hostile safetensors: offsets stay inside the file and agree with shape and type") {
  CHECK(refusal("{" + tensor("t", "U8", "[8]", "[0,8]") + "}", 4) ==
        "tensor 't': data_offsets [0, 8] lie outside the 4 bytes of data");
  CHECK(refusal("{" + tensor("t", "U8", "[4]", "[4,0]") + "}", 4) ==
        "tensor 't': data_offsets [4, 0] lie outside the 4 bytes of data");
  CHECK(refusal("{" + tensor("t", "U8", "[3]", "[0,4]") + "}", 4) ==
        "tensor 't': shape and type need 3 bytes, data_offsets give 4");
  CHECK(refusal("{" + tensor("t", "F32", "[4]", "[0,4]") + "}", 4) ==
        "tensor 't': shape and type need 16 bytes, data_offsets give 4");
  CHECK(refusal("{" + tensor("t", "U8", "[0]", "[0,4]") + "}", 4) ==
        "tensor 't': shape and type need 0 bytes, data_offsets give 4");
}

TEST_CASE("hostile safetensors: tensors tile the data, holes, overlaps and trailing bytes are refused") {
  const std::string b = tensor("b", "U8", "[4]", "[4,8]");
  CHECK(refusal("{" + b + "," + kOne + "}", 8) == "accepted");
  CHECK(refusal("{" + b + "}", 8).find("must not leave holes") != std::string::npos);
  CHECK(refusal("{" + kOne + "," + tensor("b", "U8", "[4]", "[5,9]") + "}", 9).find("must not leave holes") !=
        std::string::npos);
  CHECK(refusal("{" + kOne + "," + tensor("b", "U8", "[4]", "[2,6]") + "}", 6).find("must not overlap") !=
        std::string::npos);
  CHECK(refusal("{" + kOne + "," + tensor("b", "U8", "[4]", "[0,4]") + "}", 4).find("must not overlap") !=
        std::string::npos);
  CHECK(refusal("{" + kOne + "," + tensor("b", "U8", "[0]", "[2,2]") + "}", 4).find("must not overlap") !=
        std::string::npos);
  CHECK(refusal("{" + kOne + "}", 5) == "1 bytes of data belong to no tensor");
  CHECK(refusal("{}", 1) == "1 bytes of data belong to no tensor");
}

TEST_CASE("hostile safetensors: deep nesting costs neither stack nor time") {
  const std::string brackets(5'000'000, '[');
  CHECK(refusal("{\"t\":{\"dtype\":\"U8\",\"shape\":" + brackets + "}}", 0) == "tensor 't': shape holds an array");
  std::string objects = "{";
  for (int i = 0; i < 500'000; ++i) objects += "\"a\":{";
  CHECK(refusal(objects, 0) == "tensor 'a': unknown field 'a'");
}

TEST_CASE("hostile safetensors: a million tensors are read, one more is refused") {
  std::string json = "{";
  for (int i = 0; i < 1'000'000; ++i) {
    json += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  CHECK(refusal(json + "}", 0) == "accepted");
  CHECK(refusal(json + R"(,"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0) == "more than 1000000 tensors");
}

TEST_CASE("hostile safetensors: every truncation of a file is refused") {
  const std::string whole =
      file_of(R"({"__metadata__":{"k":"v"},)" + kOne + "," + tensor("b", "F32", "[2]", "[4,12]") + "}  ", 12);
  REQUIRE(parse(whole).ok());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    INFO("cut to " << n << " bytes");
    CHECK_FALSE(parse(whole.substr(0, n)).ok());
  }
}

TEST_CASE("hostile safetensors: whatever bit flips, the header is refused or still tiles the file") {
  const std::string whole =
      file_of(R"({"__metadata__":{"k":"v"},)" + kOne + "," + tensor("b", "F32", "[2]", "[4,12]") + "}  ", 12);
  const std::size_t header_end = whole.size() - 12;
  for (std::size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto result = parse(flipped);
    if (!result.ok()) continue;
    INFO("bit " << bit);
    // Only names, metadata and types of equal size can change unnoticed: the layout cannot.
    REQUIRE(result.value().tensors.size() == 2);
    CHECK(result.value().tensors[0].offset == header_end);
    CHECK(result.value().tensors[0].bytes == 4);
    CHECK(result.value().tensors[1].offset == header_end + 4);
    CHECK(result.value().tensors[1].bytes == 8);
  }
}

TEST_CASE("hostile safetensors: folders, pipes and missing files are refused without waiting") {
  test::TemporaryFolder folder;
  CHECK(SafetensorsFile::open(folder.path()).error() == "a folder, expected a file");
  CHECK(SafetensorsFile::open(folder.path() / "absent").error() == "cannot open: No such file or directory");
  CHECK(SafetensorsFile::open("/dev/zero").error() == "not a regular file");
  test::write_file(folder.path() / "short", "abc");
  CHECK(SafetensorsFile::open(folder.path() / "short").error() == "3 bytes are too few for a safetensors file");
}
