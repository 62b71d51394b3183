"""The flags of the mode `offline_data`, as a data class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class OfflineFlags:
    """The flags of the mode."""

    target: Path
    """Folder with the dump files of a device, or of a quantized original model."""
    golden: Path
    """Folder with the .npy files of the original model, or the dump files of another device."""
    fusion_rule: Path | None = None
    """Rule file of the compiler; for training dumps a folder of rule files."""
    close_fusion_rule: Path | None = None
    """Rule file of the model compiled without fusion, whose dump is the golden."""
    quant_fusion_rule: Path | None = None
    """Rule file of the quantizing tool."""
    output: Path = Path()
    """Folder of the report."""
    overflow: bool = False
    advisor: bool = False
    op: str | None = None
    """Also write the elements of the tensors of this op."""
    top: int = 20
    """How many of its worst elements to write."""
    threads: int = 0
