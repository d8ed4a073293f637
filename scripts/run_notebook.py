"""Run a notebook of examples/notebooks and write it with its results as Markdown.

    python scripts/run_notebook.py examples/notebooks/NAME.py build/notebooks

writes NAME.md with its pictures, and NAME.ipynb. An error in a cell is an error of the command.
"""

import os
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

CELL_SECONDS = 300


def run(source: Path, out: Path) -> Path:
    """Execute the notebook, write it to the folder, and return the path of the page."""
    notebook = jupytext.read(source)
    client = NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3")
    client.execute(env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"})
    out.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, out / f"{source.stem}.ipynb")
    names = {"unique_key": source.stem, "output_files_dir": f"{source.stem}-files"}
    text, resources = MarkdownExporter().from_notebook_node(notebook, resources=names)
    for name, content in resources["outputs"].items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(content)
    title = text.partition("# ")[2].partition("\n")[0]
    page = out / f"{source.stem}.md"
    page.write_text(text.replace("![png]", f"![{title}]"), encoding="utf-8")
    return page


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python scripts/run_notebook.py SOURCE OUT")
    print(run(Path(sys.argv[1]), Path(sys.argv[2])))
