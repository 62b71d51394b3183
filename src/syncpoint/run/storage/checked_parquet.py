"""Read a Parquet table safely: verify or probe its bytes; check its rows, columns, nulls, keys and
memory; damage is an error.

The bytes are read once. If a checksum is recorded they are verified before Polars sees them.
Otherwise, for files older than checksums, another process decodes them first (`probe_process`),
since a damaged table can make Polars abort the process that reads it. Then the number of rows is
compared with the recorded one, and the keys of a long table are read alone and in slices: a few
kilobytes of Parquet can claim any number of equal rows.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import FormatError, InputError, describe_error
from syncpoint.files.file_checksums import DamagedFileError, FileRecord
from syncpoint.files.untrusted_files import read_whole
from syncpoint.run.storage.probe_process import is_every_table_probed, probe

if TYPE_CHECKING:
    import polars as pl

SLICE_ROWS = 100_000
"""Rows of a long table that are decoded at once."""
_MAX_ROWS = 50_000_000
_MAX_BYTES = 8 << 30
_MAX_MEMORY = 1_250_000_000


class ParquetTable:
    """The bytes of one table, verified or probed, and their decoded content."""

    def __init__(self, path: Path, record: FileRecord | None, cure: str) -> None:
        """Read and check the bytes; `record` is None for files that are older than checksums."""
        self.path = path
        self._cure = cure
        try:
            self._data = read_whole(path, _MAX_BYTES)
        except FileNotFoundError as error:
            raise DamagedFileError(path, "it is missing", cure) from error
        if record is not None:
            record.verify(self._data, path, cure)
        if record is None or is_every_table_probed():
            damage = probe(path, self._data)
            if damage:
                raise DamagedFileError(path, damage, cure)
        with self._contain_errors():
            self._schema = _read_schema(self._data)
            self.rows = _count_rows(self._data)
        if self.rows > _MAX_ROWS:
            raise FormatError(
                f"{path} has {self.rows:,} rows, more than the limit of {_MAX_ROWS:,}"
            )

    def check_rows(self, recorded: object) -> None:
        """Raise FormatError unless the number of rows is the recorded one."""
        if recorded != self.rows:
            detail = f"{self.rows:,} rows instead of {str(recorded)[:40]}"
            raise DamagedFileError(self.path, detail, self._cure)

    def check_columns(self, columns: Mapping[str, Any], newer: Collection[str] = ()) -> None:
        """Raise FormatError unless all columns exist with their types; only the columns in `newer`,
        which later schemas added, may be missing."""
        for name, dtype in columns.items():
            if name not in self._schema:
                if name not in newer:
                    raise DamagedFileError(self.path, f"it has no column {name!r}", self._cure)
            elif self._schema[name] != dtype:
                detail = f"column {name!r} is {self._schema[name]}, not {dtype}"
                raise DamagedFileError(self.path, detail, self._cure)

    def check_memory(self, needed: int, max_expansion: int, cure: str) -> None:
        """Raise InputError if the table would take too much memory: `needed` bytes are more than
        the limit and more than `max_expansion` times its size, which no table of a writer takes."""
        if needed > max(_MAX_MEMORY, max_expansion * len(self._data)):
            raise InputError(
                f"{self.path} has {self.rows:,} rows, which take {needed / 1e9:.1f} GB of memory; "
                f"the limit is {_MAX_MEMORY / 1e9:g} GB",
                cure=cure,
            )

    def check_no_nulls(self, columns: Mapping[str, Any]) -> None:
        """Raise FormatError if one of these columns has a missing value."""
        for rows in self.slices(columns):
            for name in columns:
                if rows[name].null_count():
                    raise DamagedFileError(
                        self.path, f"column {name!r} has a missing value", self._cure
                    )

    def check_keys(self, key: Sequence[str]) -> None:
        """Raise FormatError if a long table repeats a key, before all of it is decoded."""
        if self.rows <= SLICE_ROWS:
            return
        for keys in self.slices({name: self._schema[name] for name in key}):
            if keys.is_duplicated().any():
                raise DamagedFileError(
                    self.path, f"{self.rows:,} rows with repeated keys", self._cure
                )

    def read(self, columns: Mapping[str, Any]) -> pl.DataFrame:
        """Read these columns of all rows; a column that the file lacks is null."""
        with self._contain_errors():
            return self._add_missing_columns(self._scan(columns).collect(), columns)

    def slices(self, columns: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Read these columns slice by slice."""
        for start in range(0, self.rows, SLICE_ROWS):
            with self._contain_errors():
                part = self._scan(columns).slice(start, SLICE_ROWS).collect()
            yield self._add_missing_columns(part, columns)

    def _scan(self, columns: Mapping[str, Any]) -> pl.LazyFrame:
        import polars as pl

        present = [name for name in columns if name in self._schema]
        return pl.scan_parquet(io.BytesIO(self._data)).select(present)

    def _add_missing_columns(self, table: pl.DataFrame, columns: Mapping[str, Any]) -> pl.DataFrame:
        import polars as pl

        absent = {name: dtype for name, dtype in columns.items() if name not in self._schema}
        nulls = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in absent.items()]
        return table.with_columns(nulls).select(list(columns)) if absent else table

    @contextmanager
    def _contain_errors(self) -> Iterator[None]:
        """Turn errors of decoding into FormatError; a panic of Polars is a BaseException."""
        from polars.exceptions import PanicException, PolarsError

        try:
            yield
        except (PolarsError, PanicException, OSError, OverflowError, MemoryError) as error:
            raise DamagedFileError(self.path, describe_error(error)[:200], self._cure) from error


def _read_schema(data: bytes) -> Mapping[str, Any]:
    import polars as pl

    return pl.read_parquet_schema(io.BytesIO(data))


def _count_rows(data: bytes) -> int:
    import polars as pl

    return int(pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item())
