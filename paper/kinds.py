"""Kinds of records: with the paper's settings, or changed, synthetic or quick ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dkvb.evaluation.records import RunRecord
from paper.experiments import load_experiment
from paper.source import Bundled
from paper.tables import get_encoder

# The closest to the paper first, with what a title says of it.
KINDS = {
    "full": "",
    "changed": "changed settings",
    "synthetic": "synthetic rows",
    "quick": "quick: small sizes, few epochs, bundled data",
}


def get_changes(record: RunRecord) -> str:
    """Return the fields of the configuration that `--set` changed, as text."""
    changes = record.config.get("changes", {})
    return ", ".join(f"{name}={value}" for name, value in changes.items())


def get_variant(record: RunRecord) -> tuple[str, str]:
    """Return encoder and changes. Records that differ in them are not seeds of one run."""
    return get_encoder([record]), get_changes(record)


def classify_records(experiment: str, records: Sequence[RunRecord]) -> str:
    """Return "full", or why these records cannot be compared with the paper."""
    encoder, module = get_encoder(records), load_experiment(experiment)
    if any(map(get_changes, records)):
        return "changed"
    if encoder == Bundled.encoder:
        return "quick"
    if "synthetic" in encoder:
        return "synthetic"
    if not encoder:  # without embeddings, the configuration itself is in the record
        config = records[0].config
        matches = {
            kind: all(config.get(name) == value for name, value in vars(known).items())
            for kind, known in (("full", module.PAPER), ("quick", module.QUICK))
        }
        return next((kind for kind, same in matches.items() if same), "changed")
    return "full"


def get_epochs(records: Iterable[RunRecord]) -> set[int]:
    """Return the epochs per task of bottlenecks."""
    epochs = set()
    for record in records:
        config = record.config
        settings, params = config.get("settings", {}), config.get("params", {})
        if "measure" in config or record.classifier.startswith("bottleneck"):
            sources = (params, config, config.get("config", {}), settings)
            epochs |= set([source["epochs"] for source in sources if "epochs" in source][:1])
    return epochs
