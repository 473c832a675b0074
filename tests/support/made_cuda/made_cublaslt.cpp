// A cuBLASLt for machines without a GPU: the functions that are called of it, over the emulator's streams. Two launches
// a product, as of a library that splits sums. KVROOF_MADE_CUBLASLT of the environment has it refuse: `create`,
// `heuristic` (answers that no way serves), `none` (finds none), `matmul`, `device` (a launch fails), `ways` (all but
// the third), `apart` (results that do not lie behind each other), `few` (products of fewer than eight vectors).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/cublaslt_api.hpp"
#include "kernels/cuda/emulated_queue.hpp"
#include "sim/core/dtype.hpp"

namespace kvroof::cublaslt {

struct HandleOpaque {};
struct DescOpaque {
  int compute = 0, scale = 0;
  std::int32_t trans_a = 0;
};
struct LayoutOpaque {
  int type = 0;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t step = 0;
};
struct PreferenceOpaque {
  std::uint64_t workspace = 0;
  std::uint32_t alignments = 0;
};

namespace {

constexpr std::uint64_t kAlgo = 0x6b76726f6f66;  // the first that the heuristic gave, and matmul wants back
constexpr int kWays = 3;
constexpr Status kAllocFailed = 3, kInvalid = 7;

bool refuses(const char* what) {
  const char* const told = std::getenv("KVROOF_MADE_CUBLASLT");
  return told != nullptr && std::strcmp(told, what) == 0;
}

struct Work {
  DescOpaque desc;
  LayoutOpaque a, b, d;
  float alpha, beta;
  const void *left, *right;
  float* out;
  void* workspace;
};

std::vector<float> floats(const LayoutOpaque& layout, const void* data) {
  std::vector<float> out(layout.step * layout.columns);
  convert_to_float(layout.type == kRealBF16 ? DType::kBF16 : DType::kF16, static_cast<const std::byte*>(data), out);
  return out;
}

// The first launch leaves alpha · op(A) · B in the workspace, as parts of a split sum lie there; the second adds.
void multiply(const Work& w) {
  const std::vector<float> a = floats(w.a, w.left), b = floats(w.b, w.right);
  auto* parts = static_cast<float*>(w.workspace);
  for (std::uint64_t column = 0; column < w.d.columns; ++column) {
    for (std::uint64_t row = 0; row < w.d.rows; ++row) {
      float sum = 0;
      for (std::uint64_t k = 0; k < w.a.rows; ++k) sum += a[row * w.a.step + k] * b[column * w.b.step + k];
      *parts++ = w.alpha * sum;
    }
  }
}

void add(const Work& w) {
  const auto* parts = static_cast<const float*>(w.workspace);
  for (std::uint64_t column = 0; column < w.d.columns; ++column) {
    for (std::uint64_t row = 0; row < w.d.rows; ++row) {
      float& out = w.out[column * w.d.step + row];
      out = *parts++ + (w.beta != 0 ? w.beta * out : 0.0F);
    }
  }
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return 130199; }
const char* cublasLtGetStatusString(Status status) {
  return status == kNotSupported ? "the functionality is not supported" : "the resource allocation failed";
}
Status cublasLtCreate(Handle* handle) {
  if (refuses("create")) return kAllocFailed;
  *handle = new HandleOpaque;
  return kSuccess;
}
Status cublasLtDestroy(Handle handle) {
  delete handle;
  return kSuccess;
}

Status cublasLtMatmulDescCreate(Desc* desc, int compute, int scale) {
  *desc = new DescOpaque{compute, scale};
  return kSuccess;
}
Status cublasLtMatmulDescSetAttribute(Desc desc, int attribute, const void* value, std::size_t bytes) {
  if (attribute != kDescTransA || bytes != sizeof desc->trans_a) return kInvalid;
  std::memcpy(&desc->trans_a, value, bytes);
  return kSuccess;
}
Status cublasLtMatmulDescDestroy(Desc desc) {
  delete desc;
  return kSuccess;
}

Status cublasLtMatrixLayoutCreate(Layout* layout, int type, std::uint64_t rows, std::uint64_t columns,
                                  std::int64_t step) {
  if (step < static_cast<std::int64_t>(rows)) return kInvalid;
  *layout = new LayoutOpaque{type, rows, columns, step};
  return kSuccess;
}
Status cublasLtMatrixLayoutDestroy(Layout layout) {
  delete layout;
  return kSuccess;
}

Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  *preference = new PreferenceOpaque;
  return kSuccess;
}
Status cublasLtMatmulPreferenceSetAttribute(Preference preference, int attribute, const void* value,
                                            std::size_t bytes) {
  if (attribute == kPreferMostWorkspace && bytes == sizeof preference->workspace) {
    std::memcpy(&preference->workspace, value, bytes);
    return kSuccess;
  }
  ++preference->alignments;
  return bytes == sizeof(std::uint32_t) ? kSuccess : kInvalid;
}
Status cublasLtMatmulPreferenceDestroy(Preference preference) {
  delete preference;
  return kSuccess;
}

Status cublasLtMatmulAlgoGetHeuristic(Handle, Desc desc, Layout a, Layout b, Layout c, Layout d, Preference preference,
                                      int asked, HeuristicResult* results, int* found) {
  *found = 0;
  if (refuses("none")) return kSuccess;
  if (refuses("heuristic")) return kNotSupported;
  const bool fits = a->rows == b->rows && d->rows == a->columns && d->columns == b->columns && c == d;
  const bool types = a->type == b->type && (a->type == kRealBF16 || a->type == kReal16) && d->type == kReal32;
  const bool sums = desc->compute == kCompute32 && desc->scale == kReal32 && desc->trans_a == kTransposed;
  if (!fits || !types || !sums || asked < 1 || preference->alignments != 4) return kInvalid;
  *found = std::min(asked, kWays);
  for (int way = 0; way < *found; ++way) {
    HeuristicResult& result = results[way];
    result = {};
    result.algo.data[0] = kAlgo + static_cast<unsigned>(way);
    result.workspace_bytes = d->rows * d->columns * sizeof(float);
    const bool refused = result.workspace_bytes > preference->workspace || (refuses("ways") && way == 0);
    result.state = refused ? kNotSupported : kSuccess;
  }
  return kSuccess;
}

Status cublasLtMatmul(Handle, Desc desc, const void* alpha, const void* a, Layout layout_a, const void* b,
                      Layout layout_b, const void* beta, const void* c, Layout, void* d, Layout layout_d,
                      const Algo* algo, void* workspace, std::size_t workspace_bytes, CudaStream stream) {
  if (refuses("matmul")) return kAllocFailed;
  if (refuses("device")) return kExecutionFailed;
  const std::uint64_t way = algo->data[0] - kAlgo;
  if (way >= kWays || c != d) return kInvalid;
  if (refuses("ways") ? way != 2 : way != 0) return kNotSupported;  // the best is asked for first
  if (refuses("apart") && layout_d->step != static_cast<std::int64_t>(layout_d->rows)) return kNotSupported;
  if (refuses("few") && layout_d->columns < 8) return kNotSupported;
  if (workspace_bytes < layout_d->rows * layout_d->columns * sizeof(float)) return kInvalid;
  Work work{*desc, *layout_a, *layout_b, *layout_d, 0, 0, a, b, static_cast<float*>(d), workspace};
  std::memcpy(&work.alpha, alpha, sizeof work.alpha);
  std::memcpy(&work.beta, beta, sizeof work.beta);
  auto& queue = *static_cast<cuda::emulator::LaunchQueue*>(stream);
  queue.submit([work] { multiply(work); });
  queue.submit([work] { add(work); });
  return kSuccess;
}

}  // extern "C"

}  // namespace kvroof::cublaslt
