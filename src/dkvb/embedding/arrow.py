"""Files and folders of Arrow columns: Parquet, Arrow IPC, Lance, and Hugging Face datasets on disk.

`read_table` takes these and every object that hands out Arrow data, and reads them batch by batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support.arrow import EmbeddingTable, Source, is_tabular
from dkvb._support.arrow.sources import PURPOSE, parquet_batches, unreadable
from dkvb._support.files import replace_file
from dkvb._support.files.sink import Sink
from dkvb._support.optional import MissingPackageError, require

PARQUET = (".parquet", ".pq")
IPC = (".arrow", ".feather", ".ipc")
LANCE = ".lance"
SUFFIXES = (*PARQUET, *IPC)
_METADATA = b"dkvb."  # prefix of what `write_table` notes beside the schema
_ROW_GROUP = 1 << 13  # rows that a reader has to decode at a time


def read_table(
    data: Any,
    x_column: str | None = None,
    y_column: str | None = None,
    *,
    split: str | None = None,
    labelled: bool = False,
    name: str = "data",
) -> EmbeddingTable:
    """Return embeddings and labels in Arrow columns, to be read batch by batch.

    Parameters
    ----------
    data : str, Path or object
        A Parquet file, a folder of Parquet files, an Arrow IPC file (or a folder of them), a
        Hugging Face dataset on disk, a Lance dataset, or an object: anything with
        `__arrow_c_stream__` (pandas, polars, pyarrow, DuckDB), a pyarrow dataset, a Hugging Face
        dataset.
    x_column, y_column : str, optional
        Columns of embeddings and labels; guessed where there is one.
    split : str, optional
        Part of a Hugging Face dataset on disk that has several; "train" unless given.
    labelled : bool
        Whether labels are needed: an error without them.
    name : str
        What errors call the data.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"x": [[0.0, 1.0], [2.0, 3.0]], "label": ["ant", "bee"]})
    >>> for X, y in read_table(table):
    ...     print(X.shape, y)
    (2, 2) ['ant' 'bee']
    """
    if isinstance(data, str | Path):
        path = Path(data).expanduser()
        return EmbeddingTable(
            _opened(path, split, name), x_column, y_column, labelled=labelled, name=f"{name} {path}"
        )
    if not (is_tabular(data) or hasattr(data, "__arrow_c_stream__")):
        raise TypeError(
            f"{name}: expected a file or folder of Arrow data, or an object with "
            f"__arrow_c_stream__ or a dataset; got {type(data).__name__}"
        )
    return EmbeddingTable(data, x_column, y_column, labelled=labelled, name=name)


def open_source(path: str | Path, split: str | None = None) -> Source:
    """Return the record batches of a file or folder, with all columns."""
    return _opened(Path(path).expanduser(), split, "data")


def is_table(path: Path) -> bool:
    """Return whether a file or folder holds Arrow columns, by names alone."""
    if path.is_file():
        return path.suffix.lower() in SUFFIXES
    if not path.is_dir():
        return False
    return path.suffix.lower() == LANCE or _is_hugging_face(path) or bool(_files(path))


def holds_embeddings(path: Path, x_column: str | None = None, split: str | None = None) -> bool:
    """Return whether a table has embeddings, and not texts or images for an encoder."""
    from dkvb._support.arrow.columns import choose

    if x_column is not None:
        return True
    schema = _opened(path, split, "data").schema
    return choose(schema, None, None, f"data {path}", labelled=False) is not None


def notes_of(table: EmbeddingTable) -> dict[str, str]:
    """Return what `write_table` noted beside the schema: the encoder and its fingerprint."""
    found = table.schema.metadata or {}
    return {
        key.removeprefix(_METADATA).decode(): value.decode()
        for key, value in found.items()
        if key.startswith(_METADATA)
    }


def names_of(path: Path, split: str | None = None) -> list[str] | None:
    """Return the names of the items that rows were embedded from; None where there are none."""
    source = _opened(path, split, "data")
    fields = {field.name: str(field.type) for field in source.schema}
    if "string" not in fields.get("name", ""):
        return None
    batches = source.batches(["name"], 1 << 16)
    names = [name for batch in batches for name in batch.column("name").to_pylist()]
    return None if None in names else names


def write_table(
    path: str | Path,
    parts: Iterable[NDArray[Any]],
    columns: Mapping[str, Any],
    notes: Mapping[str, str],
) -> None:
    """Write embeddings `x`, given in parts (rows of one width), and further columns as Parquet.

    Never more than a row group is in memory. The file is there in full or not at all.
    """
    replace_file(Path(path), _parquet(parts, columns, notes))


# ----------------------------------------------------------------------------------------- opening
def _opened(path: Path, split: str | None, name: str) -> Source:
    where = f"{name} {path}"
    if not path.exists():
        raise ValueError(f"{name}: expected a file or folder; found nothing at {path}")
    try:
        if path.suffix.lower() == LANCE:
            dataset = require("lance", "lance", where).dataset(str(path))
            return Source(dataset.schema, lambda columns, rows: dataset.to_batches(
                columns=columns, batch_size=rows))  # fmt: skip
        if path.is_dir() and _is_hugging_face(path):
            return _ipc(_hugging_face_files(path, split, name))
        files = [path] if path.is_file() else _files(path)
        return _parquet_source(path, files) if files[0].suffix.lower() in PARQUET else _ipc(files)
    except MissingPackageError:
        raise
    except Exception as error:  # a foreign or damaged file makes the readers raise anything
        if str(error).startswith(name):
            raise
        raise unreadable(where, error) from error


def _files(folder: Path) -> list[Path]:
    """The files of a folder that hold Arrow columns, in order of their names; Parquet first.

    Of its subfolders, those are looked into whose names are those of partitions (`label=ant`).
    """
    for suffixes in (PARQUET, IPC):
        found = list(_walk(folder, suffixes))
        if found:
            return found
    return []


def _walk(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for one in sorted(folder.iterdir()):
        if one.name.startswith((".", "_")):
            continue
        if one.is_dir() and "=" in one.name:
            yield from _walk(one, suffixes)
        elif one.suffix.lower() in suffixes and one.is_file():
            yield one


def _parquet_source(path: Path, files: list[Path]) -> Source:
    """Files of one schema; labels may stand in names of folders (`label=ant/part-0.parquet`)."""
    parquet = require("pyarrow.parquet", "arrow", PURPOSE)
    arrow = require("pyarrow", "arrow", PURPOSE)
    schema = parquet.read_schema(files[0])
    for one in files[1:]:
        found = parquet.read_schema(one)
        if not found.equals(schema):
            raise ValueError(f"{one.name} has the columns {found.names}, and {files[0].name} "
                             f"has {schema.names}, or their types differ")  # fmt: skip
    named = {one: _partition(one.relative_to(path)) if path.is_dir() else {} for one in files}
    for key in named[files[0]]:
        schema = schema.append(arrow.field(key, _partition_type(arrow, key, named)))

    def batches(columns: list[str], rows: int) -> Iterator[Any]:
        for one in files:
            own = [name for name in columns if name not in named[one]]
            for batch in parquet_batches(one, own, rows):
                arrays = [
                    batch.column(name)
                    if name in own
                    else arrow.repeat(named[one][name], len(batch)).cast(schema.field(name).type)
                    for name in columns
                ]
                yield arrow.RecordBatch.from_arrays(arrays, names=columns)

    n_rows = sum(parquet.read_metadata(one).num_rows for one in files)
    return Source(schema, batches, n_rows)


def _partition(path: Path) -> dict[str, str]:
    parts = (part.partition("=") for part in path.parts[:-1])
    return {key: value for key, equals, value in parts if equals}


def _partition_type(arrow: Any, key: str, named: Mapping[Path, Mapping[str, str]]) -> Any:
    whole = all(one[key].lstrip("-").isdecimal() for one in named.values())
    return arrow.int64() if whole else arrow.string()


def _ipc(files: list[Path]) -> Source:
    """Arrow IPC files: of the file format, or streams, as Hugging Face writes them."""
    arrow = require("pyarrow", "arrow", PURPOSE)
    with arrow.memory_map(str(files[0])) as file:
        schema = _ipc_reader(arrow, file).schema

    def batches(columns: list[str], rows: int) -> Iterator[Any]:
        for one in files:
            with arrow.memory_map(str(one)) as file:
                reader = _ipc_reader(arrow, file)
                if not reader.schema.equals(schema):
                    raise ValueError(f"{one}: expected the columns of {files[0].name}; got others")
                count = getattr(reader, "num_record_batches", None)
                found = reader if count is None else map(reader.get_batch, range(count))
                for batch in found:
                    yield batch.select(columns)

    return Source(schema, batches)


def _ipc_reader(arrow: Any, file: Any) -> Any:
    ipc = require("pyarrow.ipc", "arrow", PURPOSE)
    try:
        return ipc.open_file(file)
    except arrow.ArrowInvalid:
        file.seek(0)
        return ipc.open_stream(file)


def _is_hugging_face(folder: Path) -> bool:
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def _hugging_face_files(folder: Path, split: str | None, name: str) -> list[Path]:
    listed = folder / "dataset_dict.json"
    if listed.is_file():
        splits = json.loads(listed.read_text())["splits"]
        chosen = split or "train"
        if chosen not in splits:
            raise ValueError(
                f"{name}: expected one of the splits {', '.join(splits)} of {folder}; got {chosen}"
            )
        folder /= chosen
    state = json.loads((folder / "state.json").read_text())
    return [folder / Path(one["filename"]).name for one in state["_data_files"]]


# ----------------------------------------------------------------------------------------- writing
def _parquet(
    parts: Iterable[NDArray[Any]], columns: Mapping[str, Any], notes: Mapping[str, str]
) -> Iterator[bytes]:
    arrow = require("pyarrow", "arrow", "--out with a name in .parquet")
    parquet = require("pyarrow.parquet", "arrow", "--out with a name in .parquet")
    metadata = {_METADATA + key.encode(): value.encode() for key, value in notes.items()}
    sink, writer, first = Sink(), None, 0
    for part in parts:
        for start in range(0, len(part), _ROW_GROUP):
            x = np.ascontiguousarray(part[start : start + _ROW_GROUP])
            lists = arrow.FixedSizeListArray.from_arrays(arrow.array(x.ravel()), x.shape[1])
            rest = {key: arrow.array(all_[first : first + len(x)]) for key, all_ in columns.items()}
            table = arrow.table({"x": lists, **rest}).replace_schema_metadata(metadata)
            if writer is None:
                writer = parquet.ParquetWriter(sink, table.schema, use_dictionary=list(columns))
            writer.write_table(table)
            first += len(x)
            yield sink.taken()
    if writer is not None:
        writer.close()
    yield sink.taken()
