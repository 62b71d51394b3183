"""Axes, pools, pads and pictures: right numbers in the wrong places."""

from zoo.planting.registry import planter
from zoo.programs import (
    argument,
    aten,
    call,
    finish,
    ops,
    refresh,
    replace,
    set_argument,
    shape,
)
from zoo.work import NoSite, pick


@planter("program")
def softmax_axis(work):
    node = pick(work, ops(work.program, aten.softmax.int), "no softmax")
    work.blame(node.name)
    work.said = f"{node.name} along axis -2"
    set_argument(work.program, node, 1, -2)


@planter("program")
def corners_aligned(work):
    node = pick(work, ops(work.program, aten.upsample_bilinear2d.vec), "no bilinear resize")
    work.blame(node.name)
    work.said = f"{node.name} with aligned corners"
    set_argument(work.program, node, 2, True)


@planter("program")
def resize_kind(work):
    """Nearest where the model interpolates, or the other way round."""
    kinds = (aten.upsample_bilinear2d.vec, aten.upsample_nearest2d.vec)
    node = pick(work, ops(work.program, *kinds), "no resize")
    work.blame(node.name)
    size = list(shape(node)[-2:])
    if node.target is kinds[0]:
        made = call(work.program, node, kinds[1], node.args[0], size, None)
    else:
        made = call(work.program, node, kinds[0], node.args[0], size, False, None)
    work.said = f"{node.name} is {made.target}"
    replace(work.program, node, made)


@planter("program")
def nearest_rounding(work):
    """Nearest pixel by rounding the centre instead of the edge."""
    node = pick(work, ops(work.program, aten.upsample_nearest2d.vec), "no nearest resize")
    before, after = shape(node.args[0])[-1], shape(node)[-1]
    if after % before or shape(node)[-2] != after:
        raise NoSite("not a whole factor")
    work.blame(node.name)
    work.said = f"{node.name} takes the pixel after"
    made = call(work.program, node, aten.roll.default, node.args[0], [-1], [3])
    made = call(work.program, node, aten.upsample_nearest2d.vec, made, list(shape(node)[-2:]), None)
    # half of the places of the plain one, half of those of its neighbour
    split = call(work.program, node, aten.roll.default, made, [after // before // 2], [3])
    replace(work.program, node, split)


@planter("program")
def pad_counted(work):
    node = pick(work, ops(work.program, aten.avg_pool2d.default), "no average pool")
    if not any(argument(node, 3, [0])):
        raise NoSite("no padding")
    work.blame(node.name)
    work.said = f"{node.name} does not count its padding"
    node.args = (*node.args[:4], False, False)
    refresh(node)
    finish(work.program)


@planter("program")
def pool_padding(work):
    """A max pool that pads with zeros."""
    found = [n for n in ops(work.program, aten.max_pool2d.default) if any(argument(n, 3, [0]))]
    node = pick(work, found, "no padded max pool")
    x, size, step, pad = node.args[:4]
    work.blame(node.name)
    work.said = f"{node.name} pads with zeros"
    padded = call(work.program, node, aten.constant_pad_nd.default, x, [pad[1]] * 2 + [pad[0]] * 2)
    made = call(work.program, node, aten.max_pool2d.default, padded, size, step)
    replace(work.program, node, made)


def _convolutions(work, stride=0):
    found = []
    for n in ops(work.program, aten.conv2d.default):
        pad, step = argument(n, 4, [0, 0]), argument(n, 3, [1, 1])
        if any(pad) and (not stride or step[0] == stride):
            found.append(n)
    return found


@planter("program")
def padding_side(work):
    """All padding at the end, as other frameworks pad for even strides."""
    node = pick(work, _convolutions(work), "no padded convolution")
    pad = node.args[4]
    work.blame(node.name)
    work.said = f"{node.name} pads at the end alone"
    form = [0, 2 * pad[1], 0, 2 * pad[0]]
    padded = call(work.program, node, aten.constant_pad_nd.default, node.args[0], form)
    node.args = (padded, *node.args[1:4], [0, 0], *node.args[5:])
    finish(work.program)


@planter("program")
def padding_mode(work, mode):
    node = pick(work, _convolutions(work), "no padded convolution")
    pad = node.args[4]
    work.blame(node.name)
    work.said = f"{node.name} pads by {mode}"
    form = [pad[1], pad[1], pad[0], pad[0]]
    padded = call(work.program, node, aten.pad.default, node.args[0], form, mode)
    node.args = (padded, *node.args[1:4], [0, 0], *node.args[5:])
    finish(work.program)


def _reshape_instead(work, node):
    """The bytes of the node's input in the node's shape, without moving any."""
    work.blame(node.name, *(user.name for user in node.users))
    made = call(work.program, node, aten.reshape.default, node.args[0], list(shape(node)))
    replace(work.program, node, made)


@planter("program")
def layout_misread(work):
    """The bytes of a permuted tensor read as if they had been moved: a reshape for a permute."""
    found = [
        n
        for n in ops(work.program, aten.permute.default, aten.transpose.int)
        if sum(size > 1 for size in shape(n)) > 1
    ]
    node = pick(work, found, "no permute")
    work.said = f"{node.name} is a reshape"
    _reshape_instead(work, node)


@planter("program")
def parts_swapped(work):
    """Two of the parts that a tensor is put together from, or taken apart into."""
    found = []
    for n in ops(work.program, aten.cat.default):
        forms = {shape(part) for part in n.args[0]}
        if len(n.args[0]) == 2 and len(forms) == 1:
            found.append(n)
    node = pick(work, found, "no concatenation of equal parts")
    work.blame(node.name)
    work.said = f"{node.name} in the other order"
    first, second = node.args[0]
    node.args = ([second, first], *node.args[1:])
    finish(work.program)


@planter("program")
def shuffle_missing(work):
    """Channels of grouped convolutions are not mixed."""
    found = [
        n
        for n in ops(work.program, aten.transpose.int)
        if len(shape(n)) == 5 and n.args[1:] == (1, 2)
    ]
    node = pick(work, found, "no shuffle of channels")
    work.said = f"{node.name} is not done"
    _reshape_instead(work, node)


@planter("program")
def flattened_channels_last(work):
    """A picture flattened with its channels last before the first linear layer."""
    found = [n for n in ops(work.program, aten.flatten.using_ints) if len(shape(n.args[0])) == 4]
    node = pick(work, found, "no flattened picture")
    work.blame(node.name, *(user.name for user in node.users))
    work.said = f"{node.name} with channels last"
    moved = call(work.program, node, aten.permute.default, node.args[0], [0, 2, 3, 1])
    made = call(work.program, node, aten.reshape.default, moved, list(shape(node)))
    replace(work.program, node, made)


@planter("program")
def mean_axis(work):
    """A mean along one axis of the two."""
    found = [n for n in ops(work.program, aten.mean.dim) if len(n.args[1]) == 2]
    node = pick(work, found, "no mean over two axes")
    work.blame(node.name)
    work.said = f"{node.name} is a maximum"
    replace(work.program, node, call(work.program, node, aten.amax.default, *node.args))


@planter("program")
def product_transposed(work):
    """A square weight used as it lies instead of transposed."""
    found = [
        n
        for n in ops(work.program, aten.linear.default)
        if shape(n.args[1])[0] == shape(n.args[1])[1]
    ]
    node = pick(work, found, "no square product")
    work.blame(node.name)
    work.said = f"{node.name} does not transpose its weight"
    made = call(work.program, node, aten.matmul.default, node.args[0], node.args[1])
    if argument(node, 2) is not None:
        made = call(work.program, node, aten.add.Tensor, made, node.args[2])
    replace(work.program, node, made)


@planter("program")
def broadcast_axis(work):
    """What belongs to the channels is added along another axis of the same length."""
    found = []
    for n in ops(work.program, aten.linear.default):
        form = shape(n)
        if argument(n, 2) is not None and len(form) > 1 and form[-1] % form[-2] == 0:
            found.append(n)
    node = pick(work, found, "no axes that fit")
    size, other = shape(node)[-1], shape(node)[-2]
    work.blame(node.name)
    work.said = f"{node.name} adds its bias along axis -2"
    plain = call(work.program, node, aten.linear.default, node.args[0], node.args[1])
    part = call(work.program, node, aten.slice.Tensor, node.args[2], 0, 0, size, size // other)
    part = call(work.program, node, aten.reshape.default, part, [other, 1])
    replace(work.program, node, call(work.program, node, aten.add.Tensor, plain, part))
