"""A pre-trained decoder behind the bottleneck: values that are decoded to images.

    python examples/decode_images.py

Principal components of the digits 0 to 4 are the decoder: from 16 numbers to an image of 8 × 8
pixels. It is fixed. Values then learn the digits 5 to 9, one after the other and none seen twice,
and the bottleneck decodes test images of them. Prints the explained variance of each digit at the
end: the first ones are not forgotten.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from torch import Tensor, nn

from dkvb import KeyValueBottleneck, fit_keys


class Decoder(nn.Module):
    """The mean of fetched values, times components, plus the mean image."""

    def __init__(self, pca: PCA) -> None:
        super().__init__()
        self.components = nn.Parameter(torch.from_numpy(pca.components_).float())  # (q, 64)
        self.mean = nn.Parameter(torch.from_numpy(pca.mean_).float())

    def forward(self, fetched: Tensor) -> Tensor:
        """Images (n, 64) of values (n, C, q)."""
        return fetched.mean(dim=1) @ self.components + self.mean


def main() -> dict[int, float]:
    """Learn digit after digit, and return the explained variance of each."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    is_test = np.arange(len(X)) % 4 == 0
    known = (y < 5) & ~is_test
    keys = fit_keys(X[~is_test], n_codebooks=32, n_pairs=64, key_dim=8)  # no labels
    decoder = Decoder(PCA(16, svd_solver="full").fit(X[known]))
    model = KeyValueBottleneck(keys, 64, value_dim=16, decoder=decoder, train_decoder=False)
    optimiser = torch.optim.SGD([model.values], lr=2.0 * 32)
    for digit in range(5, 10):
        images = torch.from_numpy(X[(y == digit) & ~is_test])
        for _ in range(15):
            for batch in torch.randperm(len(images)).split(32):
                loss = (model(images[batch]) - images[batch]).square().sum(dim=1).mean() / 2
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    explained = {}
    model.eval()
    for digit in range(5, 10):
        images = torch.from_numpy(X[(y == digit) & is_test])
        with torch.no_grad():
            error = (model(images) - images).square().sum()
        spread = (images - decoder.mean).square().sum()  # of the mean image alone
        explained[digit] = 1 - float(error / spread)
    return explained


if __name__ == "__main__":
    torch.manual_seed(0)
    for digit, share in main().items():
        print(f"digit {digit}: {100 * share:.0f} % of the variance explained")
