"""Model outputs that are not tensors, such as numbers and text: how a run keeps them as JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OtherOutput:
    """A model output that is not a tensor."""

    text: str
    """The `repr` of the number or text, or the name of its type."""
    is_opaque: bool = False
    """Whether only its type is known, so that two of them cannot be compared."""

    def to_json(self) -> str:
        """The form in files: a question mark before the name of a type."""
        return f"?{self.text}" if self.is_opaque else self.text

    @classmethod
    def from_json(cls, text: str) -> OtherOutput:
        """Inverse of `to_json`; the `repr` of a number or text never begins with a question
        mark."""
        is_opaque = text.startswith("?")
        return cls(text[1:] if is_opaque else text, is_opaque)
