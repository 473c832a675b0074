// Memory of a replay, counted by replacing the allocation functions of this executable.
#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};
std::atomic<std::size_t> allocations{0};

void* counted(std::size_t size, std::size_t line = alignof(std::max_align_t)) {
  void* p = std::aligned_alloc(line, (size + line - 1) / line * line);
  if (p == nullptr) throw std::bad_alloc();
  const std::size_t now = live_bytes += malloc_usable_size(p);
  ++allocations;
  std::size_t peak = peak_bytes;
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
  return p;
}

void release(void* p) noexcept {
  if (p == nullptr) return;
  live_bytes -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void* operator new(std::size_t size, std::align_val_t line) { return counted(size, static_cast<std::size_t>(line)); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }

using namespace kvroof;
using namespace kvroof::test;

namespace {

struct Use {
  std::size_t peak = 0;  // bytes beyond what was there before
  std::size_t allocations = 0;
};

Use measure(std::uint32_t layers, std::uint32_t tokens, std::uint32_t prompt, const std::string& policies) {
  Qkv shape;
  shape.layers = layers;
  shape.heads = shape.kv_heads = 4;
  shape.tokens = tokens;
  shape.d = 64;
  const TemporaryFolder folder;
  {
    TraceOptions options;
    options.prompt = prompt;
    write_trace(folder.path() / "x.kvt", random_qkv(shape, 1), options);
  }
  const TraceReader trace = TraceReader::open(folder.path() / "x.kvt");
  const auto points = parse_policies(policies);
  ThreadPool pool(1);
  const std::size_t before = live_bytes;
  peak_bytes = before;
  const std::size_t allocated = allocations;
  const auto results = replay(trace, points, {}, pool);
  CHECK(results[0].quality);
  return {peak_bytes - before, allocations - allocated};
}

constexpr const char* kPolicies =
    "full,window:budget=0.5,h2o:budget=0.5,keyformer:budget=0.5,random:budget=0.5,oracle:budget=0.5";

}  // namespace

TEST_CASE("four times the layers need no more memory than one layer and the points' state") {
  (void)measure(8, 600, 300, kPolicies);  // what threads keep for good is there from now on
  const Use one = measure(2, 600, 300, kPolicies);
  const Use four = measure(8, 600, 300, kPolicies);
  const std::size_t keys_values = 600 * 4 * 64 * 4 * 2;
  CAPTURE(one.peak, four.peak, keys_values);
  // Of each further layer and point: a few runs of counts, one for each page that fills while it grows, and its share
  // of the worst 1 %.
  CHECK(four.peak < one.peak + 6 * 6 * 4000);
  // Blocks of rows take 1 MiB, of queries 1 MiB; the rest is state.
  CHECK(one.peak < keys_values + (5U << 19));
}

TEST_CASE("rows allocate nothing: four times the decoded tokens, the same number of allocations") {
  // The trace of more tokens is read in more parts, and vectors that hold a token each double twice more.
  for (const char* policies : {kPolicies, "quest:budget=0.5:dense=0,quest:budget=64:page=4:dense=0"}) {
    const Use few = measure(1, 500, 300, policies);
    const Use many = measure(1, 1100, 300, policies);
    CAPTURE(policies, few.allocations, many.allocations);
    CHECK(many.allocations < few.allocations + 200);
  }
}
