"""Exported programs: looked at node by node, rewritten at one of them, and run."""

import copy
import operator

import torch
from torch.fx import Interpreter

from zoo.work import TYPES

aten = torch.ops.aten
OUTPUT = "(output)"
"""How the results of a model are called where ops are named."""


def cast(inputs, dtype):
    """Inputs in an element type; ids stay what they are."""
    kind = TYPES[dtype]
    return tuple(v.to(kind) if v.is_floating_point() else v for v in inputs)


def export(model, inputs, dtype):
    """The program of a copy of the model in this element type."""
    model = copy.deepcopy(model).to(TYPES[dtype])
    with torch.no_grad():
        return torch.export.export(model, cast(inputs, dtype))


def as_module(program):
    """The program as a plain module, which may be compiled or changed."""
    made = program.module(check_guards=False)
    return torch.fx.GraphModule(made, made.graph)


class _Seen(Interpreter):
    def __init__(self, module):
        super().__init__(module)
        self.seen = {}

    def run_node(self, n):
        found = super().run_node(n)
        if isinstance(found, torch.Tensor) and n.op == "call_function":
            self.seen[n.name] = found.detach().clone()
        return found


def values_of(program, inputs, dtype):
    """What every node gives, by name, and the first result of the whole."""
    seen = _Seen(as_module(program))
    with torch.no_grad():
        found = seen.run(*cast(inputs, dtype))
    return {**seen.seen, OUTPUT: found if isinstance(found, torch.Tensor) else found[0]}


def ops(program, *targets):
    """Nodes that call one of these ops, in order."""
    return [n for n in program.graph.nodes if n.op == "call_function" and n.target in targets]


def parameter_name(program, node):
    """The name that the model has for what a placeholder stands for; "" for an input."""
    signature = program.graph_signature
    known = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return known.get(getattr(node, "name", ""), "")


def set_parameter(program, name, value):
    """Another value of the same shape."""
    old = program.state_dict[name]
    assert value.shape == old.shape, (name, value.shape, old.shape)
    with torch.no_grad():
        old.data = value.to(old.dtype).clone().contiguous()


def parameter(program, name):
    """The value of a parameter or buffer."""
    return program.state_dict[name].detach()


def readers(program, name):
    """Nodes that read a parameter."""
    placed = [n for n in program.graph.nodes if parameter_name(program, n) == name]
    return [user for node in placed for user in node.users]


def call(program, before, target, *args, **kwargs):
    """A new node before another one, which it takes its place in the source from."""
    graph = program.graph
    with graph.inserting_before(before):
        made = graph.call_function(target, args, kwargs)
    known = ("nn_module_stack", "stack_trace", "source_fn_stack", "torch_fn")
    made.meta = {k: before.meta[k] for k in known if k in before.meta}
    made.meta["val"] = _fake(target, args, kwargs)
    return made


def refresh(node):
    """Shapes of a node whose arguments were changed."""
    node.meta["val"] = _fake(node.target, node.args, node.kwargs)


def _fake(target, args, kwargs):
    def value(item):
        return item.meta["val"] if isinstance(item, torch.fx.Node) else item

    args = torch.fx.map_arg(args, value)
    kwargs = torch.fx.map_arg(kwargs, value)
    modes = [v.fake_mode for v in torch.utils._pytree.tree_leaves((args, kwargs)) if _is_fake(v)]
    if not modes:
        return target(*args, **kwargs)
    with modes[0], torch.no_grad():
        return target(*args, **kwargs)


def _is_fake(value):
    return isinstance(value, torch._subclasses.FakeTensor)


def replace(program, old, new):
    """`new` is read wherever `old` was, and has its name."""
    name = old.name
    old.replace_all_uses_with(new, delete_user_cb=lambda user: not _feeds(new, user))
    program.graph_signature.replace_all_uses(name, new.name)
    if not old.users:
        program.graph.erase_node(old)
        if new.op == "call_function":
            _rename(program, new, name)
    finish(program)


def _feeds(new, user):
    """Whether `new` is computed from `user`, which must go on reading what it read."""
    seen, left = set(), [new]
    while left:
        node = left.pop()
        if node is user:
            return True
        if node not in seen:
            seen.add(node)
            left.extend(node.all_input_nodes)
    return False


def _rename(program, node, name):
    old = node.name
    # Without this the name counts as taken, and the next free one may be that of another op in
    # the reference.
    program.graph._graph_namespace._used_names.discard(name)
    node._rename(name)
    assert node.name == name, (node.name, name)
    program.graph_signature.replace_all_uses(old, node.name)


def skip(program, node, instead=None):
    """The program without this node: whoever read it reads its first input."""
    instead = instead if instead is not None else node.args[0]
    name = node.name
    node.replace_all_uses_with(instead)
    program.graph_signature.replace_all_uses(name, instead.name)
    finish(program)


def finish(program):
    """After a change: what nobody reads is gone, and the graph is sound."""
    program.graph.eliminate_dead_code()
    program.graph.lint()
    program.graph_module.recompile()


def argument(node, place, default=None):
    """A positional argument; exports leave out trailing ones that have their default."""
    return node.args[place] if len(node.args) > place else default


def set_argument(program, node, place, value, defaults=()):
    """Another positional argument; `defaults` are those in between that were left out."""
    args = list(node.args)
    while len(args) < place:
        args.append(defaults[len(args) - (place - len(defaults))])
    if len(args) == place:
        args.append(value)
    else:
        args[place] = value
    node.args = tuple(args)
    refresh(node)
    finish(program)


def is_getitem(node):
    """Whether it takes one of several results."""
    return node.target is operator.getitem


def shape(node):
    """Of what a node gives."""
    return tuple(node.meta["val"].shape)
