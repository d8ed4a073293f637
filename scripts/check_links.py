"""Check every link of the built site: python scripts/check_links.py site

Internal links and their anchors must exist. Nothing is fetched: of external links only the form is
checked, and pictures, scripts and styles must be files of the site.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "src")}


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[tuple[str, bool]] = []  # the address, and whether it is loaded
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if not value:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            elif (tag, name) == ("a", "href") or (tag, name) in _LOADED:
                self.links.append((value, (tag, name) in _LOADED))


def broken(site: Path) -> Iterator[str]:
    """Yield one line for each link that leads nowhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for link, loaded in page.links:
            problem = _problem(site, path, pages, link, loaded)
            if problem:
                yield f"{path.relative_to(site)}: {link}: {problem}"


def _problem(site: Path, path: Path, pages: dict[Path, Page], link: str, loaded: bool) -> str:
    parts = urlsplit(link)
    if parts.scheme in ("mailto", "data"):
        return ""
    if parts.scheme or parts.netloc:
        if loaded:
            return "loaded from elsewhere"
        well_formed = parts.scheme == "https" and "." in parts.netloc and " " not in link
        local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
        return "" if well_formed or local else "expected https://host/path"
    if path.name == "404.html" and parts.path.startswith("/"):
        target = site / unquote(parts.path).lstrip("/")
    else:
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    anchor = unquote(parts.fragment)
    if anchor and anchor not in pages[target].anchors and anchor != "__skip":
        return "no such anchor"
    return ""


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/check_links.py SITE")
    site = Path(sys.argv[1]).resolve()
    found = list(broken(site))
    if found:
        sys.exit("\n".join([f"{len(found)} broken links:", *found]))
    print(f"no broken link in {len(list(site.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
