"""Status of every experiment: `status.csv`, which `dkvb report --status` writes from records."""

from __future__ import annotations

import csv
from importlib.resources import files


def read_status() -> dict[str, str]:
    """Return where each experiment was measured, and what is not measurable and why."""
    with (files(__package__) / "status.csv").open(encoding="utf-8") as file:
        return {row["experiment"]: row["status"] for row in csv.DictReader(file)}
