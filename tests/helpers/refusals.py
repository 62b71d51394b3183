"""How a file that is not what it claims to be must be refused."""

import pytest

from syncpoint.errors import FormatError, SyncpointError


def refused(
    action, *arguments, match: str, error_class: type[SyncpointError] = FormatError
) -> None:
    """The action raises an error of this class, whose text is one short sentence."""
    with pytest.raises(error_class, match=match) as caught:
        action(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    assert text == caught.value.problem + (f"; {caught.value.cure}" if caught.value.cure else "")
    assert len(text) < 600
