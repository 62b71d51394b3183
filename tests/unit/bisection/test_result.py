"""What bisecting found, as programs read it."""

from syncpoint.bisection.result import Bisected, Culprit, Cut
from syncpoint.metrics.verdict import NO_REASON, Reason, ReasonCode


def test_reasons_are_a_sentence_and_its_parts():
    why = Reason(ReasonCode.UNREADABLE, "the cut does not run: no kernel; none", "use opset 17")
    cut = Cut(op="a", type="Add", state="unknown", psnr=None, verdict="none", why=why)
    culprit = Culprit(
        op="b",
        type="Mul",
        reference="mul",
        module="",
        source="",
        before=None,
        after=40.0,
        verdict="large",
        why=NO_REASON,
        outputs=("y",),
    )
    bisected = Bisected(
        target="t", reference="r", culprits=(culprit,), cuts=(cut,), outputs={"y": "large"}, ops=2
    )
    assert cut.reason == "unreadable: the cut does not run: no kernel; none; use opset 17"
    [said] = bisected.as_dict()["cuts"]
    assert said["reason"] == cut.reason and "why" not in said
    parts = [said[f"reason_{part}"] for part in ("code", "detail", "cure")]
    assert parts == [why.code, why.detail, why.cure]
    [said] = bisected.as_dict()["culprits"]
    assert said["reason"] == "" and said["reason_code"] is None and said["outputs"] == ("y",)
