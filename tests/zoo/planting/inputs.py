"""What the target is given is not what the reference is given."""

import torch
from torch.nn import functional

from zoo.planting.registry import planter
from zoo.work import NoSite, pick


def _image(work, change, said):
    (image,) = work.net.inputs
    _given(work, (change(image),), "image", said)


def _given(work, inputs, name, said):
    work.target_inputs = tuple(inputs)
    work.blame(name)
    work.said = said


@planter("inputs")
def image_scaled(work, factor):
    _image(work, lambda x: x * factor, f"the picture times {factor:.4g}")


@planter("inputs")
def image_normalised(work, form):
    """By other means and deviations than the model was trained with."""
    means = {"imagenet": (0.485, 0.456, 0.406), "half": (0.5, 0.5, 0.5), "none": (0, 0, 0)}[form]
    spans = {"imagenet": (0.229, 0.224, 0.225), "half": (0.5, 0.5, 0.5), "none": (1, 1, 1)}[form]
    mean, span = (torch.tensor(v).float().view(1, 3, 1, 1) for v in (means, spans))
    _image(work, lambda x: (x * 0.25 + 0.45 - mean) / span, f"normalised as {form}")


@planter("inputs")
def channels_reversed(work):
    _image(work, lambda x: x.flip(1), "BGR for RGB")


@planter("inputs")
def channels_last(work):
    """The bytes of a picture with channels last, handed over as if they came first."""

    def misread(x):
        return x.permute(0, 2, 3, 1).reshape(x.shape)

    _image(work, misread, "channels last, read as channels first")


@planter("inputs")
def image_shifted(work):
    right, down = work.rng.choice(((1, 0), (0, 1), (1, 1), (2, 0)))
    _image(work, lambda x: x.roll((down, right), (2, 3)), f"shifted by {right}, {down}")


@planter("inputs")
def image_resized(work):
    """Made smaller and larger again: another way of resizing on the way in."""

    def resized(x):
        small = functional.interpolate(x, scale_factor=0.5, mode="nearest")
        return functional.interpolate(small, size=x.shape[-2:], mode="bilinear")

    _image(work, resized, "resized in another way")


@planter("inputs")
def image_bytes(work):
    """Rounded to whole bytes, with the fraction cut off."""
    _image(work, lambda x: (x * 32).floor() / 32, "cut to few levels")


@planter("inputs")
def image_mirrored(work):
    axis = work.rng.choice((2, 3))
    _image(work, lambda x: x.flip(axis), f"flipped along axis {axis}")


@planter("inputs")
def tokens_off_by_one(work):
    ids, *others = work.net.inputs
    _given(work, (ids + 1, *others), "ids", "every id one more")


@planter("inputs")
def tokens_shifted(work):
    """A token that starts the text is missing, or there twice."""
    ids, *others = work.net.inputs
    _given(work, (ids.roll(1, 1), *others), "ids", "the text begins one place later")


@planter("inputs")
def padding_left(work):
    ids, *others = work.net.inputs
    if not others:
        raise NoSite("no padding")
    (keep,) = others
    moved = [
        torch.stack([row.roll(int((k == 0).sum())) for row, k in zip(v, keep, strict=True)])
        for v in (ids, keep)
    ]
    _given(work, moved, "ids", "padding in front")
    work.blame("keep")


@planter("inputs")
def mask_given(work, form):
    ids, *others = work.net.inputs
    keep = pick(work, others, "no mask")
    changed = 1 - keep if form == "inverted" else torch.ones_like(keep)
    _given(work, (ids, changed), "keep", f"the attention mask is {form}")
