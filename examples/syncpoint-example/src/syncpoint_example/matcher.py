"""The matcher `at-sign`: the target calls an op `fc@3` where the reference calls it `fc`."""

from collections.abc import Iterable

from syncpoint.matching.protocol import Matching, SyncPoint


class AtSignMatcher:
    """Asked after the matchers of Syncpoint, it pairs what they left."""

    API = 1
    name = "at-sign"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Yield pairs with the evidence for them and a confidence from 0 to 1.

        A tensor that is paired already stays as it is.
        """
        reference = {op.key.op: op.key for op in matching.reference.ops}
        for op in matching.target.ops:
            name, sign, _ = op.key.op.rpartition("@")
            if sign and name in reference:
                evidence = "the name before the at sign"
                yield from matching.pair_ops(op.key, reference[name], evidence, 0.9)
