"""An Avalanche strategy over any classifier of this package.

    pip install avalanche-lib
    python examples/avalanche_strategy.py

Avalanche's strategies train a network by gradient descent in epochs and hooks. A classifier that
learns by `partial_fit` needs none of that, so that the adapter is not one of its templates: it has
their two methods, `train` and `eval`, takes the same experiences and streams, and names its metrics
as Avalanche does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from dkvb import BottleneckClassifier, fit_keys
from dkvb.embedding.datasets.bundled import load


class ClassifierStrategy:
    """Learns experience after experience with a classifier that has `partial_fit`.

    `encoder` leads from a batch of inputs to embeddings (n, m), on the way in; without one, the
    inputs are embeddings already.
    """

    def __init__(
        self,
        classifier: Any,
        encoder: Callable[[torch.Tensor], torch.Tensor] | None = None,
        batch_size: int = 256,
    ) -> None:
        self.classifier, self.encoder, self.batch_size = classifier, encoder, batch_size

    def train(self, experiences: Any, eval_streams: Any = None, **_: Any) -> dict[str, float]:
        """Learn one experience, or those of a stream, in their order."""
        for experience in _listed(experiences):
            self.classifier.partial_fit(*self._rows(experience.dataset))
        metrics: dict[str, float] = {}
        for stream in eval_streams or []:
            metrics |= self.eval(stream)
        return metrics

    def eval(self, experiences: Any, **_: Any) -> dict[str, float]:
        """Accuracy on each experience, and over all of their rows."""
        metrics, right, rows = {}, 0, 0
        for number, experience in enumerate(_listed(experiences)):
            X, y = self._rows(experience.dataset)
            correct = int((self.classifier.predict(X) == y).sum())
            number = getattr(experience, "current_experience", number)
            metrics[f"Top1_Acc_Exp/eval_phase/test_stream/Exp{number:03d}"] = correct / len(y)
            right, rows = right + correct, rows + len(y)
        return {**metrics, "Top1_Acc_Stream/eval_phase/test_stream": right / max(1, rows)}

    @torch.no_grad()
    def _rows(self, dataset: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Embeddings (n, m) and labels (n,) of a data set of (input, label, ...)."""
        found = []
        for x, y, *_ in DataLoader(dataset, batch_size=self.batch_size):
            found.append(((x if self.encoder is None else self.encoder(x)).numpy(), y.numpy()))
        X, y = (np.concatenate(part) for part in zip(*found, strict=True))
        return X.astype(np.float32), y


def _listed(experiences: Any) -> Iterable[Any]:
    return [experiences] if hasattr(experiences, "dataset") else experiences


def main() -> float:
    """Ten classes in five experiences of Avalanche; the accuracy at the end."""
    from avalanche.benchmarks import class_incremental_benchmark
    from avalanche.benchmarks.utils import as_classification_dataset
    from torch.utils.data import TensorDataset

    names = np.unique(load("cifar10", "test")[1])

    def dataset(split: str) -> Any:
        X, y = load("cifar10", split)
        data = TensorDataset(torch.from_numpy(X), torch.from_numpy(np.searchsorted(names, y)))
        data.targets = data.tensors[1].tolist()
        return as_classification_dataset(data)

    benchmark = class_incremental_benchmark(
        {"train": dataset("train"), "test": dataset("test")}, num_experiences=5, seed=1
    )
    keys = fit_keys(load("cifar100", "train")[0], n_codebooks=64, n_pairs=128, key_dim=8, epochs=3)
    strategy = ClassifierStrategy(BottleneckClassifier(keys))
    for experience in benchmark.train_stream:
        strategy.train(experience)
        seen = benchmark.test_stream[: experience.current_experience + 1]
        accuracy = strategy.eval(seen)["Top1_Acc_Stream/eval_phase/test_stream"]
        print(f"experience {experience.current_experience}: {accuracy:.1%} over those seen")
    return accuracy


if __name__ == "__main__":
    main()
