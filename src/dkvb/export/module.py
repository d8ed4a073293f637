"""The head of a trained model as a torch module, for `torch.export`, TorchScript's heir, and AOTI.

The loop over codebooks is unrolled when the module is traced, since torch's own loop operators are
prototypes: the program of a model with C codebooks has about 10·C nodes, and never more than one
codebook's distances (n, K) in memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dkvb.embedding.encoders.encoder import ModuleEncoder
from dkvb.export.head import (
    Exportable,
    Head,
    KernelValues,
    Stored,
    head_of,
)
from dkvb.memory.calibration import LOWEST

Answer = tuple[Tensor, Tensor, Tensor]


class HeadModule(nn.Module):
    """Embeddings (n, m) float32 → scores (n, Y), probabilities (n, Y), label index (n,).

    Arithmetic is float64 from the embedding to the choice of keys, answers are float32.
    """

    centre: Tensor
    components: Tensor | None
    matrices: Tensor | None
    keys: Tensor
    base: Tensor
    scale: Tensor
    table: Tensor
    reference: Tensor

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.power, self.normalise, self.projection = head.power, head.normalise, head.projection
        self.temperature, self.labels, self.slope = head.temperature, head.labels, head.slope
        self._units: dict[str, float] = {}
        self.register_buffer("centre", head.centre)
        self.register_buffer("base", head.base)
        self.register_buffer("scale", head.scale)
        self._keep("components", head.components)
        self._keep("matrices", head.matrices)
        self._keep("keys", head.keys)
        self._bounds = head.bounds.tolist()
        self._keep("table", head.read.table)
        self._gamma = head.read.gamma if isinstance(head.read, KernelValues) else None
        self._rejection = head.rejection
        if head.rejection is not None:
            self.register_buffer("reference", head.rejection.reference)

    def _keep(self, name: str, stored: Stored | None) -> None:
        if stored is None:  # no buffer at all: torch.export miscounts those that are None
            setattr(self, name, None)
        else:
            self.register_buffer(name, stored.tensor)
        self._units[name] = 1.0 if stored is None else stored.unit

    def _stored(self, name: str, part: Tensor) -> Tensor:
        unit = self._units[name]
        return part.double() if unit == 1.0 else part.double() * unit

    def forward(self, x: Tensor) -> Answer:
        """Embeddings (n, m) → scores, probabilities, label indices."""
        rows = self._conditioned(x)
        pooled = torch.zeros((x.shape[0], len(self.base)), dtype=torch.float64, device=x.device)
        far = torch.zeros(x.shape[0], dtype=torch.float64, device=x.device)
        for book in range(len(self._bounds) - 1):
            own = slice(self._bounds[book], self._bounds[book + 1])
            heads = self._heads(rows, book)  # (n, d)
            keys = self._stored("keys", self.keys[own])  # (K, d)
            scores = 0.5 * keys.square().sum(dim=1) - heads @ keys.T  # (n, K), ½d² − ½‖h‖²
            pooled = pooled + self._pooled(scores, heads, book, own)
            if self._rejection is not None:
                squared = 2 * scores.amin(dim=1) + heads.square().sum(dim=1)
                far = far + squared.clamp(min=0) / float(self._rejection.quantization_error[book])
        scores = self.base + self.scale * pooled
        label = scores.argmax(dim=1)
        if self._rejection is not None:
            distance = (far / (len(self._bounds) - 1)).float()[:, None]
            novelty = (self.reference < distance).double().mean(dim=1)
            label = torch.where(novelty > self._rejection.above, -1, label)
        logits = scores
        if self.slope is not None:
            steep = (self.slope * scores).clamp(min=LOWEST)
            logits = torch.nn.functional.softplus(steep).log() + self.base
        return scores.float(), (logits / self.temperature).softmax(dim=1).float(), label

    def _conditioned(self, x: Tensor) -> Tensor:
        """Embeddings (n, m) → conditioned rows (n, p), as `Conditioning` has them."""
        z = x.double()
        if self.power != 1.0:
            size = z.abs()
            z = z.sign() * (size.sqrt() if self.power == 0.5 else size**self.power)
        if self.normalise:
            norm = z.norm(dim=1, keepdim=True)
            z = z / torch.where(norm > 0, norm, 1.0)
        z = z - self.centre
        return z if self.components is None else z @ self._stored("components", self.components)

    def _heads(self, rows: Tensor, book: int) -> Tensor:
        """Rows (n, p) → heads of one codebook (n, d)."""
        if self.matrices is not None:
            return rows @ self._stored("matrices", self.matrices[book])
        if self.projection == "identity":
            return rows
        d = self.keys.shape[1]
        return rows[:, book * d : (book + 1) * d]

    def _pooled(self, scores: Tensor, heads: Tensor, book: int, own: slice) -> Tensor:
        """What one codebook says (n, Y), from scores of its keys (n, K) and heads (n, d)."""
        if self._gamma is not None:
            squared = 2 * scores + heads.square().sum(dim=1, keepdim=True)
            kernel = (-self._gamma * squared.clamp(min=0)).exp()
            return kernel @ self._stored("table", self.table[own])
        pair = scores.argmin(dim=1) + own.start  # (n,)
        return self._stored("table", self.table[pair])


class ImageModule(nn.Module):
    """Transformed images (n, 3, crop, crop) float32 → what `HeadModule` answers."""

    def __init__(self, encoder: ModuleEncoder, head: HeadModule) -> None:
        super().__init__()
        self.network, self.features, self.head = encoder.module, encoder.features, head

    def forward(self, images: Tensor) -> Answer:
        """Images as the encoder's transform makes them → scores, probabilities, label indices."""
        answer: Answer = self.head(self.features(images).float())
        return answer


def as_module(model: Exportable, encoder: Any = None) -> HeadModule | ImageModule:
    """A module that answers as the model does, and that `torch.export.export` can trace.

    It takes embeddings; with an image `encoder` of `dkvb.embedding` that is made of a torch module,
    images as the encoder's transform makes them.

    >>> import numpy as np
    >>> from dkvb import BottleneckClassifier
    >>> X, y = np.random.default_rng(0).normal(size=(50, 4)).astype("float32"), [0, 1] * 25
    >>> clf = BottleneckClassifier({"n_codebooks": 4, "n_pairs": 8, "key_dim": 2}).fit(X, y)
    >>> x, batch = torch.from_numpy(X), {0: torch.export.Dim("batch")}
    >>> program = torch.export.export(as_module(clf), (x,), dynamic_shapes=(batch,))
    >>> _, probabilities, _ = program.module()(x[:7])
    >>> np.allclose(probabilities, clf.predict_proba(X[:7]), atol=1e-6)
    True
    """
    head = HeadModule(head_of(model)).eval()
    if encoder is None:
        return head
    if not isinstance(encoder, ModuleEncoder):
        raise TypeError(
            "encoder: expected an encoder of dkvb.embedding that is made of a torch module; got "
            f"{type(encoder).__name__}; embed first, and export the head alone"
        )
    if encoder.dimension != head.centre.shape[0]:
        raise ValueError(
            f"encoder: expected embeddings of width {head.centre.shape[0]}, as the model learned; "
            f"got width {encoder.dimension}; use the encoder that made the model's embeddings"
        )
    return ImageModule(encoder, head).eval()
