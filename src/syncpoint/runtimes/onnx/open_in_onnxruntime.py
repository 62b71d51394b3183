"""Open sessions of ONNX Runtime: settings, execution providers; save and load the graph that it
optimised; whether it inserts casts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from syncpoint.errors import InputError, SyncpointError, Unsupported
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.onnx.load_model import OnnxModel

LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}

DATA_FOLDER = "session.model_external_initializers_file_folder_path"

_DATA_FILE = "session.optimized_model_external_initializers_file_name"
_GRAPH_NAME = "optimized.onnx"
_WEIGHTS_NAME = "optimized.data"


def session_settings(options: Mapping[str, Any], level: str) -> Any:
    """Make the settings of a session that optimises its graph up to `level`."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    settings.log_severity_level = 4
    if options["threads"]:
        settings.intra_op_num_threads = options["threads"]
    return settings


def open_session(source: OnnxModel, options: Mapping[str, Any], settings: Any) -> Any:
    """Open a session of ONNX Runtime for a model: its file, or its bytes where it has none."""
    ort.set_seed(options["seed"])
    model: Any = source.file
    if not model:
        model = source.proto.SerializeToString()
        if source.folder:
            settings.add_session_config_entry(DATA_FOLDER, source.folder)
    disabled = [n.strip() for n in options["disabled_optimizers"].split(",") if n.strip()]
    providers = choose_providers(options["provider"])
    try:
        return ort.InferenceSession(
            model, settings, providers=providers, disabled_optimizers=disabled
        )
    except Exception as error:
        raise InputError(
            f"ONNX Runtime cannot load {source.name}: {one_line(error)}",
            cure="check the model and the options provider and optimization",
        ) from error


def choose_providers(provider: str) -> list[str]:
    """Return the execution providers for a model: `provider`, or all available if it is ""."""
    available = list(ort.get_available_providers())
    if not provider:
        return [p for p in available if p != "AzureExecutionProvider"]
    if provider not in available:
        raise InputError(
            f"this ONNX Runtime has no execution provider {provider!r}",
            cure=f"choose one of these: {', '.join(available)}",
        )
    return [provider]


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
