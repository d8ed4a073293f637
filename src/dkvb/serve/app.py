"""The application: routes, and what every request passes through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp

import dkvb
from dkvb.serve import problems
from dkvb.serve.followers import Follower, Forwarding
from dkvb.serve.limits import BodyLimits
from dkvb.serve.metrics import Measured
from dkvb.serve.routes import (
    forgetting,
    health,
    label_studio,
    learning,
    model,
    naming,
    open_inference,
    page,
    predicting,
)
from dkvb.serve.security import Guard
from dkvb.serve.service import Service

ROUTERS = (
    *(predicting, learning, forgetting, naming, model, health),
    *(open_inference, label_studio, page),
)


def make_app(service: Service, follower: Follower | None = None, writer: str = "") -> ASGIApp:
    """Return the application of one process; `writer` is the writer's socket, for a reader."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        following = None if follower is None else asyncio.create_task(follower.run())
        yield
        if following is not None:
            following.cancel()

    app = FastAPI(
        title="dkvb serve",
        version=dkvb.__version__,
        description="Teach a classifier over HTTP: see docs/how-to/serve.md.",
        lifespan=lifespan,
        docs_url=None,  # that page loads scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    for topic in ROUTERS:
        app.include_router(topic.router)
    problems.install(app)
    # From the inside out, around FastAPI's own layers.
    layered: ASGIApp = predicting.Direct(app)
    if follower is not None:
        layered = Forwarding(layered, writer, service.limits.seconds)
    layered = BodyLimits(layered, service.limits)
    layered = Guard(layered, service.settings.token)
    return Measured(layered, service.metrics)
