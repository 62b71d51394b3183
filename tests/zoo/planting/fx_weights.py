"""Parameters that are not those of the reference."""

import torch

from zoo.planting.registry import planter
from zoo.programs import parameter, readers, set_parameter
from zoo.work import NoSite, pick


def _names(work, least=2):
    """Weights that are read, of so many axes or more."""
    return [
        name
        for name, value in work.program.state_dict.items()
        if value.is_floating_point()
        and value.ndim >= least
        and name.endswith("weight")
        and readers(work.program, name)
    ]


def _changed(work, name, value, said):
    nodes = readers(work.program, name)
    work.blame(name, *(node.name for node in nodes))
    work.said = f"{name} {said}"
    set_parameter(work.program, name, value)


def _generator(work):
    return torch.Generator().manual_seed(work.rng.randrange(1 << 30))


@planter("program")
def weight_changed(work, amount):
    """Of another checkpoint: every element moved a little."""
    name = pick(work, _names(work), "no weight")
    old = parameter(work.program, name).float()
    noise = torch.randn(old.shape, generator=_generator(work)) * old.std() * amount
    _changed(work, name, old + noise, f"is off by {amount:.1%}")


@planter("program")
def weight_scaled(work, factor):
    name = pick(work, _names(work), "no weight")
    _changed(work, name, parameter(work.program, name) * factor, f"times {factor:.3f}")


@planter("program")
def weight_permuted(work):
    """Output channels in another order."""
    name = pick(work, _names(work), "no weight")
    old = parameter(work.program, name)
    order = torch.randperm(len(old), generator=_generator(work))
    _changed(work, name, old[order], "with its rows in another order")


@planter("program")
def weight_transposed(work):
    found = [n for n in _names(work) if work.program.state_dict[n].ndim == 2]
    found = [n for n in found if len(set(work.program.state_dict[n].shape)) == 1]
    name = pick(work, found, "no square weight")
    _changed(work, name, parameter(work.program, name).T, "is transposed")


@planter("program")
def weight_rounded(work, to):
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[to]
    name = pick(work, _names(work), "no weight")
    old = parameter(work.program, name)
    _changed(work, name, old.to(kind).to(old.dtype), f"is rounded to {to}")


@planter("program")
def weight_stale(work):
    """One layer as it was before training went on: alike, and another."""
    name = pick(work, _names(work), "no weight")
    old = parameter(work.program, name).float()
    other = torch.randn(old.shape, generator=_generator(work)) * old.std()
    _changed(work, name, 0.6 * old + 0.8 * other, "is of an older checkpoint")


@planter("program")
def weights_swapped(work):
    """Two layers of one shape with each other's weights."""
    forms = {}
    for name in _names(work):
        forms.setdefault(tuple(work.program.state_dict[name].shape), []).append(name)
    pairs = [names for names in forms.values() if len(names) > 1]
    if not pairs:
        raise NoSite("no two weights of one shape")
    one, other = work.rng.sample(work.rng.choice(pairs), 2)
    first, second = (parameter(work.program, name).clone() for name in (one, other))
    _changed(work, one, second, f"is {other}")
    _changed(work, other, first, f"is {one}")
    work.said = f"{one} and {other} are swapped"


@planter("program")
def weight_channel_zero(work):
    name = pick(work, _names(work), "no weight")
    value = parameter(work.program, name).clone()
    channel = work.rng.randrange(len(value))
    value[channel] = 0
    _changed(work, name, value, f"has zeros in channel {channel}")


@planter("program")
def statistics_never_loaded(work):
    """Running mean and variance as a fresh module has them."""
    found = [n for n in work.program.state_dict if n.endswith("running_var")]
    name = pick(work, found, "no running statistics")
    mean = name.replace("running_var", "running_mean")
    fresh = parameter(work.program, name)
    _changed(work, mean, torch.zeros_like(fresh), "is 0")
    _changed(work, name, torch.ones_like(fresh), "is 1")
    work.said = f"{mean} and running_var are 0 and 1"


@planter("program")
def embedding_shifted(work):
    """Rows of a table moved by one: a vocabulary with one token more in front."""
    found = [n for n in work.program.state_dict if n == "tokens.weight"]
    name = pick(work, found, "no table of tokens")
    old = parameter(work.program, name)
    _changed(work, name, old.roll(1, 0), "has its rows moved by one")
