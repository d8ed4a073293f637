"""Hooks of the documentation site: pages made from code, and links to files of the repository."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "build" / "notebooks"
_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the command line, the changelog, notebooks, and files that pages link to."""
    made = {
        "reference/command-line.md": _command_line(),
        "contributing/changelog.md": _changelog(),
    }
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    for source in sorted((ROOT / "examples" / "notebooks").glob("*.py")):
        for name, path in _notebook(source).items():
            files.append(File.generated(config, f"get-started/{name}", abs_src_path=str(path)))
    linked = {
        path
        for page in files.documentation_pages()
        for link in _LINK.findall(page.content_string)
        if (path := _outside(page, link))
    }
    for path in sorted(linked):
        source = str(ROOT / path)
        files.append(File.generated(config, f"repository/{path}", abs_src_path=source))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave the documentation to the site's copies of the files."""
    name = Path(page.file.src_uri).stem
    if (ROOT / "examples" / "notebooks" / f"{name}.py").is_file():
        markdown += f"\n[Download the notebook]({name}.ipynb).\n"

    def replaced(found: re.Match[str]) -> str:
        path = _outside(page.file, found[1])
        folder = posixpath.dirname(page.file.src_uri)
        return posixpath.relpath(f"repository/{path}", folder) if path else found[1]

    return _LINK.sub(replaced, markdown)


def _outside(page: File, link: str) -> str:
    """Return a link's path in the repository if it leads out of docs/ to a file; else nothing."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.src_uri), link))
    return path if not path.startswith("docs/") and (ROOT / path).is_file() else ""


def _notebook(source: Path) -> dict[str, Path]:
    """Return the page of a notebook that was run, the notebook, and its pictures."""
    page = NOTEBOOKS / f"{source.stem}.md"
    if not page.is_file():
        raise PluginError(f"{page}: the notebook was not run; build the site with `make docs`")
    pictures = sorted((NOTEBOOKS / f"{source.stem}-files").glob("*"))
    paths = [page, page.with_suffix(".ipynb"), *pictures]
    return {path.relative_to(NOTEBOOKS).as_posix(): path for path in paths}


def _command_line() -> str:
    """Return the help of every command, as typer writes it."""
    import typer.main
    from typer.cli import get_docs_for_click

    from dkvb.cli import app

    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="dkvb")
    text: str = get_docs_for_click(obj=command, ctx=context, name="dkvb", title="Command line")
    return text


def _changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](../")
