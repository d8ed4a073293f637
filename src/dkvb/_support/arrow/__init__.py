"""Embeddings and labels in the columns of Arrow tables, read batch by batch.

Whatever hands out Arrow data (`__arrow_c_stream__`: pandas and polars frames, pyarrow tables,
DuckDB relations), a pyarrow or Lance dataset and a Hugging Face dataset are read alike.
"""

from dkvb._support.arrow.sources import Source, is_tabular, source_of
from dkvb._support.arrow.table import EmbeddingTable, with_labels, without_labels

__all__ = [
    "EmbeddingTable",
    "Source",
    "is_tabular",
    "source_of",
    "with_labels",
    "without_labels",
]
