#include "kernels/engine/tensor_loader.hpp"

#include <algorithm>
#include <cstring>

namespace kvroof {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{2} << 20;  // of a tensor, read and converted at a time
constexpr std::size_t kTile = 32;  // rows and columns that are transposed while their cache lines stay near

// out[c · out_stride + r] = in[r · in_stride + c] for one tile.
template <class Element>
void transpose_tile(const std::byte* in, std::size_t in_stride, std::size_t rows, std::size_t cols, std::byte* out,
                    std::size_t out_stride) {
  for (std::size_t c = 0; c < cols; ++c) {
    for (std::size_t r = 0; r < rows; ++r) {
      std::memcpy(out + (c * out_stride + r) * sizeof(Element), in + (r * in_stride + c) * sizeof(Element),
                  sizeof(Element));
    }
  }
}

// Rows of `cols` elements in a piece: whole tiles, even where one row alone is large.
std::size_t rows_a_piece(std::size_t cols) {
  return std::max(kPieceBytes / (cols * sizeof(float)) / kTile, std::size_t{1}) * kTile;
}

}  // namespace

void TensorLoader::load(const StoredTensor& stored, const TensorBinding& binding) {
  const std::size_t cols = binding.shape.size() == 2 ? binding.shape[1] : 1;
  for (const RowBlock& block : binding.blocks) {
    if (block.weight->empty()) {
      *block.weight = {type_, block.rows, block.cols, AlignedBytes(block.rows * block.cols * size_of(type_))};
    }
    if (binding.transposed) continue;
    if (block.transposed) {
      load_transposed_block(stored, block, cols);
    } else {
      load_rows(stored, block, cols);
    }
  }
  if (binding.transposed) load_columns(stored, binding);
}

std::span<const std::byte> TensorLoader::read_raw(const StoredTensor& stored, std::size_t first, std::size_t count) {
  const std::size_t size = size_of(stored.info->type);
  raw_.resize(count * size);
  stored.file->read(*stored.info, first * size, raw_);
  return raw_;
}

std::span<const std::byte> TensorLoader::read(const StoredTensor& stored, std::size_t first, std::size_t count) {
  const DType from = stored.info->type;
  const auto raw = read_raw(stored, first, count);
  if (from == type_) return raw;
  converted_.resize(count * size_of(type_));
  convert_elements(from, raw.data(), count, type_, converted_.data());
  return converted_;
}

void TensorLoader::load_rows(const StoredTensor& stored, const RowBlock& block, std::size_t cols) {
  std::byte* out = block.weight->data.data() + block.to * cols * size_of(type_);
  const std::size_t count = block.count * cols;
  if (stored.info->type == type_) {
    stored.file->read(*stored.info, block.from * cols * size_of(type_), {out, count * size_of(type_)});
    return;
  }
  const std::size_t step = kPieceBytes / size_of(stored.info->type);
  for (std::size_t at = 0; at < count; at += step) {
    const std::size_t part = std::min(step, count - at);
    const auto raw = read_raw(stored, block.from * cols + at, part);
    convert_elements(stored.info->type, raw.data(), part, type_, out + at * size_of(type_));
  }
}

// Stored [in, out]: rows of the blocks are columns of the tensor, which is walked once for all of them.
void TensorLoader::load_columns(const StoredTensor& stored, const TensorBinding& binding) {
  const std::size_t rows = binding.shape[0];
  const std::size_t cols = binding.shape[1];
  const std::size_t size = size_of(type_);
  const std::size_t step = rows_a_piece(cols);
  for (std::size_t first = 0; first < rows; first += step) {
    const std::size_t count = std::min(step, rows - first);
    const auto piece = read(stored, first * cols, count * cols);
    for (const RowBlock& block : binding.blocks) {
      transpose(piece.data() + block.from * size, cols, count, block.count,
                block.weight->data.data() + (block.to * rows + first) * size, rows);
    }
  }
}

// Stored rows of the block become columns of rows [to, to + cols) of the weight.
void TensorLoader::load_transposed_block(const StoredTensor& stored, const RowBlock& block, std::size_t cols) {
  const std::size_t size = size_of(type_);
  const std::size_t step = rows_a_piece(cols);
  for (std::size_t first = 0; first < block.count; first += step) {
    const std::size_t count = std::min(step, block.count - first);
    const auto piece = read(stored, (block.from + first) * cols, count * cols);
    transpose(piece.data(), cols, count, cols, block.weight->data.data() + (block.to * block.cols + first) * size,
              block.cols);
  }
}

void TensorLoader::transpose(const std::byte* in, std::size_t in_stride, std::size_t rows, std::size_t cols,
                             std::byte* out, std::size_t out_stride) const {
  const std::size_t size = size_of(type_);
  const auto tile = size == 4 ? transpose_tile<std::uint32_t> : transpose_tile<std::uint16_t>;
  for (std::size_t c = 0; c < cols; c += kTile) {
    for (std::size_t r = 0; r < rows; r += kTile) {
      tile(in + (r * in_stride + c) * size, in_stride, std::min(kTile, rows - r), std::min(kTile, cols - c),
           out + (c * out_stride + r) * size, out_stride);
    }
  }
}

}  // namespace kvroof
