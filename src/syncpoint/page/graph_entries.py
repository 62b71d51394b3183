"""The entries of the graph of one run: inputs and ops, their edges, groups and reasons.

Without its run a side consists of what the comparison knows: the target's ops and what they read,
and the reference's ops that have a counterpart.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.comparison.storage.comparison_json import unmatched_from_json
from syncpoint.page.fused_ops import add_fused_columns
from syncpoint.page.graph_parts import WholeGraph
from syncpoint.page.module_groups import assign_groups
from syncpoint.page.op_columns import (
    CLASS,
    KEY,
    KEY_SCHEMA,
    code_keys,
    first_indices,
    read_ends,
    read_known_ops,
    read_ops,
)
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.schema import Side
from syncpoint.run.storage.table_columns import OP_KEY

_NOT_RECORDED = "not recorded"
_ENTRY_KEY = [*OP_KEY, CLASS]


def build_whole_graph(opened: OpenComparison, side: Side) -> WholeGraph:
    """Return all entries of one side, with their sync points and edges."""
    run = opened.run(side)
    missing = "" if run is not None else opened.why_missing.get(side, "it is not available")
    ends = read_ends(opened.table, side)
    ops = read_ops(run) if run is not None else read_known_ops(opened, side, ends)
    entries, codes = _collect_entries(opened, side, ops, ends)
    entry_by_code = first_indices(entries["code"].to_numpy())
    pairs = ends.select("row", pl.Series("entry", entry_by_code[codes]))
    reads = _read_edges(ops) if run is not None else _read_known_edges(opened, side)
    edges = _resolve_edges(entries.select(_ENTRY_KEY).with_row_index("entry"), reads)
    entries = _add_groups(opened, entries, pairs)
    entries = _add_reasons(opened, side, entries, pairs)
    entries = add_fused_columns(opened, side, entries, pairs)
    return WholeGraph(entries, pairs, edges, missing)


def _collect_entries(
    opened: OpenComparison, side: Side, ops: pl.DataFrame, ends: pl.DataFrame
) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Return the model's inputs, its ops, and what else has a sync point, each with a code; and the
    code of every end."""
    columns = [*_ENTRY_KEY, "code", "label", "kind", "type", "module"]
    end_codes, op_codes = code_keys(ends[KEY], ops[KEY])
    op_entries = ops.with_columns(pl.lit("o").alias("kind"), pl.Series("code", op_codes))
    op_entries = op_entries.select(columns)
    first_ends = first_indices(end_codes, int(op_codes.max(initial=-1)) + 1)
    first_ends[op_codes] = -1
    extra = ends.with_columns(pl.Series("code", end_codes)).select(columns)
    extra = extra[np.sort(first_ends[first_ends >= 0])]
    unused_code = len(end_codes) + len(op_codes)
    unmatched_inputs = [
        {**dict.fromkeys(OP_KEY, ""), "call": 0, "iteration": 0, "op": tensor["op"], CLASS: "i"}
        | {"label": tensor["op"], "kind": "i", "type": tensor["type"], "module": tensor["module"]}
        | {"code": unused_code + number}
        for number, tensor in enumerate(opened.about["unmatched"])
        if tensor["side"] == side and tensor["role"] == "model-input"
    ]
    if unmatched_inputs:
        inputs = pl.DataFrame(unmatched_inputs, schema=extra.schema)
        inputs = inputs.unique("label", maintain_order=True)
        is_new = ~pl.col("label").is_in(extra["label"].to_list())
        extra = pl.concat([extra, inputs.filter(is_new)])
    is_before = pl.col("kind").is_in(["i", "s"])
    entries = pl.concat([extra.filter(is_before), op_entries, extra.filter(~is_before)])
    return entries, end_codes


def _read_edges(ops: pl.DataFrame) -> pl.DataFrame:
    """Return what the ops of a run read: key and role of the producer, key of the reader."""
    reads = ops.select(
        pl.col("inputs"), *[pl.col(name).alias(f"to_{name}") for name in OP_KEY]
    ).explode("inputs", empty_as_null=False)
    reads = reads.filter(pl.col("inputs").is_not_null()).unnest("inputs")
    return reads.filter(pl.col("role") != "parameter")


def _read_known_edges(opened: OpenComparison, side: str) -> pl.DataFrame:
    """Return what the ops read as far as the comparison knows: nothing for the reference."""
    edges = opened.about["edges"] if side == "target" else []
    reads = [(*producer, "output", *reader) for reader, inputs in edges for producer in inputs]
    schema = {**KEY_SCHEMA, "role": pl.String}
    schema |= {f"to_{name}": dtype for name, dtype in KEY_SCHEMA.items()}
    return pl.DataFrame(reads, schema=schema, orient="row")


def _resolve_edges(entries: pl.DataFrame, reads: pl.DataFrame) -> NDArray[np.int64]:
    """Return the edges as pairs of entries: producer, reader."""
    is_input = pl.col("role") == "model-input"
    reads = reads.with_columns(
        pl.when(is_input).then(pl.lit("i")).otherwise(pl.lit("o")).alias(CLASS),
        pl.lit("o").alias("to_class"),
    )
    edges = reads.join(entries, on=_ENTRY_KEY, how="inner", nulls_equal=True)
    reader_key = [*[f"to_{name}" for name in OP_KEY], "to_class"]
    readers = entries.rename({"entry": "to"})
    edges = edges.join(
        readers, left_on=reader_key, right_on=_ENTRY_KEY, how="inner", nulls_equal=True
    )
    edges = edges.filter(pl.col("entry") != pl.col("to")).select("entry", "to")
    return edges.unique().sort("to", "entry").cast(pl.Int64).to_numpy().reshape(-1, 2)


def _add_groups(opened: OpenComparison, entries: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Add the group of the first sync point of an entry, else that of its module; "" is the top
    level."""
    table = opened.table
    first_pairs = pl.Series(first_indices(pairs["entry"].to_numpy(), entries.height))
    row_groups = table.groups.gather(pairs["row"])
    row_groups = row_groups.gather(first_pairs.set(first_pairs < 0, None))
    group_by_module = assign_groups(entries["module"].unique(), set(table.groups.unique()))
    module_groups = entries["module"].replace_strict(group_by_module, return_dtype=pl.String)
    is_input = pl.col("kind") == "i"
    return entries.with_columns(
        pl.coalesce(
            row_groups.alias("row_group"),
            pl.when(is_input).then(pl.lit("inputs")).otherwise(module_groups.alias("by_module")),
        ).alias("group")
    )


def _add_reasons(
    opened: OpenComparison, side: Side, entries: pl.DataFrame, pairs: pl.DataFrame
) -> pl.DataFrame:
    """Add why an entry has no sync point, and mark the entries that make a model output."""
    reason_by_op: dict[str, str] = {}
    whole_by_op: dict[str, str | None] = {}
    output_ops: set[str] = set()
    for tensor in opened.about["unmatched"]:
        if tensor["side"] == side:
            op = tensor["op"]
            if tensor["role"] != "parameter" and (tensor["counted"] or op not in reason_by_op):
                reason_by_op[op] = str(unmatched_from_json(tensor).why)
                whole_by_op[op] = tensor["inside"] or None
            if tensor["role"] == "model-output":
                output_ops.add(op)
    is_paired = np.zeros(entries.height, bool)
    is_paired[pairs["entry"].to_numpy()] = True
    makes_output = np.zeros(entries.height, bool)
    is_output = opened.table.frame["output"].gather(pairs["row"]).to_numpy()
    makes_output[pairs["entry"].to_numpy()[is_output]] = True
    makes_output |= entries["label"].is_in(list(output_ops)).to_numpy()
    labels = entries["label"]
    reasons = labels.replace_strict(reason_by_op, default=_NOT_RECORDED, return_dtype=pl.String)
    wholes = labels.replace_strict(whole_by_op, default=None, return_dtype=pl.String)
    return entries.with_columns(
        wholes.alias("whole"),
        pl.when(pl.lit(pl.Series("is_paired", is_paired)))
        .then(pl.lit(""))
        .otherwise(reasons)
        .alias("reason"),
        pl.when(pl.lit(pl.Series("makes_output", makes_output)) & (pl.col("kind") == "o"))
        .then(pl.lit("x"))
        .otherwise(pl.col("kind"))
        .alias("kind"),
    )
