"""The cause `byte-order`: values that were written in one byte order and read in the other."""

from collections.abc import Iterable

import numpy as np

from syncpoint.comparison.findings import Finding, Level
from syncpoint.diagnosis.case import Case
from syncpoint.run.dtypes import DTYPES


class ByteOrder:
    """Asked after the causes of Syncpoint, it explains what is not close."""

    API = 1
    name = "byte-order"
    title = "values were written in one byte order and read in the other"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield a finding for each op that turns right when its bytes are swapped."""
        for row in case.computed:
            target, reference = case.values("target", row), case.values("reference", row)
            if not row.verdict.severity or target is None or reference is None:
                continue
            with np.errstate(all="ignore"):
                swapped = target.astype(DTYPES[row.target.dtype].numpy).byteswap()
                share = np.mean(np.isclose(swapped.astype(np.float64), reference, rtol=1e-3))
            if share > 0.99:
                yield Finding(
                    cause=self.name,
                    kind="swapped",
                    title=f"{row.target.label} has the bytes of each value in the wrong order",
                    level=Level.CAUSE,
                    confidence=0.95,
                    ops=(row.target.label,),
                    reference_ops=(row.reference.label,),
                    evidence=(f"with swapped bytes {share:.0%} of the values are the reference's",),
                    next="read the file in the byte order of the machine that wrote it",
                    rows=(case.place[row.target.key],),
                )
