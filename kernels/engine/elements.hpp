// Elements of weights that are not in memory yet: read from their checkpoint, or made from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/engine/checkpoint.hpp"
#include "kernels/engine/weight_families.hpp"

namespace kvroof {

// Tells each weight that a tensor has elements of where they lie: Weight::stored, of a weight that will be of `type`.
// The tensor, and that of its scales if it has one, have shapes and element types that the binding's checks passed.
void locate_elements(const StoredTensor& stored, const StoredTensor* scales, const TensorBinding& binding, DType type);

// `rows` runs of `width` elements of a weight: the first begins at element `first`, each other one a row of the weight
// later. A single run may be longer than a row.
struct ElementPiece {
  std::size_t first = 0;
  std::size_t rows = 1;
  std::size_t width = 0;
};

// Takes the elements of a weight, a piece after the other.
class ElementSink {
 public:
  struct Room {
    std::byte* data = nullptr;
    std::size_t stride = 0;  // elements from run to run
  };
  virtual ~ElementSink() = default;
  // Where the elements of the piece are to be written.
  virtual Room room(const ElementPiece& piece) = 0;
  // All of them have been.
  virtual void written(const ElementPiece& piece) = 0;
};

// Reads weights from their checkpoint: converts, permutes and transposes on the way. Beside what the sink gives, it
// holds a few megabytes.
class ElementReader {
 public:
  // All elements of `weight`, each once, in pieces of at most `most_bytes`. Throws Error naming file and tensor when a
  // file is shorter than it was or cannot be read.
  void read(const Weight& weight, std::size_t most_bytes, ElementSink& sink);

 private:
  void read_rows(const Weight& weight, const StoredBlock& block, std::size_t most, ElementSink& sink);
  void read_columns(const Weight& weight, const StoredBlock& block, std::size_t most, ElementSink& sink);
  void read_picked(const Weight& weight, const StoredBlock& block, std::size_t most, ElementSink& sink);
  void transpose(const StoredBlock& block, DType type, std::size_t row, std::size_t col, const ElementPiece& piece,
                 ElementSink::Room out);
  const std::byte* picked(DType type, const std::byte* in, std::size_t step, std::size_t count);
  // Whole stored rows, plain ones as the file has them, packed ones as f32.
  struct Rows {
    DType type = DType::kF32;
    const std::byte* data = nullptr;
    std::size_t stride = 0;  // elements from one to the next
    [[nodiscard]] const std::byte* at(std::size_t row, std::size_t col) const {
      return data + (row * stride + col) * size_of(type);
    }
  };
  Rows stored_rows(const StoredBlock& block, std::size_t first, std::size_t rows, std::size_t step);
  void unpack_rows(const StoredBlock& block, std::size_t first, std::size_t rows, std::size_t step);
  void read_scales(const StoredScales& scales, std::size_t first, std::size_t count);
  std::span<const std::byte> read_raw(const StoredBlock& block, std::uint64_t first_byte, std::size_t bytes);

  std::vector<std::byte> raw_, converted_, picked_, raw_scales_;
  std::vector<float> unpacked_, scales_;
};

// Told of the bytes of each weight that is where it belongs; may be empty.
using ElementProgress = std::function<void(std::uint64_t bytes)>;

// Allocates and fills what is not in memory yet, for the back ends on the CPU.
void make_elements(Weight& weight);
void make_elements(Model& model, const ElementProgress& progress = {});
// The attention sinks alone, which are few, and asked for on the host wherever the model runs.
void make_sinks(Model& model);

}  // namespace kvroof
