"""The paper's section 2, one step a file: conditioning, projection, keys, values, decoder."""

from dkvb.bottleneck.batch import Batch
from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.bottleneck.keys import KeyReport, Keys
from dkvb.bottleneck.module import KeyValueBottleneck

__all__ = ["Batch", "KeyReport", "KeyValueBottleneck", "Keys", "fit_keys"]
