// What is called of cuBLASLt, which is loaded by name at run time: its C functions and the values that they take
// (cuBLAS documentation, "Using the cublasLt API"). No header of it is needed to build; cublaslt_api_check.cpp holds
// this against one where it is found.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvroof::cublaslt {

// Versions 12 and 13 have these types and values.
inline constexpr std::size_t kOldestMajor = 12, kNewestMajor = 13;
constexpr std::size_t major_of(std::size_t version) { return version / 10000; }  // 13.1.0 is 130100

using Status = int;  // cublasStatus_t
inline constexpr Status kSuccess = 0, kExecutionFailed = 13, kNotSupported = 15;

inline constexpr int kReal32 = 0, kReal16 = 2, kRealBF16 = 14;  // cudaDataType
inline constexpr int kCompute32 = 68;                           // cublasComputeType_t: sums of 32 bits
inline constexpr std::int32_t kTransposed = 1;                  // cublasOperation_t

inline constexpr int kDescTransA = 3;               // cublasLtMatmulDescAttributes_t: an int32_t
inline constexpr int kPreferMostWorkspace = 1;      // cublasLtMatmulPreferenceAttributes_t: an uint64_t, bytes
inline constexpr int kPreferAlignment[] = {5, 6, 7, 8};  // of A, B, C and D: an uint32_t, bytes

struct Algo {  // cublasLtMatmulAlgo_t
  std::uint64_t data[8];
};
struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
  Algo algo;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

// The library's own: pointers to what it makes.
using Handle = struct HandleOpaque*;
using Desc = struct DescOpaque*;
using Layout = struct LayoutOpaque*;
using Preference = struct PreferenceOpaque*;
using CudaStream = void*;

// name, result, arguments. Matrices lie column after column; a layout is (type, rows, columns, elements from one column
// to the next). Matmul makes D = alpha · op(A) · B + beta · C.
#define KVROOF_CUBLASLT_FUNCTIONS(F)                                                                             \
  F(cublasLtGetVersion, std::size_t, (void))                                                                     \
  F(cublasLtGetStatusString, const char*, (Status))                                                              \
  F(cublasLtCreate, Status, (Handle*))                                                                           \
  F(cublasLtDestroy, Status, (Handle))                                                                           \
  F(cublasLtMatmulDescCreate, Status, (Desc*, int compute_type, int scale_type))                                 \
  F(cublasLtMatmulDescSetAttribute, Status, (Desc, int attribute, const void* value, std::size_t bytes))         \
  F(cublasLtMatmulDescDestroy, Status, (Desc))                                                                   \
  F(cublasLtMatrixLayoutCreate, Status,                                                                          \
    (Layout*, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t column_step))                    \
  F(cublasLtMatrixLayoutDestroy, Status, (Layout))                                                               \
  F(cublasLtMatmulPreferenceCreate, Status, (Preference*))                                                       \
  F(cublasLtMatmulPreferenceSetAttribute, Status, (Preference, int attribute, const void* value, std::size_t bytes)) \
  F(cublasLtMatmulPreferenceDestroy, Status, (Preference))                                                       \
  F(cublasLtMatmulAlgoGetHeuristic, Status,                                                                      \
    (Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference, int asked, HeuristicResult*, int* found)) \
  F(cublasLtMatmul, Status,                                                                                      \
    (Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,            \
     const void* c, Layout, void* d, Layout, const Algo*, void* workspace, std::size_t workspace_bytes, CudaStream))

struct Functions {
#define KVROOF_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  KVROOF_CUBLASLT_FUNCTIONS(KVROOF_MEMBER)
#undef KVROOF_MEMBER
};

}  // namespace kvroof::cublaslt
