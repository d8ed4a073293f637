"""What rule `sgd` has learned, as an exported graph needs it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dkvb.bottleneck import Keys


@dataclass(frozen=True, eq=False)
class ValuesView:
    """One value for each key, fetched by code and averaged over codebooks."""

    keys: Keys  # the classifier's
    searched: Keys  # those that predictions search
    number: Tensor  # (C, K') of each searched key among all
    values: Tensor  # (C, K, Y)
