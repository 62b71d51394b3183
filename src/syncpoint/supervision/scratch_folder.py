"""Temporary folders that are removed even if the process is killed."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from syncpoint.supervision.report_to_supervisor import register_scratch_folder


def scratch_folder() -> TemporaryDirectory[str]:
    """Create a temporary folder that the supervisor removes if this process cannot."""
    folder = TemporaryDirectory(prefix="syncpoint-")
    register_scratch_folder(folder.name)
    return folder
