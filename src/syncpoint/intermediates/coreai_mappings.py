"""Which op of a converted Core AI program came from which node, as Apple's tools write it."""

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


def mappings_of(program: Any) -> dict[str, Any]:
    """`sources`: nodes by dialect and number; `outputs`: where each of their outputs went."""
    try:
        import coreai._compiler._mlir_libs._coreaiIR._bindings.mlir as bindings
        from coreai._compiler.ir import WalkResult
        from coreai.authoring import AIProgram
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "coreai" and error.name != "coreai":
            raise Unsupported(
                "coreai-core 1.0.0b3", f"a version without {error.name}", "leave coreai_program out"
            ) from error
        raise MissingExtra("coreai-core", "coreai", "coreai_program") from error
    if not isinstance(program, AIProgram):
        raise InputError(
            "a converted program as coreai_program",
            f"a {type(program).__qualname__}",
            "give what TorchConverter.to_coreai returns",
        )
    mlir: Any = bindings  # its stubs leave out what is used here
    module = program._module._mlir_module
    sources: dict[str, dict[str, Any]] = {}

    def look(operation: Any) -> Any:
        where = operation.location
        for source in mlir.get_source_info(where):
            if not source.name:
                continue
            number = mlir.get_operation_id(where, source.name)
            if number is None or number.value is None:
                continue
            sources.setdefault(source.name, {})[str(number.value)] = {
                "dialect": source.name,
                "id": number.value,
                "identifiers": [str(name) for name in source.identifiers or ()],
            }
        return WalkResult.ADVANCE

    module.operation.walk(look)
    rows = (
        {name: getattr(found, name, None) for name in _FIELDS}
        for found in mlir.get_all_output_maps_from_module(module)
    )
    outputs = [row for row in rows if None not in row.values()]
    return {"sources": sources, "outputs": outputs}
