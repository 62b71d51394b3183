"""The families of variants there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncpoint.diagnosis.variants.activations import activations
from syncpoint.diagnosis.variants.any_op import general
from syncpoint.diagnosis.variants.arithmetic import arithmetic
from syncpoint.diagnosis.variants.attention import attentions
from syncpoint.diagnosis.variants.attention_steps import scores
from syncpoint.diagnosis.variants.batch_norms import batch_norms
from syncpoint.diagnosis.variants.clamps import bounds
from syncpoint.diagnosis.variants.embedding import embeddings
from syncpoint.diagnosis.variants.layouts import layouts
from syncpoint.diagnosis.variants.normalization import normalizations
from syncpoint.diagnosis.variants.products import weighted
from syncpoint.diagnosis.variants.protocol import Family, Hypothesis, Seen
from syncpoint.diagnosis.variants.reductions import reductions
from syncpoint.diagnosis.variants.resizing import resizes
from syncpoint.diagnosis.variants.rotary import rotary
from syncpoint.diagnosis.variants.siblings import siblings
from syncpoint.diagnosis.variants.softmax import softmaxes
from syncpoint.diagnosis.variants.windows import windows

# What is cheap and simple first: of a large op the rest need then not be tried.
_FAMILIES: tuple[Family, ...] = (
    weighted,
    batch_norms,
    activations,
    normalizations,
    attentions,
    scores,
    softmaxes,
    rotary,
    embeddings,
    siblings,
    windows,
    resizes,
    bounds,
    arithmetic,
    reductions,
    layouts,
    general,
)


def variants(seen: Seen) -> Iterator[Hypothesis]:
    """Everything that this op may have computed instead, in the shape of what it gives."""
    for family in _FAMILIES:
        with np.errstate(all="ignore"):
            for found in family(seen):
                if found.value.shape != seen.output.shape:
                    continue
                if seen.kinds is None or found.kind in seen.kinds:
                    yield found
