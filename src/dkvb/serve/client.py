"""A client with the estimator's verbs."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

import numpy as np

from dkvb._support.optional import require

_RETRIED = (408, 425, 429, 502, 503, 504)


class ServiceError(RuntimeError):
    """What a service answered in place of a result."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {problem.get('detail', 'no detail')}")
        self.status, self.problem = status, problem


class Client:
    """Teach and ask the model of a `dkvb serve`.

    A change is sent with an idempotency key and repeated where the connection fails or the service
    is busy: it counts once, whatever happens in between.

    Parameters
    ----------
    url : str
        Address of the service, such as "http://127.0.0.1:8000".
    token : str, optional
        The service's token.
    timeout : float
        Seconds to wait for an answer.
    retries : int
        How often to repeat a request that was not answered.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 150.0, retries: int = 5
    ) -> None:
        httpx = require("httpx", "serve", "dkvb.client")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout)
        self._broken, self._retries = httpx.TransportError, retries

    # ------------------------------------------------------------------------------------- asking
    def predict(self, X: Any = None, **items: Any) -> np.ndarray[Any, Any]:
        """Return the label (n,) of embeddings X (n, m), or of `images=` (paths or bytes) or
        `texts=`."""
        return np.array([one["label"] for one in self.answers(X, **items)])

    def answers(
        self,
        X: Any = None,
        *,
        images: Iterable[str | Path | bytes] | None = None,
        texts: Iterable[str] | None = None,
        top: int | None = None,
        remember: bool = False,
        explain: bool = False,
    ) -> list[dict[str, Any]]:
        """Return label, probability, runner-up and novelty of each row, and what else is asked."""
        query = {"top": top, "remember": remember or None, "explain": explain or None}
        body = _body(X, images, texts, None)
        found = self._request("POST", "/v1/predict", query, body)
        predictions: list[dict[str, Any]] = found["predictions"]
        return predictions

    def classes(self) -> dict[Any, int]:
        """Return how many rows of each class were learned, by label."""
        return {one["label"]: one["count"] for one in self._get("/v1/classes")["classes"]}

    def quality(self) -> dict[str, Any]:
        """Return accuracy and confusion by leave-one-out, and prequential accuracy."""
        return self._get("/v1/quality")

    def suspects(self, n: int = 20) -> list[dict[str, Any]]:
        """Return learned rows whose label the others contradict."""
        found: list[dict[str, Any]] = self._get("/v1/suspects", n=n)["suspects"]
        return found

    def suggest(self, X: Any, n: int) -> list[int]:
        """Return the positions of the n rows in X (k, m) to label next."""
        found = self._request("POST", "/v1/suggestions", {"n": n}, _body(X, None, None, None))
        return [one["row"] for one in found["suggestions"]]

    def history(self) -> list[dict[str, Any]]:
        """Return what was done to the model."""
        found: list[dict[str, Any]] = self._get("/v1/history", n=10_000)["history"]
        return found

    def model(self) -> dict[str, Any]:
        """Return what the service serves."""
        return self._get("/v1/model")

    def export(self, path: str | Path, format: str = "safetensors") -> None:
        """Write the model to a file: "safetensors" or "onnx"."""
        content = self._send("GET", "/v1/export", {"format": format}, {}, None).content
        Path(path).write_bytes(content)

    # ----------------------------------------------------------------------------------- changing
    def learn(
        self,
        X: Any = None,
        y: Any = None,
        *,
        images: Iterable[str | Path | bytes] | None = None,
        texts: Iterable[str] | None = None,
        prediction_ids: Iterable[str] | None = None,
        ids: Iterable[Any] | None = None,
        source: str | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Learn rows with labels y: one for each, or one for all; return the acknowledgement."""
        named = {
            "labels": _labels(y),
            "ids": None if ids is None else _plain(ids),
            "source": source,
        }
        body = _body(X, images, texts, prediction_ids, **named)
        return self._change("/v1/learn", body, key)

    def forget(
        self,
        *classes: Any,
        ids: Iterable[Any] | None = None,
        source: str | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Forget classes, the rows of some ids or of a source; final."""
        content = {
            "classes": _plain(classes) or None,
            "ids": None if ids is None else _plain(ids),
            "source": source,
            "confirm": True,
        }
        return self._change("/v1/forget", _json(content), key)

    def forget_samples(self, X: Any, y: Any, *, key: str | None = None) -> dict[str, Any]:
        """Forget embeddings X (n, m) that were learned with labels y (n,)."""
        content = {"embeddings": np.asarray(X).tolist(), "labels": _plain(y), "confirm": True}
        return self._change("/v1/forget", _json(content), key)

    def relabel(
        self,
        X: Any = None,
        y_old: Any = None,
        y_new: Any = None,
        *,
        ids: Iterable[Any] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Give rows that were learned with labels y_old, or rows of some ids, the labels y_new."""
        content = {
            "embeddings": None if X is None else np.asarray(X).tolist(),
            "old_labels": None if y_old is None else _labels(y_old),
            "labels": _labels(y_new),
            "ids": None if ids is None else _plain(ids),
        }
        return self._change("/v1/relabel", _json(content), key)

    def rename(self, label: Any, new_label: Any, *, key: str | None = None) -> dict[str, Any]:
        """Give a class another name."""
        return self._change("/v1/rename", _json({"label": label, "new_label": new_label}), key)

    def merge_classes(
        self, labels: Iterable[Any], into: Any, *, key: str | None = None
    ) -> dict[str, Any]:
        """Make one class of several."""
        return self._change("/v1/merge", _json({"labels": _plain(labels), "into": into}), key)

    def undo(self, sequence: int | None = None, *, key: str | None = None) -> dict[str, Any]:
        """Undo the last learn, relabel, rename or merge."""
        return self._change("/v1/undo", _json({"sequence": sequence}), key)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------ requests
    def _get(self, path: str, **query: Any) -> dict[str, Any]:
        return self._request("GET", path, query, {})

    def _change(self, path: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        return self._request("POST", path, {}, body, key or token_hex(16))

    def _request(
        self, method: str, path: str, query: Any, body: dict[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        found: dict[str, Any] = self._send(method, path, query, body, key).json()
        return found

    def _send(self, method: str, path: str, query: Any, body: Any, key: str | None) -> Any:
        """Send a request, again where that is safe: it asks, or has a key."""
        query = {name: value for name, value in query.items() if value is not None}
        headers = {**body.get("headers", {}), **({} if key is None else {"Idempotency-Key": key})}
        rest = {name: value for name, value in body.items() if name != "headers"}
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                answer = self._http.request(method, path, params=query, headers=headers, **rest)
            except self._broken:
                if last:
                    raise
            else:
                if answer.status_code < 400:
                    return answer
                if last or answer.status_code not in _RETRIED:
                    raise ServiceError(answer.status_code, _problem(answer))
            time.sleep(min(5.0, 0.1 * 2**attempt))
        raise AssertionError("unreachable")


def _body(X: Any, images: Any, texts: Any, prediction_ids: Any, **named: Any) -> dict[str, Any]:
    """What httpx sends: npy for embeddings, multipart for images, JSON for the rest."""
    kinds = {"X": X, "images": images, "texts": texts, "prediction_ids": prediction_ids}
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"expected exactly one of {', '.join(kinds)}; got {given or 'none'}")
    named = {name: value for name, value in named.items() if value is not None}
    if X is not None and named:
        return _json({"embeddings": np.asarray(X).tolist(), **named})
    if X is not None:
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(X), allow_pickle=False)
        return {"content": buffer.getvalue(), "headers": {"Content-Type": "application/x-npy"}}
    if images is not None:
        files = [("image", one if isinstance(one, bytes) else Path(one).read_bytes())
                 for one in images]  # fmt: skip
        fields = {
            "label": named.get("labels"),
            "id": named.get("ids"),
            "source": named.get("source"),
        }
        data = {name: value for name, value in fields.items() if value is not None}
        return {"files": [(name, ("image", content)) for name, content in files], "data": data}
    rows = {"texts": list(texts)} if texts is not None else {"prediction_ids": list(prediction_ids)}
    return _json({**rows, **named})


def _json(content: dict[str, Any]) -> dict[str, Any]:
    return {"json": {name: value for name, value in content.items() if value is not None}}


def _labels(y: Any) -> list[Any]:
    one = isinstance(y, str | int) or np.ndim(y) == 0
    return _plain([y] if one else y)


def _plain(values: Iterable[Any]) -> list[Any]:
    return [one.item() if isinstance(one, np.generic) else one for one in values]


def _problem(answer: Any) -> Mapping[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {"detail": answer.text[:200]}
    return found if isinstance(found, dict) else {"detail": str(found)[:200]}
