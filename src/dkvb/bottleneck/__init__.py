"""The paper's section 2, one step a file: conditioning, projection, keys, values, decoder."""

from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.bottleneck.keys import Codes, KeyReport, Keys
from dkvb.bottleneck.module import KeyValueBottleneck

__all__ = ["Codes", "KeyReport", "KeyValueBottleneck", "Keys", "fit_keys"]
