"""What numbers are worth: those of the paper's own experiment, or of something smaller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dkvb.benchmark.paper import module_of
from dkvb.benchmark.paper._source import Bundled
from dkvb.benchmark.paper._tables import encoder_of
from dkvb.benchmark.records import RunRecord

# What is worth more comes first; and what a title says of it.
KINDS = {
    "full": "",
    "changed": "own settings",
    "synthetic": "synthetic rows",
    "quick": "quick: small sizes, few epochs, bundled data",
}


def changes_of(record: RunRecord) -> str:
    """What somebody changed of the configuration, by `--set`."""
    changes = record.config.get("changes", {})
    return ", ".join(f"{name}={value}" for name, value in changes.items())


def settings_of(record: RunRecord) -> tuple[str, str]:
    """Encoder and changes: records that differ in these are no seeds of one run."""
    return encoder_of([record]), changes_of(record)


def kind_of(experiment: str, records: Sequence[RunRecord]) -> str:
    """`full`, or why these numbers cannot be held against the paper's."""
    encoder, module = encoder_of(records), module_of(experiment)
    if any(map(changes_of, records)):
        return "changed"
    if encoder == Bundled.encoder:
        return "quick"
    if "synthetic" in encoder:
        return "synthetic"
    if not encoder:  # no embeddings, so that the configuration itself is in the record
        config = records[0].config
        matches = {
            kind: all(config.get(name) == value for name, value in vars(known).items())
            for kind, known in (("full", module.PAPER), ("quick", module.QUICK))
        }
        return next((kind for kind, same in matches.items() if same), "changed")
    if all("changes" in record.config for record in records):  # and says that there were none
        return "full"
    epochs = epochs_of(records)
    return "full" if epochs <= {getattr(module.PAPER, "epochs", None)} else "changed"


def epochs_of(records: Iterable[RunRecord]) -> set[int]:
    """Epochs a stage of the bottlenecks that learn by gradient descent."""
    found = set()
    for record in records:
        config = record.config
        settings, params = config.get("settings", {}), config.get("params", {})
        descends = {**settings, **params}.get("rule", "sgd") == "sgd"
        if descends and ("measure" in config or record.classifier.startswith("bottleneck")):
            places = (params, config, config.get("config", {}), settings)
            found |= set([place["epochs"] for place in places if "epochs" in place][:1])
    return found
