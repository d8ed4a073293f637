"""The one writer: changes are made one after another, and answered once they are on disk."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from dkvb.deploy.serve.problems import busy
from dkvb.deploy.store import Model, ModelFolder, RepeatedIdError
from dkvb.deploy.store.history import check_id

_MOST_CONTENTS = 10_000  # as many as a history keeps ids


@dataclass(frozen=True)
class Acknowledgement:
    """An operation that is on disk."""

    operation: str
    count: int  # of rows
    sequence: int
    operation_id: str
    repeated: bool  # whether it was on disk before this request


class Writer:
    """A model folder that this process changes."""

    def __init__(self, folder: ModelFolder, queue: int, seconds: float) -> None:
        self.folder, self.model = folder, folder.model
        self._queue, self._seconds, self._waiting = queue, seconds, 0
        self._thread = ThreadPoolExecutor(1, "writer")
        self._contents: OrderedDict[str, bytes] = OrderedDict()

    async def change(
        self,
        operation: str,
        call: Callable[[str], int],
        operation_id: str | None,
        content: str = "",
        after: Callable[[], None] = lambda: None,
    ) -> Acknowledgement:
        """Return once `call`, which gets the operation's id, has changed the folder on disk.

        `content` says what was asked for: an id that is repeated with another one is refused.
        `after` is called in the same thread, after a change and before the next.
        """
        if self._waiting >= self._queue:
            raise busy(f"{self._waiting} changes are waiting already")
        check_id(operation_id)
        name = operation_id or token_hex(8)
        self._waiting += 1
        loop = asyncio.get_running_loop()
        arguments = (operation, call, name, content, after)
        done = loop.run_in_executor(self._thread, self._change, *arguments)
        done.add_done_callback(self._one_less)
        try:
            return await asyncio.wait_for(asyncio.shield(done), self._seconds)
        except TimeoutError:
            if done.cancel():
                raise busy("too many changes are waiting", 5) from None
            raise busy(
                f"the {operation} takes longer than {self._seconds:g} seconds, and may still be "
                "made; repeat it with the same Idempotency-Key to count it once", 5,
            ) from None  # fmt: skip

    def close(self) -> None:
        """Finish what was begun, and let others write."""
        self._thread.shutdown()
        self.folder.close()

    def __len__(self) -> int:
        return self._waiting

    def _one_less(self, _: asyncio.Future[Any]) -> None:
        self._waiting -= 1

    def _change(
        self,
        operation: str,
        call: Callable[[str], int],
        name: str,
        content: str,
        after: Callable[[], None],
    ) -> Acknowledgement:
        digest = hashlib.sha256(f"{operation} {content}".encode(errors="surrogatepass")).digest()
        if self._contents.get(name, digest) != digest:
            raise RepeatedIdError(
                f"Idempotency-Key: expected one that no other request has; got {name!r}, which a "
                "request with other content had; send another key"
            )
        repeated = self.folder.is_done(operation, name)
        try:
            count = call(name)
        finally:
            self.model = self.folder.model  # what is on disk, also after an error
        self._contents[name] = digest
        if len(self._contents) > _MOST_CONTENTS:
            self._contents.popitem(last=False)
        after()
        return Acknowledgement(operation, count, sequence_of(self.model, name), name, repeated)


def sequence_of(model: Model, operation_id: str) -> int:
    """Return the sequence number of an operation."""
    found = (one for one in reversed(model.history) if one.id == operation_id)
    return next(found).sequence or 0
