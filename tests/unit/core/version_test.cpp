// The order of versions of engines, as tables of measurements state them.
#include "sim/core/version.hpp"

#include "tests/catch.hpp"

namespace kvroof {

TEST_CASE("versions come in the order of their numbers, candidates before their release") {
  CHECK(earlier_version("0.7.1", "0.8"));
  CHECK_FALSE(earlier_version("0.17", "0.8"));
  CHECK_FALSE(earlier_version("0.8", "0.8"));
  CHECK_FALSE(earlier_version("0.8.0", "0.8"));
  CHECK(earlier_version("v1.2.0rc5", "1.3.0rc20"));
  CHECK(earlier_version("1.3.0rc3", "1.3.0rc20"));
  CHECK(earlier_version("1.3.0rc20", "1.3.0"));
  CHECK_FALSE(earlier_version("1.3.0", "1.3.0rc20"));
}

TEST_CASE("what comes before a release is before it however many numbers it states, in the order of its stages") {
  for (const char* candidate : {"1.0rc1", "1.0.0rc1", "1.0.0-rc.1", "1.0b2", "1.0.0a1", "1.0.0.dev2024022000"}) {
    INFO(candidate);
    CHECK(is_version(candidate));
    CHECK(earlier_version(candidate, "1.0"));
    CHECK_FALSE(earlier_version("1.0", candidate));
    CHECK(earlier_version("0.99.9", candidate));
  }
  CHECK(earlier_version("1.0.dev9", "1.0a1"));
  CHECK(earlier_version("1.0a9", "1.0beta1"));
  CHECK(earlier_version("1.0b9", "1.0rc1"));
  CHECK_FALSE(earlier_version("1.0alpha1", "1.0a1"));
  CHECK(earlier_version("0.9", "0.10"));
  CHECK_FALSE(earlier_version("0.10", "0.9"));
}

TEST_CASE("a version by itself has nothing behind it but what projects add, and a text may go on behind its version") {
  for (const char* version :
       {"v0.6.3", "0.6.3.post1", "1.2.0rc6.post1", "0.6.3+cu121", "0.1.2.3", "b2822", "~2024-05"}) {
    INFO(version);
    CHECK(is_version(version));
  }
  for (const char* more : {"0.2.banana", "0.2 banana", "0.6@0.2", "b12x", "2024-05-08T10", "0.6.3.post"}) {
    INFO(more);
    CHECK_FALSE(is_version(more));
    CHECK(version_kind(more).has_value());
  }
  CHECK(earlier_version("0.6.3 (V0)", "0.8.0"));
  CHECK_FALSE(earlier_version("0.6.3.post1", "0.6.3"));
  CHECK(earlier_version("0.6.3.post1", "0.6.4"));
}

TEST_CASE("builds come in the order of their number, whatever its length") {
  CHECK(earlier_version("b2821", "b2822"));
  CHECK(earlier_version("b999", "b2822"));
  CHECK_FALSE(earlier_version("b2822", "b2822"));
  CHECK_FALSE(earlier_version("b10549", "b2822"));
}

TEST_CASE("a day is before another, a month or a year before what is after its middle") {
  CHECK(earlier_version("2024-05-07", "2024-05-08"));
  CHECK_FALSE(earlier_version("2024-05-08", "2024-05-08"));
  CHECK(earlier_version("2024-04", "2024-05-08"));
  CHECK(earlier_version("2024-04-30", "2024-05"));
  CHECK(earlier_version("~2023", "2024-05"));
  CHECK(earlier_version("2024", "2024-10-02"));
  CHECK(earlier_version("2024-05", "2024-05-28"));
  CHECK_FALSE(earlier_version("2024-12", "2024-10-02"));
  for (const char* may_be_either : {"2024-05", "~2024-05", "2024"}) {
    INFO(may_be_either);
    CHECK_FALSE(earlier_version(may_be_either, "2024-05-08"));
    CHECK_FALSE(earlier_version("2024-05-08", may_be_either));
  }
  CHECK_FALSE(earlier_version("2024-10", "2024-9"));
}

TEST_CASE("versions of different kinds and what is none are before nothing") {
  const char* const kinds[] = {"0.1", "b1", "2001-01-01"};
  for (const char* one : kinds) {
    CHECK(is_version(one));
    for (const char* other : kinds) CHECK_FALSE(earlier_version(one, other));
  }
  for (const char* none : {"", "~", "main", "5.x", "5", "build 7", "bf16", "PR 14262", "b", "-1.2", "20240508",
                           "2024-13", "2024-00", "2024-02-32"}) {
    INFO(none);
    CHECK_FALSE(is_version(none));
    CHECK_FALSE(earlier_version(none, "99.0"));
    CHECK_FALSE(earlier_version(none, "b99999"));
    CHECK_FALSE(earlier_version(none, "2999-01"));
  }
}

}  // namespace kvroof
