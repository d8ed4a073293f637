"""`dkvb serve`: teach a model over HTTP."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dkvb.cli._rows import AllowDownload
from dkvb.cli._shared import Device, Quiet, available, clear_errors, printable, short_warnings
from dkvb.cli.model import Where

_LONGEST_TOKEN = 4096


def serve(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Folder of a model; a new one with --encoder.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than 127.0.0.1 need --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients must send.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes: one writes, the others read.")
    ] = 1,
    encoder: Annotated[
        str | None,
        typer.Option(help="Encoder for a new model; default: the one stored in the model."),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(min=1, help="Width of a new model without encoder."),
    ] = None,
    allow_download: AllowDownload = False,
    keep_images: Annotated[
        bool, typer.Option("--keep-images", help="Keep small pictures of learned images.")
    ] = False,
    max_body: Annotated[int, typer.Option(min=1, help="Megabytes of a body.")] = 64,
    max_pixels: Annotated[int, typer.Option(min=1, help="Megapixels of an image.")] = 50,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of a request.")] = 10_000,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Requests that wait; more are answered 503.")
    ] = 256,
    body_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds until a whole body has come.")
    ] = 30.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to answer a request.")] = 120.0,
    device: Where = Device.cpu,
    quiet: Quiet = False,
) -> None:
    """Serve a model over HTTP, and a page at / to teach it; Ctrl-C ends it."""
    with clear_errors(), short_warnings():
        from dkvb._support.optional import require

        for package in ("fastapi", "uvicorn", "python_multipart", "httpx"):
            require(package, "serve", "dkvb serve")
        from dkvb.serve import Limits, Settings
        from dkvb.serve import serve as run

        logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
        limits = Limits(
            max_body << 20, max_pixels * 1_000_000, max_rows, max_queue, body_timeout, timeout
        )
        settings = Settings(
            model,
            host,
            port,
            None if token_file is None else _token(token_file),
            workers,
            encoder,
            width,
            allow_download,
            keep_images,
            available(device),
            limits,
        )

        def ready(started: Any) -> None:
            if not quiet:
                typer.echo(printable(f"serving {model} at {started.url}"))

        for number in (signal.SIGINT, signal.SIGTERM):  # after what was begun is finished
            signal.signal(number, lambda *_: sys.exit(0))
        run(settings, ready)


def _token(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"--token-file: expected a file; found none at {path}")
    token = path.read_text(encoding="utf-8").strip()
    if not 16 <= len(token) <= _LONGEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"--token-file: expected a token of 16 to {_LONGEST_TOKEN} ASCII characters in {path}; "
            f"got {len(token)}; make one with: python -c 'import secrets; "
            "print(secrets.token_urlsafe(32))'"
        )
    return token
