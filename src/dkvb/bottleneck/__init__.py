"""The paper's section 2, one step a file: conditioning, projection, keys, values, decoder."""

from dkvb.bottleneck.bottleneck import KeyValueBottleneck
from dkvb.bottleneck.initialise import fit_keys
from dkvb.bottleneck.keys import Codes, KeyReport, Keys

__all__ = ["Codes", "KeyReport", "KeyValueBottleneck", "Keys", "fit_keys"]
