"""Pages on every public name, from docstrings: python scripts/api_docs.py FOLDER (make docs)."""

import sys
import warnings
from importlib import import_module
from pathlib import Path

import pdoc
import pdoc.render

import dkvb

# What users import from; everything else may change without notice (deprecation.md).
MODULES = [
    "dkvb",
    "dkvb.rules",
    "dkvb.estimators.registry",
    "dkvb.embedding.datasets.bundled",
    "dkvb.embedding",
    "dkvb.benchmark.runner",
    "dkvb.deploy.export",
    "dkvb.deploy.serve.client",
    "dkvb.benchmark.metrics",
    "dkvb.benchmark.streams",
]


def build(folder: Path) -> None:
    # Names that are imported when they are first asked for must be there to be described.
    for module in map(import_module, MODULES):
        for name in getattr(module, "__all__", []):
            setattr(module, name, getattr(module, name))
    warnings.filterwarnings("ignore", module="pdoc")  # names known to type checkers only
    pdoc.render.configure(
        docformat="markdown", show_source=False, footer_text=f"dkvb {dkvb.__version__}"
    )
    below = [f"!{name}\\..*" for name in MODULES[1:]]  # pages on packages, not on their parts
    pdoc.pdoc(*MODULES, *below, output_directory=folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/api_docs.py FOLDER")
    build(Path(sys.argv[1]))
    print(f"{len(MODULES)} pages in {sys.argv[1]}, starting with dkvb.html")
