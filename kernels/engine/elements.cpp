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
    if (block.transposed) {
      at.col = block.col;
      at.cols = std::min((cols - block.col + block.step - 1) / block.step, block.rows - block.to);
    }
    if (binding.transposed) {
      at = {.file = stored.file, .tensor = stored.info, .rows = rows, .col = block.from, .cols = block.count,
            .to = block.to * rows, .transposed = true};
    }
    at.width = cols;
    if (scales != nullptr) at.scales = {scales->file, scales->info, binding.scale_rows, binding.scale_cols};
    weight.stored.push_back(at);
  }
}

std::span<const std::byte> ElementReader::read_raw(const StoredBlock& block, std::uint64_t first_byte,
                                                   std::size_t bytes) {
  raw_.resize(bytes);
  block.file->read(*block.tensor, first_byte, raw_);
  return raw_;
}

// `count` rows of scales.
void ElementReader::read_scales(const StoredScales& scales, std::size_t first, std::size_t count) {
  const std::size_t size = size_of(scales.tensor->type);
  raw_scales_.resize(count * size);
  scales.file->read(*scales.tensor, first * size, raw_scales_);
  scales_.resize(count);
  if (scales.tensor->type != DType::kU8) return convert_to_float(scales.tensor->type, raw_scales_.data(), scales_);
  std::ranges::transform(raw_scales_, scales_.begin(), mxfp4_scale);
}

void ElementReader::unpack_rows(const StoredBlock& block, std::size_t first, std::size_t rows, std::size_t step) {
  const StoredScales& scales = block.scales;
  const bool halves = block.tensor->type == DType::kU8;  // MXFP4
  const std::size_t row_bytes = halves ? block.width / 2 : block.width;
  const std::size_t all = (rows - 1) * step + 1;
  const std::byte* codes = read_raw(block, first * row_bytes, all * row_bytes).data();
  const std::size_t row_scales = (block.width + scales.cols - 1) / scales.cols;
  const std::size_t first_scales = first / scales.rows, last_scales = (first + all - 1) / scales.rows;
  read_scales(scales, first_scales * row_scales, (last_scales - first_scales + 1) * row_scales);
  unpacked_.resize(rows * block.width);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<float> row = std::span(unpacked_).subspan(r * block.width, block.width);
    const std::byte* from = codes + r * step * row_bytes;
    halves ? unpack_mxfp4(from, row) : convert_to_float(block.tensor->type, from, row);
    const float* of_row = scales_.data() + ((first + r * step) / scales.rows - first_scales) * row_scales;
    for (std::size_t at = 0; at < block.width; at += scales.cols, ++of_row) {
      for (float& number : row.subspan(at, std::min(scales.cols, block.width - at))) number *= *of_row;
    }
  }
}

ElementReader::Rows ElementReader::stored_rows(const StoredBlock& block, std::size_t first, std::size_t rows,
                                               std::size_t step) {
  if (block.scales.tensor != nullptr) {
    unpack_rows(block, first, rows, step);
    return {DType::kF32, reinterpret_cast<const std::byte*>(unpacked_.data()), block.width};
  }
  const std::size_t row_bytes = block.width * size_of(block.tensor->type);
  return {block.tensor->type, read_raw(block, first * row_bytes, ((rows - 1) * step + 1) * row_bytes).data(),
          step * block.width};
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
        const auto raw = read_raw(block, (start + at + done) * size_of(from), part * size_of(from));
        convert_elements(from, raw.data(), part, weight.type, out + done * size);
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
      const Rows stored = stored_rows(block, block.row + row * block.step, count, block.step);
      for (std::size_t r = 0; r < count; ++r) {
        convert_elements(stored.type, stored.at(r, col), part, weight.type, out + r * part * size_of(weight.type));
      }
      sink.written(piece);
    }
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
  const std::size_t size = size_of(type);
  const std::size_t step = rows_at_a_time(block.width);
  for (std::size_t done = 0; done < piece.width; done += step) {
    const std::size_t count = std::min(step, piece.width - done);
    const Rows stored = stored_rows(block, block.row + row + done, count, 1);
    const std::size_t first = block.col + col * block.step;
    const std::byte* in = stored.at(0, first);
    std::size_t in_stride = stored.stride;
    if (stored.type != type || block.step > 1) {
      converted_.resize(count * piece.rows * size);
      for (std::size_t r = 0; r < count; ++r) {
        convert_elements(stored.type, picked(stored.type, stored.at(r, first), block.step, piece.rows), piece.rows,
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
    } else if (block.step > 1 || block.scales.tensor != nullptr) {
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
