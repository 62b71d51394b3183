"""The list of families of variants; generate those that fit an op."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncpoint.diagnosis.variants.activations_and_clamps import vary_activation, vary_clamp
from syncpoint.diagnosis.variants.any_op import vary_any_op, vary_siblings
from syncpoint.diagnosis.variants.arithmetic import vary_arithmetic
from syncpoint.diagnosis.variants.attention import vary_attention, vary_attention_steps
from syncpoint.diagnosis.variants.convolution_and_pool_windows import vary_windows
from syncpoint.diagnosis.variants.embedding import vary_embedding
from syncpoint.diagnosis.variants.layouts import vary_layout
from syncpoint.diagnosis.variants.normalization import vary_batch_norm, vary_normalization
from syncpoint.diagnosis.variants.protocol import Family, Hypothesis, OpUnderTest
from syncpoint.diagnosis.variants.reductions import vary_reduction
from syncpoint.diagnosis.variants.resizing import vary_resizing
from syncpoint.diagnosis.variants.rotary import vary_rotary
from syncpoint.diagnosis.variants.softmax import vary_softmax
from syncpoint.diagnosis.variants.weight_and_bias import vary_weighted_product

# Cheap and simple families first: for a large op the search may stop before the others.
_FAMILIES: tuple[Family, ...] = (
    vary_weighted_product,
    vary_batch_norm,
    vary_activation,
    vary_normalization,
    vary_attention,
    vary_attention_steps,
    vary_softmax,
    vary_rotary,
    vary_embedding,
    vary_siblings,
    vary_windows,
    vary_resizing,
    vary_clamp,
    vary_arithmetic,
    vary_reduction,
    vary_layout,
    vary_any_op,
)


def generate_variants(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Generate the requested variants of an op that have the shape of its output."""
    for family in _FAMILIES:
        with np.errstate(all="ignore"):
            for hypothesis in family(tested_op):
                if hypothesis.value.shape != tested_op.output.shape:
                    continue
                if tested_op.kinds is None or hypothesis.kind in tested_op.kinds:
                    yield hypothesis
