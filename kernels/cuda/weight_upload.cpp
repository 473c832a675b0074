#include "kernels/cuda/weight_upload.hpp"

#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/pinned.hpp"

namespace kvroof::cuda {
namespace {

constexpr const char* kCopying = "copying weights";

}  // namespace

WeightUpload::WeightUpload(Stream& stream, UploadRing ring)
    : stream_(stream), bytes_(ring.bytes), buffers_(ring.buffers) {
  const char* problem = nullptr;
  for (Buffer& buffer : buffers_) {
    if (problem == nullptr) problem = allocate_pinned(bytes_, &buffer.memory);
    if (problem == nullptr) problem = make_event(&buffer.copied);
  }
  if (problem != nullptr) release();
  check_device(problem, "asking for pinned memory of the host");
}

WeightUpload::~WeightUpload() {
  synchronize(stream_);
  release();
}

void WeightUpload::release() {
  for (const Buffer& buffer : buffers_) {
    release_event(buffer.copied);
    release_pinned(buffer.memory);
  }
}

void WeightUpload::send(const Weight& weight, std::byte* to) {
  weight_ = &weight;
  to_ = to;
  reader_.read(weight, bytes_, *this);
}

ElementSink::Room WeightUpload::room(const ElementPiece& piece) {
  const Buffer& buffer = buffers_[next_];
  check_device(wait_for_event(buffer.copied), kCopying);
  return {static_cast<std::byte*>(buffer.memory), piece.width};
}

void WeightUpload::written(const ElementPiece& piece) {
  const std::size_t size = size_of(weight_->type);
  const Buffer& buffer = buffers_[next_];
  check_device(copy_in_later(stream_, to_ + piece.first * size, weight_->cols * size, buffer.memory,
                             piece.width * size, piece.rows),
               kCopying);
  check_device(record_event(stream_, buffer.copied), kCopying);
  next_ = (next_ + 1) % buffers_.size();
}

}  // namespace kvroof::cuda
