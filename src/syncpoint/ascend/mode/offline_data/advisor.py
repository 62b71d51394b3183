"""Write the advice on a report of `offline_data`, by the three rules of msProbe's advisor:
overflow, wrong inputs, the first op that is off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from syncpoint.ascend.mode.offline_data.metric_columns import METRICS
from syncpoint.ascend.mode.offline_data.report import OfflineLine
from syncpoint.files.outputs import write_output
from syncpoint.metrics.verdict import FAILING_REASONS

_MIN_COSINE = 0.99
_COSINE_INDEX = METRICS.index("CosineSimilarity")


@dataclass(frozen=True)
class Advice:
    """The advice of the advisor."""

    kind: str
    index: str
    text: str

    def __str__(self) -> str:
        return (
            f"Detection Type: {self.kind}\nOperator Index: {self.index}\n"
            f"Expert Advice: {self.text}\n"
        )


def find_advice(lines: Sequence[OfflineLine]) -> Advice:
    """The advice of the first rule that applies."""
    for line in lines:
        if line.overflow == "YES":
            return Advice(
                "FP16 Overflow",
                str(line.index),
                "Float16 data overflow occurs. Rectify the fault and perform comparison again.",
            )
    for line in lines:
        if line.type == "Data" and _is_off(line):
            return Advice(
                "Input Inconsistent",
                str(line.index),
                "The two models were given different inputs. Give both the same and compare again.",
            )
    kind = "Global Consistency"
    compared = [line for line in lines if line.verdict != "none"]
    off = [line for line in compared if _is_off(line)]
    failed = [line for line in lines if line.code in FAILING_REASONS]
    if not compared:
        return Advice(kind, "NA", "Nothing could be compared; see the column CompareFailReason.")
    if not off:
        hidden = [line for line in lines if line.verdict in ("large", "amplified")]
        if hidden:
            return Advice(
                kind,
                str(hidden[0].index),
                "All tensors are similar by their cosine, but not by their values; see the columns"
                " Verdict and Remark from this operator on.",
            )
        if failed:
            return Advice(
                kind,
                str(failed[0].index),
                "All compared tensors are similar, but some could not be compared; see the column"
                " CompareFailReason from this operator on.",
            )
        return Advice(kind, "NA", "All compared tensors are similar: no problem was found.")
    if off[-1] is compared[-1]:
        text = "The output of the model is off. Look at the operators from this one on."
    else:
        text = "Tensors on the way are off, but the output is similar: the model may still do."
    return Advice(kind, str(off[0].index), text)


def write_advice(lines: Sequence[OfflineLine], path: Path) -> Path:
    """Write the advice; an existing file is replaced."""
    return write_output(path, str(find_advice(lines)))


def _is_off(line: OfflineLine) -> bool:
    """Whether a tensor is not similar by its cosine; without a cosine, by our verdict."""
    cosine = float(line.metrics[_COSINE_INDEX])
    return cosine < _MIN_COSINE or (cosine != cosine and line.verdict in ("large", "amplified"))
