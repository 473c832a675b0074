// WeightUpload: weights pass from their checkpoint to the device through a few pinned buffers in turn.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/kernels.hpp"
#include "kernels/engine/elements.hpp"

namespace kvroof::cuda {

// While the device copies from some, the host reads into another.
struct UploadRing {
  std::size_t buffers = 3;
  std::size_t bytes = std::size_t{16} << 20;  // of each
};

class WeightUpload final : public ElementSink {
 public:
  // Throws Error when the host refuses pinned memory.
  WeightUpload(Stream& stream, UploadRing ring);
  // Waits for what is under way.
  ~WeightUpload() override;
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // All elements of a weight that lies in a checkpoint. They are there when the stream has done what it was asked for.
  // Throws Error when the checkpoint cannot be read.
  void send(const Weight& weight, std::byte* to);

  Room room(const ElementPiece& piece) override;
  void written(const ElementPiece& piece) override;

 private:
  struct Buffer {
    void* memory = nullptr;
    void* copied = nullptr;  // the event after its last copy
  };
  void release();

  Stream& stream_;
  std::size_t bytes_;
  std::vector<Buffer> buffers_;
  std::size_t next_ = 0;
  const Weight* weight_ = nullptr;  // that is being sent
  std::byte* to_ = nullptr;
  ElementReader reader_;
};

}  // namespace kvroof::cuda
