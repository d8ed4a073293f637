"""`dkvb learn --like` and `dkvb merge`: models of shards, and their union."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkvb.cli._items import ItemOptions
from dkvb.cli._rows import check_same_encoder, read_rows
from dkvb.cli._shared import Device, available, warn

if TYPE_CHECKING:
    from dkvb.store import ModelFolder


@contextmanager
def closing_on_error(folder: ModelFolder) -> Iterator[None]:
    """Close a folder if an error comes while it is changed."""
    try:
        yield
    except BaseException:
        folder.close()
        raise


def learn_shard(
    path: Path,
    data: str,
    like: Path,
    items: ItemOptions,
    operation_id: str,
    *,
    allow_download: bool,
    wait: float,
    device: Device,
    quiet: bool,
) -> tuple[ModelFolder, int, bool]:
    """Learn a shard in a folder of its own, and return it open, with the number of rows, and
    whether they were learned before.

    A new folder begins with the keys and settings of the model `like`; in one that is there, what
    was learned under this operation id is not learned again.
    """
    from dkvb.store import create, open_folder, read_model
    from dkvb.store.history import check_id, digest_of, entry
    from dkvb.store.layout import holds_model
    from dkvb.store.shards import LEARNING, new_like

    check_id(operation_id)
    place = available(device)
    template = read_model(like, place)
    rows = read_rows(
        data, items, labelled=True, like=template, device=place, quiet=quiet,
        allow_download=allow_download,
    )  # fmt: skip
    if not holds_model(path):
        made = new_like(template.classifier).partial_fit(rows.x, rows.y)
        first = entry("fit", len(rows.y), operation_id, digest_of(rows.x, rows.y))
        encoder = rows if rows.encoder else template
        folder = create(
            path, made, encoder=encoder.encoder, encoder_fingerprint=encoder.encoder_fingerprint,
            wait=wait, first=first,
        )  # fmt: skip
        return folder, len(rows.y), False
    folder = open_folder(path, place, wait)
    with closing_on_error(folder):
        done = next((one for one in folder.model.history if one.id == operation_id), None)
        if done is not None and done.operation in LEARNING:
            if done.digest not in (None, digest_of(rows.x, rows.y)):
                raise ValueError(
                    f"MODEL {path}: expected the rows that it learned as {operation_id!r} at "
                    f"{done.time}; --data {data} has others; give another MODEL, or another "
                    "--operation-id to add them"
                )
            return folder, done.count, True
        return folder, folder.learn(rows.x, rows.y, operation_id=operation_id), False


class ShardReader:
    """Models to be merged, read one after the other; no shard may be there twice."""

    def __init__(self, paths: list[Path], device: Device, skip_merged: bool) -> None:
        self._paths, self._place, self._skip = paths, available(device), skip_merged
        self._histories: set[str | None] = set()  # ids in own histories, of MODEL and of others
        self._known: list[Any] = []  # entries of shards, of MODEL and of others
        self._shards: list[Any] = []  # entries that are new to MODEL
        self._reference: Any = None  # a model that tells its encoder
        self.skipped: list[Path] = []

    def merge_into(self, folder: ModelFolder, operation_id: str | None) -> int:
        """Add the union of all models to a folder, and return the number of rows."""
        from dkvb.store.shards import manifest, merge_tree

        if folder.is_done("merge", operation_id):
            return folder.merge(operation_id=operation_id)
        model = folder.model
        self._histories = {one.id for one in model.history}
        self._known = list(manifest(model))
        self._reference = model if model.encoder_fingerprint else None
        classifiers = self._classifiers()
        first = next(classifiers, None)
        if first is None:
            return 0
        union = merge_tree(chain([first], classifiers))
        return folder.merge(union, shards=tuple(self._shards), operation_id=operation_id)

    def create(self, path: Path, operation_id: str | None, wait: float) -> ModelFolder:
        """Make a folder of the union of all models, and return it open."""
        from dkvb.store import check_target, create
        from dkvb.store.classifiers import total_count
        from dkvb.store.history import check_id, entry
        from dkvb.store.shards import merge_tree

        check_target(path, False)
        check_id(operation_id)
        union = merge_tree(self._classifiers())
        encoder = self._reference
        return create(
            path,
            union,
            encoder=getattr(encoder, "encoder", None),
            encoder_fingerprint=getattr(encoder, "encoder_fingerprint", None),
            wait=wait,
            first=entry("merge", total_count(union), operation_id),
            shards=tuple(self._shards),
        )

    def _classifiers(self) -> Iterator[Any]:
        from dkvb.store import read_model

        for path in self._paths:
            model = read_model(path, self._place)
            check_same_encoder(f"OTHER {path}", model, self._reference)
            if self._reference is None and (model.encoder_fingerprint or model.encoder):
                self._reference = model
            if not hasattr(model.classifier, "merge"):
                raise ValueError(
                    f"OTHER {path}: expected a KernelClassifier; got a "
                    f"{type(model.classifier).__name__}, which cannot be merged"
                )
            if self._is_new(path, model):
                yield model.classifier

    def _is_new(self, path: Path, model: Any) -> bool:
        """Note what a model has learned; an error where some of it is there already."""
        from dkvb.store.shards import RepeatedShardError, check_shards, manifest

        new = manifest(model)
        own = {one.id for one in model.history}
        known = {one.id for one in self._known}
        began_as_copy = own & self._histories and not own <= self._histories | known
        if began_as_copy and not {one.id for one in model.shards} & known:
            warn(
                f"OTHER {path} began as a copy of another one here: what was learned before that "
                "counts twice; fit each model by itself with --keys of the first"
            )
            new = tuple(one for one in new if one.id not in known)
        try:
            added = check_shards(self._known, new, f"OTHER {path}")
        except RepeatedShardError:
            if not self._skip or not {one.id for one in new} <= known:
                raise
            self.skipped.append(path)
            return False
        self._histories |= own
        self._known += added
        self._shards += added
        return True
