"""The kind and class of an op type or generated op name: one name in all runtimes, such as `matmul`
for `aten.mm` and `Gemm`."""

from __future__ import annotations

import re
from functools import lru_cache

_CLASSES = {
    "matmul": "linear matmul mm bmm addmm baddbmm gemm fusedmatmul fusedgemm transposematmul"
    " matmulnbits matmulinteger qlinearmatmul qgemm dense fullyconnected fully_connected"
    " dynamicquantizematmul matmulintegertofloat _linear mv dot innerproduct batchmatmul"
    " broadcasting_batch_matmul",
    "conv": "conv conv1d conv2d conv3d convolution _convolution fusedconv qlinearconv nhwcconv"
    " nhwcfusedconv convinteger depthwiseconv2d depthwise_conv_2d conv_2d mkldnn_convolution",
    "conv_transpose": "convtranspose conv_transpose1d conv_transpose2d conv_transpose3d",
    "batch_norm": "batch_norm native_batch_norm _native_batch_norm_legit"
    " _native_batch_norm_legit_no_training batchnormalization cudnn_batch_norm"
    " _batch_norm_with_update batchnorminference fusedbatchnormv3",
    "layer_norm": "layer_norm native_layer_norm layernormalization skiplayernormalization"
    " embedlayernormalization mvn",
    "rms_norm": "rms_norm _fused_rms_norm rmsnormalization simplifiedlayernormalization"
    " skipsimplifiedlayernormalization",
    "group_norm": "group_norm native_group_norm groupnormalization groupnorm instance_norm"
    " instancenormalization",
    "attention": "scaled_dot_product_attention attention multiheadattention"
    " _scaled_dot_product_flash_attention_for_cpu groupqueryattention packedattention"
    " _scaled_dot_product_efficient_attention",
    "softmax": "softmax _softmax qlinearsoftmax _safe_softmax",
    "log_softmax": "log_softmax _log_softmax logsoftmax",
    "embedding": "embedding gather gather_nd index_select take",
    "max_pool": "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices maxpool nhwcmaxpool"
    " maxpooling max_pool_2d",
    "avg_pool": "avg_pool1d avg_pool2d avg_pool3d averagepool qlinearaveragepool avg_pool_2d",
    "global_pool": "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d"
    " globalaveragepool qlinearglobalaveragepool",
    "mean": "mean reducemean reduce_mean",
    "sum": "sum reducesum reduce_sum",
    "max": "max amax reducemax reduce_max maximum broadcasting_maximum",
    "min": "min amin reducemin reduce_min minimum broadcasting_minimum",
    "relu": "relu",
    "clamp": "clamp hardtanh relu6 clip clamp_min clamp_max",
    "gelu": "gelu fastgelu biasgelu quickgelu",
    "silu": "silu swish",
    "leaky_relu": "leaky_relu leakyrelu prelu",
    "sigmoid": "sigmoid logistic qlinearsigmoid",
    "hard_sigmoid": "hardsigmoid hard_sigmoid",
    "hard_swish": "hardswish hard_swish",
    "tanh": "tanh",
    "erf": "erf",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "neg": "neg",
    "abs": "abs",
    "sin": "sin",
    "cos": "cos",
    "reciprocal": "reciprocal",
    "pow": "pow square broadcasting_pow",
    "add": "add qlinearadd biasadd broadcasting_add",
    "sub": "sub rsub broadcasting_sub",
    "mul": "mul qlinearmul multiply broadcasting_mul",
    "div": "div true_divide divide broadcasting_divide",
    "where": "where masked_fill select_v2 broadcasting_where",
    "concat": "cat stack concat qlinearconcat concatenate concatv2",
    "split": "split chunk split_with_sizes unbind tensor_split splitv unsafe_split unsafe_chunk"
    " unsafe_split_with_sizes",
    "slice": "slice select narrow strided_slice stridedslice",
    "reshape": "view reshape _unsafe_view flatten squeeze unsqueeze expanddims unflatten"
    " _reshape_alias",
    "transpose": "transpose permute t movedim swapaxes mt numpy_t",
    "expand": "expand broadcast_to expand_as tile repeat broadcast_in_dim broadcast_in_dims",
    "identity": "identity clone contiguous alias detach dropout native_dropout lift_fresh_copy"
    " alias_copy detach_ _to_copy to cast convert_element_type type_as _assert_tensor_metadata"
    " float half double convert reorderinput reorderoutput reorder copy",
    "quantize": "quantizelinear quantize_per_tensor quantize_per_channel quantize"
    " dynamicquantizelinear fakequantize fake_quantize_per_tensor_affine",
    "dequantize": "dequantizelinear dequantize_per_tensor dequantize_per_channel dequantize"
    " dequantize_self blockwise_shift_scale constexpr_blockwise_shift_scale lut_to_dense",
    "greater": "gt greater broadcasting_greater",
    "less": "lt less broadcasting_less",
    "equal": "eq equal broadcasting_equal",
    "scatter": "index_copy index_put index_fill scatter scatter_nd scatternd scatterelements"
    " scatter_update slice_scatter select_scatter slice_update _unsafe_index_put",
    "argmax": "argmax",
    "topk": "topk",
    "pad": "pad constant_pad_nd padv2",
    "upsample": "upsample_nearest2d upsample_bilinear2d resize interpolate",
    "cumsum": "cumsum",
}
_BY_KIND = {kind: name for name, kinds in _CLASSES.items() for kind in kinds.split()}

TRANSPARENT = frozenset({"reshape", "transpose", "expand", "identity", "quantize", "dequantize"})
"""Ops that return the numbers they read in another shape, order or type."""
ACTIVATIONS = frozenset(
    {"relu", "clamp", "gelu", "silu", "leaky_relu", "sigmoid", "hard_sigmoid", "hard_swish", "tanh"}
)
ABSORBED = ACTIVATIONS | {"batch_norm", "add", "sub", "mul", "div"}
"""Ops that compilers fuse into the op before them."""
AFFINE = frozenset({"batch_norm", "add", "sub", "mul", "div"})
"""Those of them that can be folded into weights; add, sub, mul and div only with a constant."""
RECURRENT = frozenset({"lstm", "gru", "rnn"})
"""Ops that compute several steps of several ops, which other files spell out."""
COMMUTATIVE = frozenset({"add", "mul", "max", "min"})
PRIMITIVE = frozenset(
    {"add", "sub", "mul", "div", "pow", "sqrt", "rsqrt", "exp", "log", "neg", "abs", "erf"}
    | {"reciprocal", "mean", "sum", "max", "min", "where", "tanh", "sigmoid"}
)
"""Ops that larger ops are decomposed into: one of these alone is weak evidence."""

_NUMBER = re.compile(r"(?:_\d+)+$")
_TAIL = re.compile(r"_(?:copy|default|tensor|scalar)$")


@lru_cache(maxsize=4096)
def op_kind(op_type: str) -> str:
    """The type of an op without namespace and overload, which differ between forms of a model."""
    parts = op_type.split(".")
    if parts[0] in ("aten", "prims") and len(parts) > 1:
        return parts[1].rstrip("_")
    return op_type.lower()


@lru_cache(maxsize=4096)
def op_class(op_type: str) -> str:
    """The class of an op by its type; its kind if it belongs to no class."""
    kind = op_kind(op_type)
    if kind not in _BY_KIND:
        before, _, last = kind.rpartition(".")
        name = before.rpartition(".")[2]
        # Custom torch ops end in the name of an overload.
        kind = name if last not in _BY_KIND and name in _BY_KIND else last.rpartition("::")[2]
    return _BY_KIND.get(kind, kind)


def is_classified(op_type: str) -> bool:
    """Whether an op type belongs to a class."""
    return op_class(op_type) in _CLASSES


@lru_cache(maxsize=65536)
def class_of_name(name: str) -> str:
    """The class named by a generated op name such as `native_layer_norm_3`; "" if none."""
    stem = _NUMBER.sub("", name).lower()
    return _BY_KIND.get(stem) or _BY_KIND.get(_TAIL.sub("", stem), "")
