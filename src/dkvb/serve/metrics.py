"""What Prometheus may ask: requests, seconds, rows, queues and the model."""

from __future__ import annotations

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dkvb._support.optional import require

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """Counters of one process; several processes share files in a folder."""

    def __init__(self, shared: bool) -> None:
        # Imported here: the package reads PROMETHEUS_MULTIPROC_DIR when it is imported.
        prometheus = require("prometheus_client", "serve", "dkvb serve")
        registry = prometheus.CollectorRegistry()
        self._shared, self._registry = shared, registry
        how: dict[str, Any] = {"registry": registry}
        self.requests = prometheus.Counter(
            "dkvb_requests", "Requests answered.", ("route", "method", "status"), **how
        )
        self.seconds = prometheus.Histogram(
            "dkvb_request_seconds", "Seconds to answer.", ("route",), buckets=_SECONDS, **how
        )
        self.rows = prometheus.Counter(
            "dkvb_rows", "Rows predicted, learned or forgotten.", ("operation",), **how
        )
        mode: dict[str, Any] = how | {"multiprocess_mode": "livemostrecent"}
        self.model = prometheus.Gauge("dkvb_model", "Classes, rows, sequence.", ("what",), **mode)
        self.waiting = prometheus.Gauge(
            "dkvb_waiting_requests", "Requests that wait.", ("queue",), **mode
        )
        self.accuracy = prometheus.Gauge(
            "dkvb_prequential_accuracy", "Accuracy on rows scored before they were learned.", **mode
        )

        self._answered: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        what = route, method if method in _METHODS else "other", status
        if what not in self._answered:  # looking counters up takes longer than counting
            counter = self.requests.labels(*map(str, what))
            self._answered[what] = counter, self.seconds.labels(route)
        requests, histogram = self._answered[what]
        requests.inc()
        histogram.observe(seconds)

    def text(self) -> bytes:
        """Return all of it in the text format."""
        prometheus = require("prometheus_client", "serve", "dkvb serve")
        registry = self._registry
        if self._shared:
            registry = prometheus.CollectorRegistry()
            multiprocess = require("prometheus_client.multiprocess", "serve", "dkvb serve")
            multiprocess.MultiProcessCollector(registry)
        text: bytes = prometheus.generate_latest(registry)
        return text


class Measured:
    """Middleware that counts and times requests by route, never by what stands in their path."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - start
            self._metrics.answered(route, scope["method"], status, seconds)
