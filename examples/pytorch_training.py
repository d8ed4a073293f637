"""The bottleneck in a plain PyTorch training loop: two classes at a time, none seen twice.

    python examples/pytorch_training.py

Prints the accuracy over all classes seen so far, after every two: 94 % with two of them, 77 % with
all ten.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dkvb import KeyValueBottleneck, fit_keys
from dkvb.embedding.datasets.bundled import load


def train(model: nn.Module, X: Tensor, y: Tensor, epochs: int, learning_rate: float) -> None:
    """Minimise the cross-entropy over rows X (n, m) with labels y (n,)."""
    # Only values have gradients: keys and projection are buffers.
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(X)).split(128):
            loss = nn.functional.cross_entropy(model(X[batch]), y[batch], label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


@torch.no_grad()
def accuracy(model: nn.Module, X: Tensor, y: Tensor) -> float:
    """The share of rows whose highest output is their label's."""
    model.eval()
    return float((model(X).argmax(dim=1) == y).float().mean())


def main() -> list[float]:
    """Learn ten classes two at a time; the accuracies over classes seen, stage by stage."""
    torch.manual_seed(0)
    unlabelled, _ = load("cifar100", "train")
    keys = fit_keys(unlabelled, n_codebooks=64, n_pairs=128, key_dim=8, epochs=3)
    model = KeyValueBottleneck(keys, n_outputs=10)

    data = [load("cifar10", split) for split in ("train", "test")]
    names = np.unique(data[0][1])
    (X, y), (X_test, y_test) = (
        (torch.from_numpy(x), torch.from_numpy(np.searchsorted(names, labels)))
        for x, labels in data
    )
    accuracies = []
    for first in range(0, 10, 2):
        now, seen = (y >= first) & (y < first + 2), y_test < first + 2
        train(model, X[now], y[now], epochs=3, learning_rate=20.0)
        accuracies.append(accuracy(model, X_test[seen], y_test[seen]))
        print(f"classes {first}, {first + 1}: {accuracies[-1]:.1%} over all {first + 2} seen")
    return accuracies


if __name__ == "__main__":
    main()
