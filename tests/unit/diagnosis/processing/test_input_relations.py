"""Inputs that were prepared differently are explained in the words of pipelines."""

import numpy as np
import pytest

from syncpoint.diagnosis.processing.input_relations import find_input_relation
from syncpoint.diagnosis.processing.output_relations import find_output_relation

rng = np.random.default_rng(5)
MEAN = np.array([0.485, 0.456, 0.406])[None, :, None, None]
DEVIATION = np.array([0.229, 0.224, 0.225])[None, :, None, None]


def picture(seed=0):
    """Smooth, as photographs are, in 0..1."""
    made = np.random.default_rng(seed).random((1, 3, 24, 24))
    for _ in range(6):
        made = sum(np.roll(made, s, a) for a in (2, 3) for s in (-1, 0, 1)) / 6
    made -= made.min()
    return made / made.max()


def normalised(x):
    return (x - MEAN) / DEVIATION


X = picture()
IDS = np.random.default_rng(1).integers(5, 900, (2, 12)).astype(float)
PADDED = IDS.copy()
PADDED[0, 8:] = 0
LEFT = PADDED.copy()
LEFT[0] = np.roll(PADDED[0], 4)
MASK = (PADDED != 0).astype(float)

CASES = {
    "x255": (X, 255 * X, "scale", "not divided by 255"),
    "by255": (255 * X, X, "scale", "divided by 255"),
    "imagenet": (normalised(X), X, "normalisation", "not normalized"),
    "added": (X, normalised(X), "normalisation", "ImageNet"),
    "half": (normalised(X), 2 * X - 1, "normalisation", "0.5"),
    "255 and none": (normalised(X), normalised(255 * X), "normalisation", ""),
    "bgr": (X, X[:, ::-1], "channel-order", "RGB"),
    "nhwc": (X, np.moveaxis(X, 1, -1), "layout", "channels last"),
    "nhwc flat": (X, np.moveaxis(X, 1, -1).reshape(X.shape), "layout", "channels last"),
    "bgr and x255": (X, 255 * X[:, ::-1], "channel-order+scale", "255"),
    "bgr then mean": (normalised(X), normalised(X[:, ::-1]), "channel-order+normalisation", ""),
    "f16": (X, X.astype(np.float16).astype(float), "rounded", "float16"),
    "u8": (X, np.floor(X * 255) / 255, "rounded", "8 bits"),
    "u8 whole": (X, np.rint(X * 255), "rounded", "255"),
    "shift": (X, np.roll(X, 2, -1), "shift", "2 pixels right (axis 3)"),
    "mirror": (X, X[..., ::-1], "flipped", "axis 3"),
    "half pixel": (X, (X + np.roll(X, -1, -1)) / 2, "resize", ""),
    "ids": (IDS, IDS + 1, "off-by-one", "+1"),
    "bos": (
        IDS,
        np.concatenate([np.ones((2, 1)), IDS[:, :-1]], 1),
        "sequence-shift",
        "shifted by 1",
    ),
    "no bos": (IDS, np.concatenate([IDS[:, 1:], np.ones((2, 1))], 1), "sequence-shift", "first 1"),
    "longer": (IDS, np.concatenate([np.ones((2, 1)), IDS], 1), "length", "1 more"),
    "padding": (PADDED, LEFT, "padding-side", "at the start, the reference's at the end"),
    "mask": (MASK, 1 - MASK, "mask-inverted", "inverted"),
    "no mask": (MASK, np.ones_like(MASK), "mask-missing", "is 1 everywhere"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_known_difference_is_named(case):
    reference, target, kind, words = CASES[case]
    found = find_input_relation(np.asarray(reference), np.asarray(target))
    assert found is not None and found.kind == kind and words in found.words, found


def test_unrelated_pictures_and_ids_have_no_relation():
    noise = np.random.default_rng(9)
    assert find_input_relation(X, noise.random(X.shape)) is None
    assert find_input_relation(picture(1), picture(2)) is None
    assert find_input_relation(IDS, noise.integers(5, 900, IDS.shape).astype(float)) is None


LOGITS = rng.normal(size=(4, 7)) * 3
SOFT = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("reference", "target", "kind"),
    [
        (LOGITS, SOFT, "softmax"),
        (SOFT, LOGITS, "softmax-missing"),
        (LOGITS, np.log(SOFT), "log-softmax"),
        (LOGITS, 1 / (1 + np.exp(-LOGITS)), "sigmoid"),
        (LOGITS, LOGITS / 0.7, "scaled"),
        (LOGITS, LOGITS[:, [3, 1, 2, 0, 6, 5, 4]], "label-order"),
        (LOGITS, LOGITS.T, "layout"),
        (LOGITS, LOGITS.argmax(-1).astype(float), "argmax"),
    ],
)
def test_what_was_done_to_an_output_is_named(reference, target, kind):
    found = find_output_relation(reference, target, 1e-5)
    assert found is not None and found.kind == kind


def test_unrelated_outputs_have_no_relation():
    assert find_output_relation(LOGITS, rng.normal(size=LOGITS.shape), 1e-4) is None
