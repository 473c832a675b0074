// Names as profiles of vLLM, PyTorch and their libraries show them.
#include "traces/kernel_kinds.hpp"

#include <utility>

#include "tests/catch.hpp"

using namespace kvroof;

TEST_CASE("A kernel's kind is told by the names that libraries give their kernels") {
  constexpr std::pair<const char*, const char*> kNames[] = {
      // cuBLAS, CUTLASS, Triton templates, Marlin
      {"nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm"},
      {"nvjet_sm121_tst_mma_128x96x64_3_64x24x64_tmaAB_bz_TNNN", "gemm"},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, false, "
       "false>(cublasLt::cublasSplitKParams<float>, float const*)", "gemm"},
      {"ampere_bf16_s1688gemm_bf16_128x64_sliced1x2_ldg8_f2f_tn", "gemm"},
      {"ampere_sgemm_64x64_tn", "gemm"},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8>(cutlass_80_tensorop_"
       "bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8::Params)", "gemm"},
      {"sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_cgasize1x1x1", "gemm"},
      {"std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16>", "gemm"},
      {"triton_tem_fused_mm_0", "gemm"},
      {"fused_moe_kernel", "gemm"},
      // FlashAttention 2 and 3, vLLM, FlashInfer, TensorRT-LLM, PyTorch
      {"void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, "
       "cutlass::bfloat16_t, Flash_kernel_traits<128, 64, 128, 4, cutlass::bfloat16_t> >, true, "
       "false>(flash::Flash_fwd_params)",
       "attention"},
      {"void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloop> > >",
       "attention"},
      {"void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128, "
       "(vllm::Fp8KVCacheDataType)0>", "attention"},
      {"kernel_unified_attention_2d", "attention"},
      {"_fwd_grouped_kernel_stage1", "attention"},
      {"_fwd_kernel_stage2", "attention"},
      {"void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 8u>", "attention"},
      {"fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ128Kv128PersistentContext",
       "attention"},
      {"void fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention"},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128_4x1x1_cga1x1x1_kernel0_0",
       "attention"},
      // vLLM's own
      {"void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(...)",
       "kv_cache"},
      {"void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>", "kv_cache"},
      {"std::enable_if<(int)0 && vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
       "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>", "normalisation"},
      {"void flashinfer::norm::RMSNormKernel<8u, __half>", "normalisation"},
      {"void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)", "rotary"},
      {"void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>", "elementwise"},
      {"void vllm::moe::topkGating<8, 128, 4, 16, 32, int, __nv_bfloat16, (vllm::moe::ScoringFunc)0>", "routing"},
      {"void vllm::moe::moe_align_block_size_kernel<int>", "routing"},
      {"_topk_topp_kernel", "sampling"},
      {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"},
      {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", "communication"},
      // torch.compile
      {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1", "normalisation"},
      {"triton_red_fused__to_copy_add_fused_add_rms_norm_1", "normalisation"},
      {"triton_poi_fused_mul_silu_slice_3", "elementwise"},
      {"triton_poi_fused_clone_copy_index_select_slice_split_7", "elementwise"},
      {"triton_per_fused_sum_2", "reduction"},
      // ATen
      {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
       "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
       "elementwise"},
      {"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::(anonymous namespace)::"
       "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}>(int)", "copy"},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >",
       "copy"},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::OpaqueType<2u>, unsigned int, "
       "3>", "copy"},
      {"void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long, unsigned int, 2, 2, -2>",
       "copy"},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >",
       "reduction"},
      {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>", "softmax"},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>", "softmax"},
      // llama.cpp
      {"void mul_mat_vec_q<(ggml_type)12, 1, false, false>(void const*, void const*, int const*, float*)", "gemm"},
      {"void mul_mat_q<(ggml_type)12, 64, false>(char const*, int const*, int const*, float*, float*)", "gemm"},
      {"quantize_q8_1(float const*, void*, long, long, long, long, long, int, int)", "quantisation"},
      {"void rms_norm_f32<256, true, false>(float const*, float*, int, long, long, long, float)", "normalisation"},
      {"void rope_norm<true, false, float>(float const*, float*, int, int, int, int, int, int const*)", "rotary"},
      {"void k_set_rows<float, long, __half>(float const*, long const*, __half*, long)", "kv_cache"},
      {"void flash_attn_ext_vec<128, 1, (ggml_type)1, (ggml_type)1, false>(char const*, char const*)", "attention"},
      {"void soft_max_f32<true, 256, 256, float>(float const*, float const*, float*)", "softmax"},
      {"void k_bin_bcast<&op_add, float, float, float>(float const*, float const*, float*, int, int)", "elementwise"},
      {"void unary_gated_op_kernel<&op_silu, float>(float const*, float const*, float*, long)", "elementwise"},
      {"void k_get_rows_float<float, float>(float const*, int const*, float*, long)", "copy"},
      {"void cpy_flt<&cpy_1_flt_flt<float, __half> >(char const*, char*, int)", "copy"},
      // TensorRT-LLM
      {"void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<unsigned short, 128>", "attention"},
      {"kernel_mha", "attention"},
      {"void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16, 128, true>", "kv_cache"},
      {"void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<__nv_bfloat16>", "routing"},
      {"void tensorrt_llm::kernels::cutlass_kernels::doActivationKernel<__nv_bfloat16>", "elementwise"},
      // AMD: hipBLASLt, vLLM's product of few rows
      {"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0_AFC1", "gemm"},
      {"void wvSplitK_hf_sml_<__hip_bfloat16, 64, 4, 16, 8, 1, 1>(int, int, __hip_bfloat16 const*)", "gemm"},
      // cuDNN, optimisers
      {"void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_32x4_nhwc_align4>",
       "convolution"},
      {"cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "convolution"},
      {"void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>", "copy"},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
       "TensorListMetadata<1> >", "elementwise"},
      {"some_mystery_kernel", "other"},
      {"", "other"},
  };
  for (const auto& [name, kind] : kNames) {
    INFO(name);
    CHECK(kind_of_kernel(name) == kind);
  }
}
