"""Models on the Hugging Face Hub, with a model card; a local folder can stand for the hub.

What is uploaded are a snapshot and keys in safetensors files, and the card: no journal, no
history, no code.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dkvb import __version__
from dkvb._support.optional import require
from dkvb.store import read_model, summarise
from dkvb.store.packing import pack
from dkvb.store.reading import Model

CARD = "README.md"
_FILES = ["*.safetensors", CARD]
_MOST_CLASSES = 1000  # that a card lists


def upload(model: Any, repo: str | Path, *, test: tuple[Any, Any] | None = None) -> str:
    """Upload a model with its card, and return where it is.

    Parameters
    ----------
    model : str, Path or classifier
        A model folder, a model's file, or a fitted classifier.
    repo : str or Path
        Name of a repository on the Hub (`"user/name"`), which is made private if it is new; or a
        folder (a `Path`), which stands for one.
    test : (X, y), optional
        Held-out rows to measure accuracy on, for the card.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        found = pack(model, folder)
        (folder / CARD).write_text(_card(found, test), encoding="utf-8")
        if isinstance(repo, Path):
            repo.mkdir(parents=True, exist_ok=True)
            for old in repo.glob("*.safetensors"):
                old.unlink()
            shutil.copytree(folder, repo, dirs_exist_ok=True)
            return str(repo)
        api = require("huggingface_hub", "hub", "dkvb.engines.hub").HfApi()
        api.create_repo(repo, private=True, exist_ok=True)
        done = api.upload_folder(
            repo_id=repo, folder_path=str(folder), delete_patterns="*.safetensors"
        )
        return str(done)


def download(repo: str | Path, path: str | Path, *, revision: str | None = None) -> Path:
    """Copy a model from the hub to a new model folder, and return that.

    Parameters
    ----------
    repo : str or Path
        Name of a repository on the Hub, or a folder (a `Path`) that stands for one.
    path : str or Path
        The new folder; `dkvb learn` and `dkvb predict` take it.
    revision : str, optional
        Branch, tag or commit; of a repository on the Hub.
    """
    path = Path(path)
    if path.exists() and any(path.iterdir()):
        raise ValueError(f"path: expected a new folder; got {path}, which is not empty")
    path.mkdir(parents=True, exist_ok=True)
    if isinstance(repo, Path):
        if not repo.is_dir():
            raise ValueError(f"repo: expected a folder that stands for a repository; got {repo}")
        for pattern in _FILES:
            for file in repo.glob(pattern):
                shutil.copyfile(file, path / file.name)
    else:
        hub = require("huggingface_hub", "hub", "dkvb.engines.hub")
        hub.snapshot_download(repo, revision=revision, local_dir=path, allow_patterns=_FILES)
        shutil.rmtree(path / ".cache", ignore_errors=True)
    return path


def load(repo: str | Path, *, revision: str | None = None, device: str = "cpu") -> Any:
    """Return the fitted classifier of a repository on the Hub, or of a folder that stands for one.

    `download` makes a model folder that can learn on.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = download(repo, Path(temporary) / "model", revision=revision)
        return read_model(folder, device).classifier


def model_card(model: str | Path | Any, *, test: tuple[Any, Any] | None = None) -> str:
    """Return the model card: encoder, classes, rows per class, accuracy and how it was measured.

    `test` (X, y) are held-out rows to measure accuracy on; without them it is what the classifier
    measures of itself, where it does.
    """
    found = read_model(model) if isinstance(model, str | Path) else Model(model, None)
    return _card(found, test)


def _card(found: Model, test: tuple[Any, Any] | None) -> str:
    facts = summarise(found.classifier)
    settings = ", ".join(f"{name}={value}" for name, value in facts["settings"].items())
    encoder = f"`{found.encoder}`" if found.encoder else "not known"
    if found.encoder_fingerprint:
        encoder += f" (fingerprint `{found.encoder_fingerprint[:16]}`)"
    counts = facts.get("examples", {})
    lines = [
        "---",
        "library_name: dkvb",
        "tags: [dkvb, continual-learning, classification]",
        "---",
        "",
        f"# {facts['classifier']}, {facts['classes']} classes",
        "",
        "| | |",
        "|---|---|",
        f"| classifier | {facts['classifier']}{f' ({settings})' if settings else ''} |",
        f"| encoder | {encoder} |",
        f"| width of embeddings | {facts['width']} |",
        f"| classes | {facts['classes']} |",
        f"| rows learned | {sum(counts.values())} |",
        f"| accuracy | {_accuracy(found.classifier, facts, test)} |",
        f"| written | {datetime.now(UTC).date().isoformat()}, dkvb {__version__} |",
        "",
        "```python",
        "from dkvb.engines import hub",
        "",
        'classifier = hub.load("USER/NAME")',
        f"classifier.predict(X)  # embeddings (n, {facts['width']}) of the encoder above",
        "```",
        "",
        "## Classes",
        "",
        "| class | rows learned |",
        "|---|---|",
        *[f"| {_cell(label)} | {n} |" for label, n in list(counts.items())[:_MOST_CLASSES]],
    ]
    if len(counts) > _MOST_CLASSES:
        lines.append(f"| … | {len(counts) - _MOST_CLASSES} more classes |")
    if facts["classifier"] == "KernelClassifier":
        lines += ["", "The model holds the embedding of every row that it has learned."]
    return "\n".join(lines) + "\n"


def _accuracy(classifier: Any, facts: dict[str, Any], test: tuple[Any, Any] | None) -> str:
    if test is not None:
        X, y = test
        return f"{100 * classifier.score(X, y):.2f} %, measured on {len(y)} held-out rows"
    if "accuracy" not in facts:
        return "not measured"
    measured, n = facts["accuracy"], sum(facts.get("examples", {}).values())
    return f"{100 * measured['mean']:.2f} %, measured by {measured['kind']} on {n} learned rows"


def _cell(label: object) -> str:
    """A label as a cell of a table: in one line, without marks that would end the cell."""
    text = "".join(c if c.isprintable() else " " for c in str(label))
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
