// cuBLASLt, loaded by name at run time: products of 16-bit matrices on the tensor cores with sums of 32 bits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cublaslt_api.hpp"
#include "kernels/cuda/kernels.hpp"
#include "sim/core/error.hpp"

namespace kvroof::cuda {

class CublasLt {
 public:
  // out [tokens, rows] = x · wᵀ, or is added to.
  struct Product {
    Stored type = Stored::kBF16;
    DeviceMatrix w;
    const std::byte* x = nullptr;  // [tokens, cols] of the type
    std::uint32_t tokens = 0;
    float* out = nullptr;
    std::uint32_t out_row = 0;     // floats from one token's results to the next's
    bool add = false;
    float factor = 1;              // of the product
  };
  // What the library may use on the device during a product: NVIDIA's advice for Hopper (cuBLAS documentation, section
  // "cublasSetWorkspace").
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  // Of all matrices: our own kernels read weights and vectors in pieces of 16 bytes too.
  static constexpr std::uint32_t kAlignment = 16;

  // The first library of CUDA 13, else of CUDA 12, that can be loaded and started on the current device. A failure is
  // one sentence.
  static Result<std::unique_ptr<CublasLt>> load();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Launches a product; `workspace` has kWorkspaceBytes. False: nothing was launched, problem() says why, and a product
  // of these sizes is not tried again; or the device failed, which the stream says. How sizes are best made is asked
  // once for each; a way that is refused, before anything of it is launched, gives place to the next best.
  bool multiply(Stream& stream, const Product& product, std::byte* workspace);

  [[nodiscard]] std::string version() const;  // 13.1.0
  // Whether products of these sizes were not refused so far.
  [[nodiscard]] bool serves(const Product& product) { return !plan_of(product).ways.empty(); }
  // Whether a map was made of its products; what was made in vain does not count.
  [[nodiscard]] bool served() const { return served_; }
  void note_served() { served_ = true; }
  // Why the first product that was refused was; empty: none was.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  using Sizes = std::array<std::uint32_t, 5>;  // type, rows, columns, tokens, out_row
  struct Plan {
    cublaslt::Desc desc = nullptr;
    cublaslt::Layout w = nullptr, x = nullptr, out = nullptr;
    std::vector<cublaslt::Algo> ways;  // the best comes last; none: refused
  };

  CublasLt(const cublaslt::Functions& functions, cublaslt::Handle handle) : lt_(functions), handle_(handle) {}
  static Result<std::unique_ptr<CublasLt>> use(void* library, const std::string& path);
  Plan& plan_of(const Product& product);
  cublaslt::Status describe(const Product& product, Plan& plan) const;
  cublaslt::Status choose(Plan& plan) const;
  void refuse(const Product& product, Plan& plan, cublaslt::Status status);
  void release(Plan& plan) const;
  void forget();

  cublaslt::Functions lt_;
  cublaslt::Handle handle_;
  std::map<Sizes, Plan> plans_;
  bool served_ = false;
  std::string problem_;
};

}  // namespace kvroof::cuda
