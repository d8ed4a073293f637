"""Any sentence-transformers model: texts to rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import (
    EncoderSpec,
    Identity,
    arithmetic,
    as_it_is,
    resolve_precision,
)
from dkvb.embedding.encoders.settings import PLAIN
from dkvb.embedding.encoders.weights import download, fingerprint


class SentenceEncoder:
    """A sentence-transformers model behind the protocol."""

    takes = "text"

    def __init__(self, name: str, model: Any, device: torch.device, precision: str) -> None:
        self.name, self.device, self.transform = name, device, as_it_is
        self.precision = resolve_precision(precision, device)
        self.model = model.eval().requires_grad_(False)
        self.identity: Identity = {
            "name": "sentence-transformers",  # wherever the folder lies
            "weights": fingerprint(model.state_dict()),
            "text to tokens": _hash(_tokenizer(model)),
            "modules": _hash(str(model)),  # pooling, normalisation and the longest text
            "precision": self.precision,
        }
        self.dimension = self.encode(["one text"]).shape[1]

    def encode(self, batch: Sequence[str]) -> Tensor:
        """Embeddings (n, m) of texts."""
        with torch.inference_mode(), arithmetic(self.device, self.precision):
            rows: Tensor = self.model.encode(
                list(batch),
                batch_size=len(batch),
                show_progress_bar=False,
                convert_to_tensor=True,
            )
        return rows.float().cpu()


def build(spec: EncoderSpec) -> SentenceEncoder:
    """The model after the colon: a local folder, or a name that the library can download."""
    name, weights, layers, pooling = spec[:4]
    where = name.partition(":")[2]
    if weights is not None:
        raise ValueError(
            "weights: expected none for sentence-transformers, whose folder holds them; "
            f"got {weights}; name the folder: sentence-transformers:{weights}"
        )
    if (layers, pooling, spec.views) != (("last",), "mean", PLAIN):
        raise ValueError(
            "layers, pooling, views: expected last, mean and plain for sentence-transformers, "
            "whose folder says how to pool; got "
            f"{','.join(layers)}, {pooling} and {spec.views}; leave them out"
        )
    library = require("sentence_transformers", "text", f"encoder {name}")
    require("transformers.utils.logging", "text", f"encoder {name}").disable_progress_bar()
    local = Path(where).expanduser()
    is_folder = local.is_dir()
    place = torch.device(spec.device)
    model = download(
        lambda: library.SentenceTransformer(
            str(local) if is_folder else where,
            device=str(place),
            local_files_only=is_folder or not spec.allow_download,
        ),
        spec,
    )
    return SentenceEncoder(name, model, place, spec.precision)


def _tokenizer(model: Any) -> str:
    """All rules from text to tokens; without a fast tokenizer, its vocabulary."""
    tokenizer: Any = getattr(model, "tokenizer", None)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return str(backend.to_str())
    return repr(sorted(tokenizer.get_vocab().items())) if hasattr(tokenizer, "get_vocab") else ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
