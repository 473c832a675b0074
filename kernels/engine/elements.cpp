#include "kernels/engine/elements.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/engine/mxfp4.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{2} << 20;  // of a tensor, converted or transposed at a time
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

void transpose_tiles(std::size_t size, const std::byte* in, std::size_t in_stride, std::size_t rows, std::size_t cols,
                     std::byte* out, std::size_t out_stride) {
  const auto tile = size == 4 ? transpose_tile<std::uint32_t> : transpose_tile<std::uint16_t>;
  for (std::size_t c = 0; c < cols; c += kTile) {
    for (std::size_t r = 0; r < rows; r += kTile) {
      tile(in + (r * in_stride + c) * size, in_stride, std::min(kTile, rows - r), std::min(kTile, cols - c),
           out + (c * out_stride + r) * size, out_stride);
    }
  }
}

// Rows of `cols` elements that are transposed at a time: whole tiles, even where one row alone is large.
std::size_t rows_at_a_time(std::size_t cols) {
  return std::max(kPieceBytes / (cols * sizeof(float)) / kTile, std::size_t{1}) * kTile;
}

class InMemory final : public ElementSink {
 public:
  explicit InMemory(Weight& weight) : weight_(weight) {}
  Room room(const ElementPiece& piece) override {
    return {weight_.data.data() + piece.first * size_of(weight_.type), weight_.cols};
  }
  void written(const ElementPiece&) override {}

 private:
  Weight& weight_;
};

void fill_random(Weight& weight) {
  const std::size_t count = weight.rows * weight.cols;
  float eight[8];
  for (std::size_t at = 0; at < count; at += 8) {
    random_eight(weight.random, at / 8, eight);
    convert_from_float(weight.type, std::span<const float>(eight).first(std::min<std::size_t>(8, count - at)),
                       weight.data.data() + at * size_of(weight.type));
  }
}

}  // namespace

void locate_elements(const StoredTensor& stored, const StoredTensor* scales, const TensorBinding& binding, DType type) {
  const std::size_t rows = binding.shape[0];
  const std::size_t cols = binding.width > 0 ? binding.width : binding.shape.size() == 2 ? binding.shape[1] : 1;
  for (const RowBlock& block : binding.blocks) {
    Weight& weight = *block.weight;
    weight.type = binding.exact ? DType::kF32 : type;
    weight.rows = block.rows;
    weight.cols = block.cols;
    StoredBlock at{.file = stored.file, .tensor = stored.info, .row = block.from, .rows = block.count, .cols = cols};
    at.to = block.to * (block.transposed ? block.cols : cols);
    at.transposed = block.transposed;
    at.step = block.step;
    if (scales != nullptr) {
      at.scales = scales->info;
      at.scales_file = scales->file;
    }
    if (block.transposed) {
      at.col = block.col;
      at.cols = (cols - block.col + block.step - 1) / block.step;
    }
    if (binding.transposed) {
      at = {.file = stored.file, .tensor = stored.info, .rows = rows, .col = block.from, .cols = block.count,
            .to = block.to * rows, .transposed = true};
    }
    weight.stored.push_back(at);
  }
}

std::span<const std::byte> ElementReader::read_raw(const StoredBlock& block, std::size_t first, std::size_t count) {
  const std::size_t size = size_of(block.tensor->type);
  raw_.resize(count * size);
  block.file->read(*block.tensor, first * size, raw_);
  return raw_;
}

void ElementReader::read_rows(const Weight& weight, const StoredBlock& block, std::size_t most, ElementSink& sink) {
  const DType from = block.tensor->type;
  const std::size_t size = size_of(weight.type);
  const std::size_t start = block.row * block.cols;
  const std::size_t count = block.rows * block.cols;
  const std::size_t step = kPieceBytes / size_of(from);
  for (std::size_t at = 0; at < count; at += most) {
    const ElementPiece piece{block.to + at, 1, std::min(most, count - at)};
    std::byte* out = sink.room(piece).data;
    if (from == weight.type) {
      block.file->read(*block.tensor, (start + at) * size, {out, piece.width * size});
    } else {
      for (std::size_t done = 0; done < piece.width; done += step) {
        const std::size_t part = std::min(step, piece.width - done);
        convert_elements(from, read_raw(block, start + at + done, part).data(), part, weight.type, out + done * size);
      }
    }
    sink.written(piece);
  }
}

// Rows that others lie between, or that are packed: whole ones, where one fits.
void ElementReader::read_picked(const Weight& weight, const StoredBlock& block, std::size_t most, ElementSink& sink) {
  const std::size_t width = std::min(block.cols, most);
  const std::size_t rows = std::max(std::min(most, kPieceBytes / sizeof(float)) / block.cols, std::size_t{1});
  for (std::size_t row = 0; row < block.rows; row += rows) {
    const std::size_t count = std::min(rows, block.rows - row);
    for (std::size_t col = 0; col < block.cols; col += width) {
      const std::size_t part = std::min(width, block.cols - col);
      const ElementPiece piece{block.to + row * block.cols + col, 1, count * part};
      std::byte* out = sink.room(piece).data;
      if (block.scales != nullptr) {
        unpack_rows(block, row, count, col, part, weight.type, out);
      } else {
        pick_rows(block, row, count, col, part, weight.type, out);
      }
      sink.written(piece);
    }
  }
}

void ElementReader::pick_rows(const StoredBlock& block, std::size_t row, std::size_t rows, std::size_t col,
                              std::size_t width, DType type, std::byte* out) {
  const DType from = block.tensor->type;
  const std::size_t first = block.row + row * block.step, all = (rows - 1) * block.step + 1;
  const std::byte* raw = read_raw(block, first * block.cols, all * block.cols).data();
  for (std::size_t r = 0; r < rows; ++r) {
    convert_elements(from, raw + (r * block.step * block.cols + col) * size_of(from), width, type,
                     out + r * width * size_of(type));
  }
}

void ElementReader::unpack_rows(const StoredBlock& block, std::size_t row, std::size_t rows, std::size_t col,
                                std::size_t width, DType type, std::byte* out) {
  const std::size_t row_bytes = block.cols / 2, row_scales = block.cols / kMxfp4Block;
  const std::size_t first = block.row + row * block.step, all = (rows - 1) * block.step + 1;
  const std::byte* codes = read_raw(block, first * row_bytes, all * row_bytes).data();
  scales_.resize(all * row_scales);
  block.scales_file->read(*block.scales, first * row_scales, scales_);
  unpacked_.resize(block.cols);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t at = r * block.step;
    unpack_mxfp4(codes + at * row_bytes, scales_.data() + at * row_scales, unpacked_);
    convert_from_float(type, std::span<const float>(unpacked_).subspan(col, width), out + r * width * size_of(type));
  }
}

// A piece takes as many of the block's columns as it can, so that the checkpoint is read in its order.
void ElementReader::read_columns(const Weight& weight, const StoredBlock& block, std::size_t most, ElementSink& sink) {
  const std::size_t cols = std::min(block.cols, most);
  const std::size_t rows = std::min(block.rows, most / cols);
  for (std::size_t col = 0; col < block.cols; col += cols) {
    for (std::size_t row = 0; row < block.rows; row += rows) {
      const ElementPiece piece{block.to + col * weight.cols + row, std::min(cols, block.cols - col),
                               std::min(rows, block.rows - row)};
      transpose(block, weight.type, row, col, piece, sink.room(piece));
      sink.written(piece);
    }
  }
}

// Rows [row, row + piece.width) and columns [col, col + piece.rows) of the block. Whole rows are read: the disk has
// them in order, and parts of rows would be read in many small strides.
void ElementReader::transpose(const StoredBlock& block, DType type, std::size_t row, std::size_t col,
                              const ElementPiece& piece, ElementSink::Room out) {
  const DType from = block.tensor->type;
  const std::size_t stored_cols = block.tensor->shape.back();
  const std::size_t size = size_of(type);
  const std::size_t step = rows_at_a_time(stored_cols);
  for (std::size_t done = 0; done < piece.width; done += step) {
    const std::size_t count = std::min(step, piece.width - done);
    const auto raw = read_raw(block, (block.row + row + done) * stored_cols, count * stored_cols);
    const std::byte* in = raw.data() + (block.col + col * block.step) * size_of(from);
    std::size_t in_stride = stored_cols;
    if (from != type || block.step > 1) {
      converted_.resize(count * piece.rows * size);
      for (std::size_t r = 0; r < count; ++r) {
        convert_elements(from, picked(from, in + r * stored_cols * size_of(from), block.step, piece.rows), piece.rows,
                         type, converted_.data() + r * piece.rows * size);
      }
      in = converted_.data();
      in_stride = piece.rows;
    }
    transpose_tiles(size, in, in_stride, count, piece.rows, out.data + done * size, out.stride);
  }
}

// `count` elements that are `step` apart, side by side.
const std::byte* ElementReader::picked(DType type, const std::byte* in, std::size_t step, std::size_t count) {
  if (step == 1) return in;
  const std::size_t size = size_of(type);
  picked_.resize(count * size);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(picked_.data() + i * size, in + i * step * size, size);
  return picked_.data();
}

void ElementReader::read(const Weight& weight, std::size_t most_bytes, ElementSink& sink) {
  const std::size_t most = most_bytes / size_of(weight.type);
  check(most > 0, "a piece of a weight has room for an element");
  for (const StoredBlock& block : weight.stored) {
    if (block.transposed) {
      read_columns(weight, block, most, sink);
    } else if (block.step > 1 || block.scales != nullptr) {
      read_picked(weight, block, most, sink);
    } else {
      read_rows(weight, block, most, sink);
    }
  }
}

namespace {

void make_with(ElementReader& reader, Weight& weight) {
  weight.data = AlignedBytes(weight.bytes());
  if (weight.stored.empty()) return fill_random(weight);
  InMemory sink(weight);
  reader.read(weight, std::numeric_limits<std::size_t>::max(), sink);
  weight.stored.clear();
}

}  // namespace

void make_elements(Weight& weight) {
  ElementReader reader;
  if (weight.data.size() == 0) make_with(reader, weight);
}

void make_sinks(Model& model) {
  for (LayerWeights& layer : model.weights.layers) {
    if (!layer.sinks.empty()) make_elements(layer.sinks);
  }
}

void make_elements(Model& model, const ElementProgress& progress) {
  ElementReader reader;
  for (const TensorBinding& tensor : bind_tensors(model.config, model.weights)) {
    for (const RowBlock& block : tensor.blocks) {
      if (block.weight->data.size() > 0) continue;  // several blocks make one weight
      make_with(reader, *block.weight);
      if (progress) progress(block.weight->bytes());
    }
  }
  model.checkpoint.reset();
}

}  // namespace kvroof
