"""Reading a Parquet table of ours so that a damaged or absurd one is an error and nothing worse.

The bytes are read once. Where a checksum is recorded they are verified before Polars sees them;
where none is, because the file is older than checksums, another process decodes them first
(`table_probe`), since a damaged table can make Polars abort the process that reads it. Then the
number of rows is compared with what is recorded and, of a long table, the keys are read alone and
in slices: a few kilobytes of Parquet can claim any number of equal rows.
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
from syncpoint.run.storage.table_probe import is_every_table_probed, probe

if TYPE_CHECKING:
    import polars as pl

SLICE_ROWS = 100_000
"""Rows of a long table that are decoded at once."""
_MAX_ROWS = 50_000_000
_MAX_BYTES = 8 << 30
_MAX_MEMORY = 1_250_000_000


class ParquetTable:
    """The bytes of one table, verified or probed, and what they decode to."""

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
        with self._guarded():
            self._schema = _schema_of(self._data)
            self.rows = _row_count(self._data)
        if self.rows > _MAX_ROWS:
            raise FormatError(f"at most {_MAX_ROWS:,} rows in {path}", f"{self.rows:,}")

    def check_rows(self, recorded: object) -> None:
        """A FormatError unless there are as many rows as are recorded."""
        if recorded != self.rows:
            detail = f"{self.rows:,} rows instead of {str(recorded)[:40]}"
            raise DamagedFileError(self.path, detail, self._cure)

    def check_columns(self, columns: Mapping[str, Any], newer: Collection[str] = ()) -> None:
        """A FormatError unless all columns are there with their types; only those of `newer`,
        which later schemas added, may be missing."""
        for name, dtype in columns.items():
            if name not in self._schema:
                if name not in newer:
                    raise DamagedFileError(self.path, f"it has no column {name!r}", self._cure)
            elif self._schema[name] != dtype:
                detail = f"column {name!r} is {self._schema[name]}, not {dtype}"
                raise DamagedFileError(self.path, detail, self._cure)

    def check_memory(self, needed: int, max_expansion: int, cure: str) -> None:
        """An InputError where the table would take `needed` bytes of memory, more than any table
        may, and more than `max_expansion` times its size, which no table that we wrote does."""
        if needed > max(_MAX_MEMORY, max_expansion * len(self._data)):
            raise InputError(
                f"a table that takes at most {_MAX_MEMORY / 1e9:g} GB of memory at {self.path}",
                f"{self.rows:,} rows, which take {needed / 1e9:.1f} GB",
                cure,
            )

    def check_no_nulls(self, columns: Mapping[str, Any]) -> None:
        """A FormatError where one of these columns has a gap."""
        for some in self.slices(columns):
            for name in columns:
                if some[name].null_count():
                    raise DamagedFileError(self.path, f"column {name!r} has a gap", self._cure)

    def check_keys(self, key: Sequence[str]) -> None:
        """A FormatError where a long table repeats a key, found before all of it is decoded."""
        if self.rows <= SLICE_ROWS:
            return
        for keys in self.slices({name: self._schema[name] for name in key}):
            if keys.is_duplicated().any():
                raise DamagedFileError(
                    self.path, f"{self.rows:,} rows with repeated keys", self._cure
                )

    def read(self, columns: Mapping[str, Any]) -> pl.DataFrame:
        """These columns of all rows; one that the file does not have is null."""
        with self._guarded():
            return self._filled(self._scan(columns).collect(), columns)

    def slices(self, columns: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """The same, some rows at a time."""
        for start in range(0, self.rows, SLICE_ROWS):
            with self._guarded():
                part = self._scan(columns).slice(start, SLICE_ROWS).collect()
            yield self._filled(part, columns)

    def _scan(self, columns: Mapping[str, Any]) -> pl.LazyFrame:
        import polars as pl

        present = [name for name in columns if name in self._schema]
        return pl.scan_parquet(io.BytesIO(self._data)).select(present)

    def _filled(self, table: pl.DataFrame, columns: Mapping[str, Any]) -> pl.DataFrame:
        import polars as pl

        absent = {name: dtype for name, dtype in columns.items() if name not in self._schema}
        nulls = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in absent.items()]
        return table.with_columns(nulls).select(list(columns)) if absent else table

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Whatever decoding raises becomes a FormatError; a panic of Polars is a BaseException."""
        from polars.exceptions import PanicException, PolarsError

        try:
            yield
        except (PolarsError, PanicException, OSError, OverflowError, MemoryError) as error:
            raise DamagedFileError(self.path, describe_error(error)[:200], self._cure) from error


def _schema_of(data: bytes) -> Mapping[str, Any]:
    import polars as pl

    return pl.read_parquet_schema(io.BytesIO(data))


def _row_count(data: bytes) -> int:
    import polars as pl

    return int(pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item())
