"""The head of a trained model as a torch module, for `torch.export`, TorchScript's heir, and AOTI.

The loop over codebooks is unrolled when the module is traced, since torch's own loop operators are
prototypes: the program of a model with C codebooks has about 10·C nodes, and never more than one
codebook's distances (n, K) in memory.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dkvb.bottleneck.assignment import LEVELS
from dkvb.embedding.encoders.encoder import ModuleEncoder
from dkvb.estimators.kernel.calibration import LOWEST
from dkvb.estimators.kernel.functions import RBF
from dkvb.export.head import (
    Exportable,
    Head,
    KernelValues,
    SoftValues,
    Stored,
    Values,
    head_of,
)
from dkvb.rules.counts.export import Counts

TINY = 2.0**-1000  # a product of norms below which two rows have no angle
LARGEST_HALF = 65504.0  # that float16 can hold
Answer = tuple[Tensor, Tensor, Tensor]


class HeadModule(nn.Module):
    """Embeddings (n, m) float32 → scores (n, Y), probabilities (n, Y), label index (n,).

    Arithmetic is float64 from the embedding to the choice of keys, answers are float32. Of a
    regressor, `forward` returns its numbers (n, Y) alone.
    """

    centre: Tensor
    components: Tensor | None
    matrices: Tensor | None
    keys: Tensor
    base: Tensor
    scale: Tensor
    linear: Tensor | None
    table: Tensor
    entry_bounds: Tensor
    entry_columns: Tensor
    entry_counts: Tensor
    constant: Tensor
    weights: Tensor
    shares: Tensor
    clusters: Tensor
    reference: Tensor

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.power, self.normalise, self.projection = head.power, head.normalise, head.projection
        self.temperature, self.labels, self.slope = head.temperature, head.labels, head.slope
        self._units: dict[str, float] = {}
        self.register_buffer("centre", head.centre)
        self.register_buffer("base", head.base)
        self.register_buffer("scale", head.scale)
        self.register_buffer("linear", head.linear)
        self._keep("components", head.components)
        self._keep("matrices", head.matrices)
        self._keep("keys", head.keys)
        self._bounds = head.bounds.tolist()
        self._read: str = type(head.read).__name__
        if isinstance(head.read, Counts):
            self._keep_counts(head.read)
        else:
            self._keep("table", head.read.table)
        self._kernel = head.read.function if isinstance(head.read, KernelValues) else None
        if isinstance(head.read, SoftValues):
            self._sharpness, self._row_unit = head.read.sharpness.tolist(), head.read.unit
        self._rejection = head.rejection
        if head.rejection is not None:
            self.register_buffer("reference", head.rejection.reference)

    def _keep(self, name: str, stored: Stored | None) -> None:
        if stored is None:  # no buffer at all: torch.export miscounts those that are None
            setattr(self, name, None)
        else:
            self.register_buffer(name, stored.tensor)
        self._units[name] = 1.0 if stored is None else stored.unit

    def _keep_counts(self, read: Counts) -> None:
        bounds = read.bounds.long()
        self._longest = max(1, int((bounds[1:] - bounds[:-1]).max()))
        for name in ("bounds", "columns", "counts"):
            self.register_buffer(f"entry_{name}", _indexable(getattr(read, name)))
        self._likelihood = read.likelihood is not None
        if read.likelihood is not None:
            how = read.likelihood
            self.register_buffer("constant", how.constant)
            self.register_buffer("weights", how.weights)
            self.register_buffer("shares", how.shares)
            self.register_buffer("clusters", _indexable(how.clusters))

    def _stored(self, name: str, part: Tensor) -> Tensor:
        unit = self._units[name]
        return part.double() if unit == 1.0 else part.double() * unit

    def forward(self, x: Tensor) -> Answer | Tensor:
        """Embeddings (n, m) → scores, probabilities, label indices; or a regressor's numbers."""
        centred = self._centred(x)
        rows = self._conditioned(centred)
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
        if self.linear is not None:
            scores = scores + centred @ self.linear
        if self.temperature is None:
            return scores.float()
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

    def _centred(self, x: Tensor) -> Tensor:
        """Embeddings (n, m) → rows (n, m) before the linear map, as `Conditioning` has them."""
        z = x.double()
        if self.power != 1.0:
            size = z.abs()
            z = z.sign() * (size.sqrt() if self.power == 0.5 else size**self.power)
        if self.normalise:
            norm = z.norm(dim=1, keepdim=True)
            z = z / torch.where(norm > 0, norm, 1.0)
        return z - self.centre

    def _conditioned(self, z: Tensor) -> Tensor:
        """Rows (n, m) before the linear map → conditioned rows (n, p)."""
        if self.components is not None:
            z = z @ self._stored("components", self.components)
        if self._read == SoftValues.__name__:  # soft reads are of rows in float16
            z = (z / self._row_unit).clamp(-LARGEST_HALF, LARGEST_HALF).float().half()
            z = z.double() * self._row_unit
        return z

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
        if self._kernel is not None:
            kernel = self._kernel_of(scores, heads, self._stored("keys", self.keys[own]))
            return kernel @ self._stored("table", self.table[own])
        if self._read == SoftValues.__name__:
            shares = (-self._sharpness[book] * scores).softmax(dim=1)
            weights: Tensor = (shares * LEVELS).round()  # (n, K)
            return weights @ self._stored("table", self.table[own])
        pair = scores.argmin(dim=1) + own.start  # (n,)
        if self._read == Values.__name__:
            return self._stored("table", self.table[pair])
        none = scores.new_zeros((scores.shape[0], len(self.base)))
        if not self._likelihood:
            return self._scattered(none, pair, None)
        likelihood = self._scattered(none + self.constant, pair, self.weights[0])
        partitions, C, G = self.shares.shape
        for partition in range(partitions):
            cluster = self.clusters[partition][pair].long()  # (n,)
            worth = (
                self.shares[partition, book][cluster][:, None] * self.weights[1 + partition]
            )  # (n, Y)
            cell = cluster + len(self.keys) + (partition * C + book) * G
            likelihood = self._scattered(likelihood, cell, worth)
        return likelihood.log()

    def _kernel_of(self, scores: Tensor, heads: Tensor, keys: Tensor) -> Tensor:
        """The kernel matrix (n, K), from ½d² − ½‖h‖² (n, K)."""
        assert self._kernel is not None
        squares = heads.square().sum(dim=1, keepdim=True)  # (n, 1)
        if self._kernel.kind == RBF:
            return (-self._kernel.gamma * (2 * scores + squares).clamp(min=0)).exp()
        key_squares = keys.square().sum(dim=1)  # (K,)
        norms = (squares * key_squares).sqrt()
        dot = 0.5 * key_squares - scores
        cosine = (dot / norms.clamp(min=TINY)).clamp(-1, 1)
        angle = math.pi - torch.acos(cosine)
        return norms * ((1 - cosine.square()).sqrt() + angle * cosine) / math.pi

    def _scattered(self, sums: Tensor, cell: Tensor, worth: Tensor | None) -> Tensor:
        """Sums (n, Y) with what was counted in cells (n,), each worth (Y,) or (n, Y), added."""
        low, high = self.entry_bounds[cell].long(), self.entry_bounds[cell + 1].long()
        step = torch.arange(self._longest, device=sums.device)
        inside = step < (high - low)[:, None]  # (n, L)
        entry = torch.where(inside, low[:, None] + step, 0)
        column = self.entry_columns[entry].long()
        gain = torch.where(inside, self.entry_counts[entry].double(), 0.0)
        if worth is not None:
            gain = gain * worth.expand(cell.shape[0], -1).gather(1, column)
        return sums.scatter_add(1, column, gain)


def _indexable(numbers: Tensor) -> Tensor:
    """The same whole numbers in a type that torch can index everywhere."""
    return numbers.int() if numbers.dtype == torch.uint16 else numbers


class ImageModule(nn.Module):
    """Transformed images (n, 3, crop, crop) float32 → what `HeadModule` answers."""

    def __init__(self, encoder: ModuleEncoder, head: HeadModule) -> None:
        super().__init__()
        self.network, self.features, self.head = encoder.module, encoder.features, head

    def forward(self, images: Tensor) -> Answer | Tensor:
        """Images as the encoder's transform makes them → scores, probabilities, label indices."""
        answer: Answer | Tensor = self.head(self.features(images).float())
        return answer


def as_module(model: Exportable, encoder: Any = None) -> HeadModule | ImageModule:
    """A module that answers as the model does, and that `torch.export.export` can trace.

    It takes embeddings; with an image `encoder` of `dkvb.embedding` that is made of a torch module,
    images as the encoder's transform makes them.

    >>> import numpy as np
    >>> from dkvb import BottleneckClassifier
    >>> X, y = np.random.default_rng(0).normal(size=(50, 4)).astype("float32"), [0, 1] * 25
    >>> clf = BottleneckClassifier(keys={"n_codebooks": 4, "n_pairs": 8, "key_dim": 2}).fit(X, y)
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
