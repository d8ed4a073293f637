"""Solving beside predictions: nobody who asks waits for it."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from typing import Any

import numpy as np

log = logging.getLogger(__name__)


class Solver:
    """Which classifier answers, while the latest one is solved for or tuned in another thread.

    A row or a few are folded in at once. After many, the classifier that answered before goes on
    answering until the new one is solved for; and when as much was learned as when settings were
    last chosen, they are chosen again beside.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "solver")
        self._tuned: Future[Any] | None = None
        self._answering: Any = None
        self._failed = False

    def settled(self, latest: Any) -> Any:
        """The latest classifier, if it answers at once; else the one that answered before."""
        if not hasattr(latest, "adopt") or not sum(latest.class_count_.values()):
            return latest
        if self._tuned is not None and self._tuned.done():
            self._take(latest, self._tuned)
        if latest.is_settled or self._failed or self._answering is None:
            self._answering = latest
        due = latest.is_tuning_due or not latest.is_settled
        if due and self._tuned is None and not self._failed:
            self._tuned = self._thread.submit(_tuned, copy(latest))
        return self._answering

    def _take(self, latest: Any, tuned: Future[Any]) -> None:
        """Let the latest classifier answer by what was found beside."""
        self._tuned = None
        try:
            latest.adopt(tuned.result())
        except Exception:  # it goes on answering as before; asking again would fail again
            self._failed = True
            log.exception("settings could not be chosen again; predictions go on with the earlier")


def _tuned(classifier: Any) -> Any:
    """A classifier with a new solution, which has prepared all that answers need."""
    classifier.tune()
    classifier.ask(np.zeros((1, classifier.n_features_in_), np.float32))
    return classifier
