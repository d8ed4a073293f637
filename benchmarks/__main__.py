"""`python -m benchmarks MODE`, for one of cpu, gpu, growth, memory, memory-size,
memory-latency, memory-accuracy, imagenet, small, kernel, multi-label, views, serve and engines."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.problem import SIZES

OUT = Path("benchmark-output")
KERNEL_SECTIONS = ["accuracy", "quality", "speed"]
KERNEL_METHODS = ["kernel", "kernel, keys", "ranpac", "slda"]
GROWTH_SIZES = ["64x1024", "256x4096"]
SERVED = ["kernel", "start"]
ENGINES = ["spark", "ray", "dask"]
KEEPS = ["examples", "sums"]
VIEW_VARIANTS = ["plain", "flip", "layers", "both"]


def _numbers(text: str) -> tuple[int, ...]:
    """Whole numbers between commas."""
    return tuple(int(part.replace("_", "")) for part in text.split(","))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    modes = parser.add_subparsers(dest="mode")

    cpu = modes.add_parser(
        "cpu", help="every operation against the package on PyPI and plain torch"
    )
    cpu.add_argument("--sizes", nargs="+", choices=SIZES, default=["paper", "64x1024"])
    cpu.add_argument("--repeats", type=int, default=9, help="at most; long ones run 3 times")
    cpu.add_argument("--anyway", action="store_true", help="print ratios on a busy machine, too")
    cpu.add_argument("--no-memory", action="store_true", help="skip the peak memory of each")

    gpu = modes.add_parser("gpu", help="the paper's CIFAR-10 experiment on one CUDA card")
    for name, what in (("train", "to learn"), ("test", "to test"), ("keys", "to fit keys")):
        gpu.add_argument(f"--{name}", type=Path, required=True, help=f".npz with x and y, {what}")
    gpu.add_argument("--device", default="cuda")
    gpu.add_argument("--quick", action="store_true", help="a twentieth of the epochs")

    growth = modes.add_parser("growth", help="time when n, codebooks, pairs, classes are doubled")
    growth.add_argument("--size", nargs="+", choices=GROWTH_SIZES, default=GROWTH_SIZES)
    growth.add_argument("--plot", type=Path, default=OUT / "growth.png")
    growth.add_argument("--anyway", action="store_true", help="on a busy machine, too")

    memory = modes.add_parser("memory", help="codes of a large memory map in little memory")
    memory.add_argument("--rows", type=int, default=1_000_000)
    memory.add_argument("--sizes", nargs="+", choices=SIZES, default=["64x1024"])
    memory.add_argument("--folder", type=Path, help="where 1 GB of embeddings may lie for a while")

    size = modes.add_parser("memory-size", help="a kernel classifier's times as it learns more")
    size.add_argument(
        "--data", type=Path, help=".npz, or folder of train*.npz; made up unless given"
    )
    size.add_argument("--sizes", type=_numbers, default=(), help="rows, as 5000,50000")
    size.add_argument("--keep", nargs="+", choices=KEEPS, default=KEEPS)
    size.add_argument("--folder", type=Path, help="where rows may lie for a while: 8 GB a million")

    latency = modes.add_parser("memory-latency", help="predictions while others learn")
    latency.add_argument("--data", type=Path, help=".npz, or folder of train*.npz")
    latency.add_argument("--rows", type=int, default=30_000, help="learned before")
    latency.add_argument("--seconds", type=float, default=60.0)
    latency.add_argument("--port", type=int, default=8765)
    latency.add_argument("--keep", nargs="+", choices=KEEPS, default=["examples"])

    accuracy = modes.add_parser("memory-accuracy", help="examples and sums, class-incremental")
    accuracy.add_argument("--data", type=Path, required=True, help="folder of data sets")
    accuracy.add_argument("--only", nargs="+", default=[], help="parts of the names of problems")

    imagenet = modes.add_parser("imagenet", help="ImageNet's shape on one machine, synthetic")
    imagenet.add_argument("--device", default="cuda")
    imagenet.add_argument("--rows", type=int, default=1_281_167)
    imagenet.add_argument("--key-rows", type=int, default=50_000)
    imagenet.add_argument("--key-epochs", type=int, default=10)
    imagenet.add_argument("--epochs", type=int, default=20, help="of SGD a task; 0 for none")
    imagenet.add_argument("--folder", type=Path, help="where 2 GB may lie for a while (CPU)")

    small = modes.add_parser("small", help="accuracy on streams of 5 to 60 rows per class")
    small.add_argument("--data", type=Path, help="folder of embeddings; bundled rows unless given")
    small.add_argument("--rows", type=int, nargs="+", help="rows per class")
    small.add_argument("--draws", type=int, default=5)
    small.add_argument("--only", nargs="+", default=[], help="methods; all unless given")

    kernel = modes.add_parser("kernel", help="the kernel classifier: accuracy, quality, speed")
    kernel.add_argument("--data", type=Path, required=True, help="folder of data sets")
    kernel.add_argument("--device", default="cpu")
    kernel.add_argument("--only", nargs="+", choices=KERNEL_SECTIONS, default=KERNEL_SECTIONS)
    kernel.add_argument("--seeds", type=int, default=3)
    kernel.add_argument("--methods", nargs="+", choices=KERNEL_METHODS, default=KERNEL_METHODS)
    kernel.add_argument("--whole", action="store_true", help="all rows on a CPU too")

    labels = modes.add_parser("multi-label", help="sets of labels, beside logistic regression")
    for name, what in (("train", "to learn"), ("test", "to test")):
        labels.add_argument(
            f"--{name}", type=Path, required=True, help=f".npz with x and y (n, L), {what}"
        )
    labels.add_argument("--rows", type=int, help="the first so many to learn; all unless given")

    views = modes.add_parser("views", help="mirrored views and further layers of an encoder")
    views.add_argument("--data", required=True, help="labelled images, with splits train and test")
    views.add_argument("--encoder", default="efficientnet_lite0")
    views.add_argument("--train", type=int, default=1_500, help="images to learn")
    views.add_argument("--test", type=int, default=750, help="images to test")
    views.add_argument("--variants", nargs="+", choices=VIEW_VARIANTS, default=VIEW_VARIANTS)
    views.add_argument(
        "--cache", type=Path, help="folder of embeddings; ~/.cache/dkvb unless given"
    )
    views.add_argument("--device", default="cpu")

    serve = modes.add_parser("serve", help="dkvb serve under load, beside a bare FastAPI route")
    serve.add_argument("--only", nargs="+", choices=SERVED, default=SERVED, help="models")
    serve.add_argument("--rows", type=int, default=10_000, help="learned before")
    serve.add_argument("--clients", type=int, default=16)
    serve.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    serve.add_argument("--port", type=int, default=8765)

    engines = modes.add_parser("engines", help="Spark, Ray and Dask; make test-engines")
    engines.add_argument("--rows", type=int, default=200_000)
    engines.add_argument("--width", type=int, default=384)
    engines.add_argument("--only", nargs="+", choices=ENGINES, default=ENGINES)

    for mode in modes.choices.values():
        mode.add_argument("--out", type=Path, default=OUT / "results.jsonl", help="JSON lines")

    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] not in (*modes.choices, "-h", "--help"):
        arguments = ["cpu", *arguments]
    given = parser.parse_args(arguments)
    # Imported here, since each mode needs packages that the others do not.
    if given.mode == "cpu":
        from benchmarks.cpu import run as run_cpu

        sizes = [SIZES[name] for name in given.sizes]
        return run_cpu(sizes, given.out, given.repeats, not given.no_memory, given.anyway)
    if given.mode == "gpu":
        from benchmarks.gpu import QUICK, Settings
        from benchmarks.gpu import run as run_gpu

        settings = Settings(device=given.device)
        if given.quick:
            settings = replace(
                settings,
                epochs=settings.epochs // QUICK,
                key_epochs=max(1, settings.key_epochs // QUICK),
            )
        files = (given.train, given.test, given.keys)
        return run_gpu(settings, *files, given.out, given.quick)
    if given.mode == "growth":
        from benchmarks.growth import run as run_growth

        return run_growth(given.out, given.plot, given.size, given.anyway)
    if given.mode == "memory-size":
        from benchmarks.memory_size import SIZES as ROWS
        from benchmarks.memory_size import run as run_size

        keeps = tuple(given.keep)
        return run_size(given.out, given.data, given.sizes or ROWS, keeps, given.folder)
    if given.mode == "memory-latency":
        from benchmarks.memory_latency import run as run_latency

        return run_latency(
            given.out, given.data, given.rows, given.seconds, given.port, tuple(given.keep)
        )
    if given.mode == "memory-accuracy":
        from benchmarks.memory_accuracy import run as run_accuracy

        return run_accuracy(given.out, given.data, given.only)
    if given.mode == "imagenet":
        from benchmarks.imagenet import Settings as Shape
        from benchmarks.imagenet import run as run_imagenet

        shape = Shape(
            given.device,
            given.rows,
            n_key_rows=given.key_rows,
            key_epochs=given.key_epochs,
            epochs=given.epochs,
        )
        return run_imagenet(shape, given.out, given.folder)
    if given.mode == "small":
        from benchmarks.small import ROWS_PER_CLASS
        from benchmarks.small import run as run_small

        rows = tuple(given.rows or ROWS_PER_CLASS)
        return run_small(given.data, given.out, rows, given.draws, given.only)
    if given.mode == "kernel":
        from benchmarks.kernel import run as run_kernel

        return run_kernel(
            given.data,
            given.device,
            given.out,
            given.only,
            given.seeds,
            given.whole,
            given.methods,
        )
    if given.mode == "multi-label":
        from benchmarks.multi_label import run as run_multi_label

        return run_multi_label(given.train, given.test, given.rows, given.out)
    if given.mode == "views":
        from benchmarks.views import run as run_views

        rows = (given.train, given.test)
        return run_views(
            given.data, given.encoder, given.out, rows, given.variants, given.cache, given.device
        )
    if given.mode == "serve":
        from benchmarks.serve import run as run_serve

        sizes_of_load = (given.rows, given.clients, given.seconds, given.port)
        return run_serve(given.out, given.only, *sizes_of_load)
    if given.mode == "engines":
        from benchmarks.engines import run as run_engines

        return run_engines(given.rows, given.width, given.only, given.out)
    from benchmarks.memory import run as run_memory

    return run_memory(given.rows, given.sizes, given.out, given.folder)


if __name__ == "__main__":
    sys.exit(main())
