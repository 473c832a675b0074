// What PyTorch's operators must move and compute at least, from the shapes that its profiler writes with
// record_shapes=True.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "traces/kineto_event.hpp"

namespace kvroof {

// One call of an operator with its shapes: "aten::mm 4x4096 4096x6144".
struct ShapedOperator {
  std::string name;
  std::uint64_t bytes = 0;  // operands read once and the result written once
  std::uint64_t flops = 0;  // 0: not known
};
// Of products of matrices (aten::mm, addmm, bmm, baddbmm, and _scaled_mm of 8 bits with the bytes of its scales),
// operations of those in 16 bits alone, whose peak kernels are held to; and of scaled dot product attention, whose
// operations its masks decide. Nothing for other operators, and for shapes or types that are not what such a call has.
std::optional<ShapedOperator> shaped_operator(const KinetoEvent& event);

// Tells what kernels were meant to do by the operators that launched them, which Kineto writes before the work of the
// device and which have the same external id. Before PyTorch 2.0 that number is the launch's own, equal to its
// correlation in every kernel of a file, and says nothing: kernels wait until one of the file has two numbers.
class KinetoOperators {
 public:
  // An operator with shapes is remembered; a kernel of one is told to `to`, the bytes of a call with its first.
  // Returns of how many kernels that was so, those that had to wait among them.
  std::uint64_t see(const KinetoEvent& event, ProfileSink& to);

 private:
  struct Call {
    const std::string* name;
    std::uint64_t bytes, flops;
  };
  std::set<std::string, std::less<>> names_;
  std::unordered_map<std::uint64_t, Call> calls_;  // by external id
  std::vector<OperatorRecord> waiting_;            // for a kernel that shows what the file's external ids are
  bool of_operators_ = false;                      // are they
};

}  // namespace kvroof
