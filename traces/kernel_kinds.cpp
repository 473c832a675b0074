#include "traces/kernel_kinds.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace kvroof {
namespace {

struct Rule {
  std::string_view part;  // of the name, in small letters
  std::string_view kind;
};

// The first rule that fits counts: names of attention kernels hold the types of CUTLASS, those of products the word
// relu.
constexpr auto kRules = std::to_array<Rule>({
    {"nccl", "communication"},
    {"all_reduce", "communication"},
    {"allreduce", "communication"},
    {"all_gather", "communication"},
    {"allgather", "communication"},
    {"reduce_scatter", "communication"},
    {"cross_device_reduce", "communication"},
    {"reshape_and_cache", "kv_cache"},
    {"concat_and_cache", "kv_cache"},
    {"appendpagedkv", "kv_cache"},
    {"copy_blocks", "kv_cache"},
    {"updatekvcache", "kv_cache"},
    {"k_set_rows", "kv_cache"},
    {"flash_fwd", "attention"},
    {"flash::", "attention"},
    {"flashattn", "attention"},
    {"flash_mla", "attention"},
    {"fmha", "attention"},
    {"sdpa", "attention"},  // cuDNN's, whose names hold fprop as those of its convolutions do
    {"attention", "attention"},
    {"attn", "attention"},
    {"kernel_mha", "attention"},
    {"_fwd_grouped_kernel", "attention"},  // Triton's, of SGLang and vLLM
    {"_fwd_kernel_stage", "attention"},
    {"pagedkvcache", "attention"},
    {"raggedkvcache", "attention"},
    {"topkgating", "routing"},
    {"grouped_topk", "routing"},
    {"moe_align", "routing"},
    {"moe_sum", "routing"},
    {"count_and_sort_expert", "routing"},
    {"moerouting", "routing"},
    {"expandinputrows", "routing"},
    {"topk", "sampling"},
    {"top_k", "sampling"},
    {"topp", "sampling"},
    {"argmax", "sampling"},
    {"sampl", "sampling"},
    {"multinomial", "sampling"},
    {"penalt", "sampling"},
    {"radixsort", "sampling"},
    {"rms_norm", "normalisation"},
    {"rmsnorm", "normalisation"},
    {"layer_norm", "normalisation"},
    {"layernorm", "normalisation"},
    {"cudnn::bn_", "normalisation"},
    {"rsqrt", "normalisation"},
    {"rotary", "rotary"},
    {"rope_", "rotary"},
    {"fprop", "convolution"},
    {"dgrad", "convolution"},
    {"wgrad", "convolution"},
    {"scudnn", "convolution"},
    {"winograd", "convolution"},
    {"conv2d", "convolution"},
    {"gemm", "gemm"},
    {"gemv", "gemm"},
    {"nvjet", "gemm"},
    {"xmma", "gemm"},
    {"splitkreduce", "gemm"},
    {"marlin", "gemm"},
    {"matmul", "gemm"},
    {"mul_mat", "gemm"},
    {"wvsplitk", "gemm"},
    {"cijk_", "gemm"},
    {"fused_moe", "gemm"},
    {"triton_tem", "gemm"},
    {"cutlass::", "gemm"},
    {"quant", "quantisation"},
    {"softmax", "softmax"},
    {"soft_max", "softmax"},
    {"triton_poi", "elementwise"},
    {"triton_red", "reduction"},
    {"triton_per", "reduction"},
    {"reduce_kernel", "reduction"},
    {"reducesplitk", "reduction"},
    {"devicescan", "reduction"},
    {"silu", "elementwise"},
    {"gelu", "elementwise"},
    {"act_and_mul", "elementwise"},
    {"activation", "elementwise"},
    {"dropout", "elementwise"},
    {"multi_tensor_apply", "elementwise"},
    {"k_bin_bcast", "elementwise"},
    {"unary_", "elementwise"},
    {"copy", "copy"},
    {"catarray", "copy"},
    {"gather", "copy"},
    {"scatter", "copy"},
    {"get_rows", "copy"},
    {"cpy_", "copy"},
    {"permute", "copy"},
    {"transpose", "copy"},
    {"nchwtonhwc", "copy"},
    {"nhwctonchw", "copy"},
    {"index", "copy"},
    {"embedding", "copy"},
    {"fillfunctor", "copy"},
    {"elementwise", "elementwise"},
});

}  // namespace

std::string_view kind_of_kernel(std::string_view demangled) {
  std::string name(demangled);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const auto* const rule = std::find_if(kRules.begin(), kRules.end(),
                                        [&](const Rule& r) { return name.find(r.part) != std::string::npos; });
  return rule == kRules.end() ? "other" : rule->kind;
}

}  // namespace kvroof
