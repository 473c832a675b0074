// Holds cublaslt_api.hpp against cuBLAS' header where the build finds one; a value that differs stops it.
#if defined(KVROOF_CUBLAS_HEADERS)

#include <cublasLt.h>

#include <type_traits>

#include "kernels/cuda/cublaslt_api.hpp"

namespace kvroof::cublaslt {
namespace {

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kExecutionFailed == CUBLAS_STATUS_EXECUTION_FAILED && kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(kReal32 == CUDA_R_32F && kReal16 == CUDA_R_16F && kRealBF16 == CUDA_R_16BF);
static_assert(kCompute32 == CUBLAS_COMPUTE_32F && kTransposed == CUBLAS_OP_T);
static_assert(kDescTransA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kPreferMostWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kPreferAlignment[0] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kPreferAlignment[1] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kPreferAlignment[2] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kPreferAlignment[3] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(sizeof(cublasStatus_t) == sizeof(Status) && sizeof(cudaDataType) == sizeof(int));
static_assert(sizeof(cublasComputeType_t) == sizeof(int) && sizeof(cublasOperation_t) == sizeof(std::int32_t));
static_assert(sizeof(cublasLtMatmulDescAttributes_t) == sizeof(int));
static_assert(sizeof(cublasLtMatmulPreferenceAttributes_t) == sizeof(int));
static_assert(major_of(CUBLAS_VERSION) >= kOldestMajor && major_of(CUBLAS_VERSION) <= kNewestMajor);

static_assert(sizeof(Algo) == sizeof(cublasLtMatmulAlgo_t) && alignof(Algo) == alignof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(HeuristicResult, algo) == offsetof(cublasLtMatmulHeuristicResult_t, algo));
static_assert(offsetof(HeuristicResult, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(HeuristicResult, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

// The types of the arguments differ by name, not by size: pointers, enumerations of int and integers.
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<sizeof(R) == sizeof(S) && (... && (sizeof(A) == sizeof(B) &&
                                                             std::is_pointer_v<A> == std::is_pointer_v<B>))> {};
#define KVROOF_SAME(name, result, arguments) static_assert(SameCall<result(*) arguments, decltype(&::name)>::value);
KVROOF_CUBLASLT_FUNCTIONS(KVROOF_SAME)
#undef KVROOF_SAME

}  // namespace
}  // namespace kvroof::cublaslt

#endif
