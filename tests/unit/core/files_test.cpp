#include "sim/core/files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <thread>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;
using test::has_part_file;
using test::slurp;
using test::TemporaryFolder;

TEST_CASE("a file is read whole, byte for byte, up to the limit") {
  const TemporaryFolder folder;
  const std::string bytes("a\r\n\0b\xff", 6);
  std::ofstream(folder.file("f"), std::ios::binary) << bytes;
  CHECK(read_text_file(folder.file("f"), 6).or_throw("f") == bytes);
  CHECK(read_input(folder.file("f"), 6).or_throw("f") == bytes);
  CHECK(read_text_file(folder.file("f"), 5).error() == "6 bytes, expected at most 5");
  std::ofstream(folder.file("empty")).flush();
  CHECK(read_text_file(folder.file("empty"), 0).or_throw("empty").empty());
}

TEST_CASE("what is no file that can be read is refused with the reason") {
  const TemporaryFolder folder;
  for (const auto read : {read_text_file, read_input}) {
    CHECK(read(folder.file("absent"), 9).error() == "cannot open: No such file or directory");
    CHECK(read(folder.path(), 9).error() == "a folder, expected a file");
    CHECK(read("/dev/zero", 9).error() == "not a regular file");
  }
  std::ofstream(folder.file("secret")) << "s";
  fs::permissions(folder.file("secret"), fs::perms::none);
  if (::geteuid() != 0) {
    CHECK(read_text_file(folder.file("secret"), 9).error() == "cannot open: Permission denied");
  }
}

TEST_CASE("a pipe is read to its end where a user may name it, and refused elsewhere without waiting for a writer") {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe"), text(100000, 'x');
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(read_text_file(pipe, 9).error() == "not a regular file");
  const auto read_written = [&](std::uint64_t limit) {
    std::jthread writer([&] { std::ofstream(pipe) << text; });
    return read_input(pipe, limit);
  };
  CHECK(read_written(text.size()).or_throw("pipe") == text);
}

TEST_CASE("a written file appears whole or not at all, and replaces what was there") {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  {
    AtomicFile abandoned(path);
    abandoned.write(std::as_bytes(std::span("lost")));
    CHECK(fs::exists(abandoned.part()));
    CHECK(abandoned.part().parent_path() == folder.path());
    CHECK(has_part_file(folder.path()));
    CHECK_FALSE(fs::exists(path));
  }
  CHECK(fs::is_empty(folder.path()));
  write_text_file(path, "first");
  write_text_file(path, "second");
  CHECK(slurp(path) == "second");
  CHECK_FALSE(has_part_file(folder.path()));
  append_text(path, ", third");
  CHECK(slurp(path) == "second, third");
  CHECK_THROWS_WITH(write_text_file(folder.file("no/f"), ""),
                    folder.file("no/f") + ": cannot be written: No such file or directory");
}

TEST_CASE("of two that write a file at the same time each writes its own, and the last stays whole") {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  const auto add = [](AtomicFile& to, std::string_view text) { to.write(std::as_bytes(std::span(text))); };
  AtomicFile first(path);
  add(first, "first, ");
  std::optional<AtomicFile> given_up(path);
  add(*given_up, "given up");
  AtomicFile last(path);
  add(last, "last");
  add(first, "at length");
  given_up.reset();
  first.commit();
  CHECK(slurp(path) == "first, at length");
  last.publish();
  CHECK(slurp(path) == "last");
  CHECK_FALSE(has_part_file(folder.path()));
}

TEST_CASE("links, devices and pipes are written straight, and stay what they are") {
  const TemporaryFolder folder;
  const std::string target = folder.file("target"), link = folder.file("link"), null = folder.file("null");
  write_text_file(target, "before");
  fs::create_symlink(target, link);
  fs::create_symlink("/dev/null", null);
  for (const std::string& replaced : {target, folder.file("new")}) {
    const std::string name = temporary_name(replaced);
    CHECK((name.starts_with(replaced + ".") && name.ends_with(".part")));
    CHECK(temporary_name(replaced) != name);
  }
  for (const std::string& kept : {link, null, std::string("/dev/null")}) {
    CHECK(temporary_name(kept) == kept);
    write_text_file(kept, "after");
  }
  CHECK(fs::is_symlink(link));
  CHECK(slurp(target) == "after");
  CHECK(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace kvroof
