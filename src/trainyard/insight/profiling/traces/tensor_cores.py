"""Which kernels use tensor cores, and which operators could.

The lists are those of torch_tb_profiler, with what has come since: cuBLAS and CUTLASS on Hopper and later, and fused
attention, which is half of the matrix products of a transformer.
"""

# Parts of the names of kernels.
_KERNELS = (
    *("h884", "s884", "h1688", "s1688", "hmma", "i8816", "16816", "dgrad_1x1_stride_2x2", "first_layer_wgrad_kernel"),
    *("conv1x1", "conv2d_c1_k1", "direct_group", "xmma_implicit_gemm", "xmma_sparse_conv"),
    *("xmma_warp_specialized_implicit_gemm", "xmma_gemm", "xmma_sparse_gemm", "c1688"),
    *("nvjet", "gmma", "tensorop", "tcgen05", "flash_fwd", "flash_bwd", "flash::", "fmha_cutlass", "sdpa_sm"),
)

_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *("_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d"),
        *(
            "conv_transpose3d",
            "convolution",
            "cudnn_convolution",
            "cudnn_convolution_transpose",
            "convolution_backward",
        ),
        *("cudnn_convolution_backward", "cudnn_convolution_backward_input", "cudnn_convolution_backward_weight"),
        *("prelu", "addmm", "addmm_", "addmv", "addr", "matmul", "mm", "mv", "linear", "addbmm", "baddbmm", "bmm"),
        *("chain_matmul", "linalg_multi_dot", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell"),
        *("gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "scaled_dot_product_attention"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"),
        *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward", "_scaled_mm"),
    )
)
_BACKWARD = ("CudnnConvolution", "ConvolutionBackward", "BmmBackward", "MmBackward", "AddmmBackward", "AddmvBackward")


def uses_tensor_cores(kernel: str) -> bool:
    return any(part in kernel for part in _KERNELS)


def can_use_tensor_cores(operator: str) -> bool:
    """Tell whether autocast gives an operator, or the backward of one, to tensor cores."""
    return operator in _OPERATORS or operator.startswith(_BACKWARD)
