"""Opens sessions of ONNX Runtime: settings, optimisation levels, execution providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnxruntime as ort

from syncpoint.errors import InputError
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
