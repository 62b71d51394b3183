"""The families of variants there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncpoint.diagnosis.variants.activations import activations
from syncpoint.diagnosis.variants.attention import attentions
from syncpoint.diagnosis.variants.embedding import embeddings
from syncpoint.diagnosis.variants.normalization import normalizations
from syncpoint.diagnosis.variants.protocol import Family, Hypothesis, Seen
from syncpoint.diagnosis.variants.rotary import rotary
from syncpoint.diagnosis.variants.scores import scores
from syncpoint.diagnosis.variants.siblings import siblings
from syncpoint.diagnosis.variants.softmax import softmaxes

_FAMILIES: tuple[Family, ...] = (
    activations,
    normalizations,
    attentions,
    scores,
    softmaxes,
    rotary,
    embeddings,
    siblings,
)


def variants(seen: Seen) -> Iterator[Hypothesis]:
    """Everything that this op may have computed instead, in the shape of what it gives."""
    for family in _FAMILIES:
        with np.errstate(all="ignore"):
            for found in family(seen):
                if found.value.shape == seen.output.shape:
                    yield found
