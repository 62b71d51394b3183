"""What the user asked for in the mode `offline_data`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The flags of the mode."""

    target: Path
    """Folder of a device's dump files, or of those of a quantized original model."""
    golden: Path
    """Folder of the original model's .npy files, or of another device's dump files."""
    fusion_rule: Path | None = None
    """What the compiler made of the model; in training a folder of such files."""
    close_fusion_rule: Path | None = None
    """The same of a model compiled without fusion, whose dump is then the golden."""
    quant_fusion_rule: Path | None = None
    """What quantizing made of the model."""
    output: Path = Path()
    """Folder of the report."""
    overflow: bool = False
    advisor: bool = False
    op: str | None = None
    """Write the elements of this op's tensors too."""
    top: int = 20
    """So many of its worst elements."""
    threads: int = 0
