"""The graph that ONNX Runtime executes: the optimised one, which it saves when it opens a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from syncpoint.errors import SyncpointError, Unsupported
from syncpoint.runtimes.onnx.inference_session import open_session, session_settings
from syncpoint.runtimes.onnx.load_model import OnnxModel

_DATA_FILE = "session.optimized_model_external_initializers_file_name"
_GRAPH_NAME = "optimized.onnx"
_WEIGHTS_NAME = "optimized.data"


def open_and_save_optimized(
    source: OnnxModel, options: Mapping[str, Any], level: str, folder: Path
) -> Any:
    """Open a session and let ONNX Runtime save the graph it optimised into `folder`."""
    settings = session_settings(options, level)
    settings.optimized_model_filepath = str(folder / _GRAPH_NAME)
    try:
        return open_session(source, options, settings)
    except SyncpointError:
        if not source.folder:
            raise
    # Repacked weights may no longer fit into one protobuf message: save them to a file.
    settings.add_session_config_entry(_DATA_FILE, _WEIGHTS_NAME)
    return open_session(source, options, settings)


def load_optimized(folder: Path, source: OnnxModel, session: Any) -> tuple[onnx.ModelProto, str]:
    """Load the saved graph that `session` executes; also the folder its weights are in."""
    path = folder / _GRAPH_NAME
    if not path.is_file():
        raise Unsupported(
            f"ONNX Runtime saved no graph for {'+'.join(session.get_providers())}",
            cure="capture with fusion=unfused",
        )
    proto = onnx.load(str(path), load_external_data=False)
    moved = (folder / _WEIGHTS_NAME).is_file()
    return proto, str(folder) if moved else source.folder


def has_more_casts(executed: onnx.ModelProto, file_proto: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime inserts casts, because it has no kernels for a narrow type.

    It then skips the rounding between two such ops, unless the value between them is an output.
    So the graph with its casts must be recorded, also unfused.
    """
    counts = [sum(n.op_type == "Cast" for n in p.graph.node) for p in (executed, file_proto)]
    return bool(counts[0] > counts[1])
