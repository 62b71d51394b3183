"""What is done to the outputs: more, less, or in another order than the reference does."""

from zoo.planting.registry import planter
from zoo.programs import OUTPUT, aten, call, shape


def _end(work):
    (node,) = next(n for n in work.program.graph.nodes if n.op == "output").args[0]
    return node


def _with(work, made, said):
    node, output = _end(work), next(n for n in work.program.graph.nodes if n.op == "output")
    work.blame(node.name, OUTPUT)
    work.said = said
    output.args = ((made,),)
    work.program.graph_signature.replace_all_uses(node.name, made.name)
    work.program.graph_module.recompile()


def _before_output(work):
    return next(n for n in work.program.graph.nodes if n.op == "output")


@planter("program")
def output_softmax(work, form):
    node, end = _end(work), _before_output(work)
    end.meta.update({k: v for k, v in node.meta.items() if k != "val"})
    if form == "sigmoid":
        made = call(work.program, end, aten.sigmoid.default, node)
    else:
        target = {"softmax": aten.softmax.int, "log_softmax": aten.log_softmax.int}[form]
        made = call(work.program, end, target, node, -1)
    _with(work, made, f"{form} is applied to the output")


@planter("program")
def output_order(work):
    """Classes in another order."""
    node, end = _end(work), _before_output(work)
    count = shape(node)[-1]
    order = list(range(count))
    work.rng.shuffle(order)
    parts = [call(work.program, end, aten.slice.Tensor, node, -1, k, k + 1) for k in order]
    _with(work, call(work.program, end, aten.cat.default, parts, -1), "classes in another order")


@planter("program")
def output_scaled(work, factor):
    """A temperature that only one side applies."""
    node, end = _end(work), _before_output(work)
    made = call(work.program, end, aten.mul.Tensor, node, factor)
    _with(work, made, f"the output times {factor:.3f}")
