"""Give one set of named inputs to two models: each takes the inputs that it declares; a name that
neither takes is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from syncpoint.errors import InputError
from syncpoint.runtimes.protocol import Inputs, InputSpec, TakesAnyName, Tree


class SharedInputs:
    """Selects for one model after the other what it takes of the inputs that both are run on."""

    def __init__(self, recorded_names: Iterable[str] | None = None) -> None:
        self._is_second = recorded_names is not None
        self._taken_names = set(recorded_names or ())
        self._passed_over: set[str] = set()

    def select(
        self, samples: Sequence[Inputs], session: object, declared: Sequence[InputSpec], model: str
    ) -> tuple[list[Inputs], list[str]]:
        """The samples without the inputs that only the other side takes, and a note on these.

        Inputs by position, nested ones and those that do not fit anyway stay as they are: binding
        them says what is wrong.
        """
        if isinstance(session, TakesAnyName) and session.takes_any_name():
            self._taken_names.update(*(sample.kwargs for sample in samples))
            self._is_second = True
            return list(samples), []
        own_names = {spec.name for spec in declared}
        required = {spec.name for spec in declared if spec.required}
        selected, other_names = [], set()
        for sample in samples:
            others = sample.kwargs.keys() - own_names
            if others and _can_leave_out(sample, others, required):
                other_names |= others
                kwargs = {k: v for k, v in sample.kwargs.items() if k in own_names}
                sample = Inputs(sample.args, kwargs)
            selected.append(sample)
        self._check_names(own_names, other_names, samples, model)
        names = ", ".join(sorted(other_names))
        verb = "is an input" if len(other_names) == 1 else "are inputs"
        return selected, [f"{names} {verb} of the other side only"] if other_names else []

    def _check_names(
        self, own_names: set[str], other_names: set[str], samples: Sequence[Inputs], model: str
    ) -> None:
        """Refuse names that neither side takes, once both sides are known."""
        unknown = (self._passed_over - own_names) | (
            other_names - self._taken_names if self._is_second else set()
        )
        if unknown:
            raise InputError(
                f"neither the target nor the reference takes the input {min(unknown)}",
                cure=f"use the names of their inputs; {model} takes {', '.join(sorted(own_names))}",
            )
        self._passed_over |= other_names - self._taken_names
        self._taken_names |= own_names.intersection(name for s in samples for name in s.kwargs)
        self._is_second = True


def _can_leave_out(sample: Inputs, others: set[str], required: set[str]) -> bool:
    """Whether the named inputs without `others` are all that the model requires."""
    return (
        not sample.args
        and bool(sample.kwargs.keys() - others)
        and required <= sample.kwargs.keys()
        and not any(_is_nested(sample.kwargs[name]) for name in others)
    )


def _is_nested(value: Tree) -> bool:
    return isinstance(value, Mapping | tuple | list)
