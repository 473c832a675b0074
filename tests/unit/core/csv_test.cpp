#include "sim/core/csv.hpp"

#include "tests/catch.hpp"

namespace kvroof {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// All records, the header first; or the failure as the only field.
Rows read(std::string_view text, CsvReader::Comments comments = CsvReader::Comments::kNone) {
  Result<CsvReader> csv = CsvReader::open(text, comments);
  if (!csv) return {{csv.error()}};
  CsvReader& reader = csv.value();
  const std::size_t columns = reader.columns().size();
  Rows rows = {{reader.columns().begin(), reader.columns().end()}};
  const auto problem = reader.for_each_row([&](const CsvRow& row) {
    rows.emplace_back();
    for (std::size_t i = 0; i < columns; ++i) rows.back().push_back(row[i]);
    return std::string();
  });
  return problem ? Rows{{problem->message}} : rows;
}

// Of a table that is refused.
std::string why(std::string_view text) {
  const Rows rows = read(text);
  return rows.size() == 1 && rows[0].size() == 1 ? rows[0][0] : "read";
}

TEST_CASE("the examples of RFC 4180 are read as it says") {
  // Section 2, rules 1 to 3, with the header of rule 3.
  const Rows plain = {{"field_1", "field_2", "field_3"}, {"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}};
  CHECK(read("field_1,field_2,field_3\r\naaa,bbb,ccc\r\nzzz,yyy,xxx\r\n") == plain);
  CHECK(read("field_1,field_2,field_3\r\naaa,bbb,ccc\r\nzzz,yyy,xxx") == plain);
  // Rules 5, 6 and 7.
  CHECK(read("\"field_1\",\"field_2\",\"field_3\"\r\n\"aaa\",\"bbb\",\"ccc\"\r\nzzz,yyy,xxx") == plain);
  CHECK(read("a,b,c\r\n\"aaa\",\"b\r\nbb\",\"ccc\"\r\nzzz,yyy,xxx")[1] == Rows::value_type{"aaa", "b\r\nbb", "ccc"});
  CHECK(read("a,b,c\r\n\"aaa\",\"b\"\"bb\",\"ccc\"")[1] == Rows::value_type{"aaa", "b\"bb", "ccc"});
}

TEST_CASE("a quoted field may be empty, hold nothing but quotes or commas, and be the last of its line") {
  CHECK(read("a,b\n\"\",\"\"\"\"\n\",\",\"\"\"\"\"\"\n") == Rows{{"a", "b"}, {"", "\""}, {",", "\"\""}});
}

TEST_CASE("unquoted blanks around a field are none of it, quoted ones are") {
  CHECK(read(" a ,\tb\n 1 , \" 2 \" \n") == Rows{{"a", "b"}, {"1", " 2 "}});
  CHECK(read("a,b\n1 2,\n") == Rows{{"a", "b"}, {"1 2", ""}});
}

TEST_CASE("a quote inside a field that does not begin with one is a letter") {
  CHECK(read("a,b\n5\" disk,the \"fast\" one\n") == Rows{{"a", "b"}, {"5\" disk", "the \"fast\" one"}});
  CHECK(read("a,b\n\"x\"y,\"x\" y z \n") == Rows{{"a", "b"}, {"xy", "x y z"}});
}

TEST_CASE("blank lines and, where asked for, comments are skipped before the header and among the rows") {
  const Rows rows = {{"a", "b"}, {"1", "2"}, {"#3", "4"}};
  CHECK(read("\n \r\na,b\n\n1,2\n\t\n\"#3\",4\n\n") == rows);
  CHECK(read("# c, \"d\na,b\n1,2\n#,\n\"#3\",4\n# end", CsvReader::Comments::kHash) == rows);
  CHECK(read("# a,b\n1,2\n") == Rows{{"# a", "b"}, {"1", "2"}});
  // A line inside quotes is neither.
  CHECK(read("a,b\n1,\"\n\n# 2\"\n", CsvReader::Comments::kHash) == Rows{{"a", "b"}, {"1", "\n\n# 2"}});
}

TEST_CASE("the mark of UTF-8 is nothing, UTF-16 is refused") {
  CHECK(read("\xef\xbb\xbf\"a\",b\n") == Rows{{"a", "b"}});
  CHECK(why(std::string_view("\xff\xfe" "a\0", 4)) == "it is UTF-16, expected UTF-8");
  CHECK(why(std::string_view("\xfe\xff\0a", 4)) == "it is UTF-16, expected UTF-8");
}

TEST_CASE("a file without a header is refused") {
  for (const char* const empty : {"", "\xef\xbb\xbf", "\r\n \n"}) CHECK(why(empty) == "the file is empty");
  CHECK(read("# one\n", CsvReader::Comments::kHash) == Rows{{"no line names the columns"}});
}

TEST_CASE("what else separates the fields of a header is named") {
  CHECK(why("\na;b\n1;2\n") == "line 2: its fields are separated by semicolons, expected commas");
  CHECK(why("a\tb\n") == "line 1: its fields are separated by tabs, expected commas");
  CHECK(read("a;b,c\n") == Rows{{"a;b", "c"}});
  CHECK(read("alone\n1\n") == Rows{{"alone"}, {"1"}});
}

TEST_CASE("failures name the line of the file, whatever quotes, blank lines and comments are above it") {
  CHECK(why("a,b\n\n\"1\n\n1\",2\n1,2,3\n") ==
        "line 6: 3 fields, but the header has 2; a field with a comma is quoted");
  CHECK(why("a,b\r\n1\r\n") == "line 2: 1 fields, but the header has 2");
  CHECK(why("a,\"b\n1,2\n") == "line 1: a quote is never closed");
  CHECK(why("a,b\n1,2\n\"3\n3\",\"4,\n5,6\n") == "line 4: a quote is never closed");
  CHECK(why("a,b\n1,\"2\"\"\n") == "line 2: a quote is never closed");
  CHECK(why("a,b\n1,\"2\n\"\"3\n") == "line 2: a quote is never closed");
  CsvReader reader = CsvReader::open("a\n1\n\"2\n2\"\n3\n").or_throw("csv");
  const auto problem = reader.for_each_row([](const CsvRow& row) { return row["a"] == "3" ? "a is 3" : ""; });
  REQUIRE(problem);
  CHECK(problem->message == "line 5: a is 3");
}

TEST_CASE("a failure does not repeat what may be long") {
  const std::string name(1000, 'x');
  const std::string text = name + "," + name + "\n";
  const CsvReader reader = CsvReader::open(text).or_throw("csv");
  CHECK(reader.require({})->message == "line 1: the column " + name.substr(0, 40) + " is there twice");
}

TEST_CASE("columns are found by their names in any order, those that are needed are there, and none is twice") {
  constexpr std::string_view kNeeded[] = {"b", "a"};
  const auto missing = [&](std::string_view text) {
    const auto problem = CsvReader::open(text).or_throw("csv").require(kNeeded);
    return problem ? problem->message : "";
  };
  CHECK(missing("c,a,b\n").empty());
  CHECK(missing("a,,b,\n").empty());  // columns without names, which spreadsheets add
  CHECK(missing("\n\na,B\n") == "line 3: the column b is missing");
  CHECK(missing("c\n") == "line 1: the columns b, a are missing");
  CHECK(missing("a,b,a\n") == "line 1: the column a is there twice");
  CsvReader reader = CsvReader::open("b,a\n1,2\n").or_throw("csv");
  CHECK(reader.find("a") == 1);
  CHECK_FALSE(reader.find("A"));
  CHECK_FALSE(reader.for_each_row([](const CsvRow& row) {
    CHECK(row["b"] == "1");
    CHECK(row["a"] == "2");
    CHECK(row["c"].empty());
    return "";
  }));
}

}  // namespace
}  // namespace kvroof
