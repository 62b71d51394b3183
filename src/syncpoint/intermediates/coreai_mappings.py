"""Read from a converted Core AI program which op comes from which node, and what became of each
output."""

from __future__ import annotations

from typing import Any

from syncpoint.errors import InputError, MissingExtra, Unsupported

_FIELDS = (
    "source_level",
    "source_op_id",
    "source_output",
    "target_level",
    "target_op_id",
    "target_output",
)


def read_mappings(program: Any) -> dict[str, Any]:
    """Read `sources` (nodes by dialect and number) and `outputs` (what became of each output)."""
    try:
        import coreai._compiler._mlir_libs._coreaiIR._bindings.mlir as bindings
        from coreai._compiler.ir import WalkResult
        from coreai.authoring import AIProgram
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "coreai" and error.name != "coreai":
            raise Unsupported(
                f"this version of coreai-core has no {error.name}",
                cure="install coreai-core 1.0.0b3, or leave out coreai_program",
            ) from error
        raise MissingExtra("coreai-core", "coreai", "coreai_program") from error
    if not isinstance(program, AIProgram):
        raise InputError(
            f"coreai_program must be a converted program, not a {type(program).__qualname__}",
            cure="pass what TorchConverter.to_coreai returns",
        )
    mlir: Any = bindings  # its stubs lack what is used here
    module = program._module._mlir_module
    sources: dict[str, dict[str, Any]] = {}

    def read_operation(operation: Any) -> Any:
        location = operation.location
        for source in mlir.get_source_info(location):
            if not source.name:
                continue
            number = mlir.get_operation_id(location, source.name)
            if number is None or number.value is None:
                continue
            sources.setdefault(source.name, {})[str(number.value)] = {
                "dialect": source.name,
                "id": number.value,
                "identifiers": [str(name) for name in source.identifiers or ()],
            }
        return WalkResult.ADVANCE

    module.operation.walk(read_operation)
    rows = (
        {name: getattr(output_map, name, None) for name in _FIELDS}
        for output_map in mlir.get_all_output_maps_from_module(module)
    )
    outputs = [row for row in rows if None not in row.values()]
    return {"sources": sources, "outputs": outputs}
