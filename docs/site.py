"""The parts of the documentation site that MkDocs does not do itself: pages from outside of docs/, and links that leave it.

The documents link to each other as files of the checkout. On the site the README files of the checkout are pages below project/,
and a file that is no page is named instead of linked.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "project/"
_OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/*/README.md")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z]+:|#")


def outside() -> dict[str, str]:
    """Return the pages from outside of docs/: their places on the site by those in the checkout."""
    found = (path.relative_to(ROOT).as_posix() for pattern in _OUTSIDE for path in sorted(ROOT.glob(pattern)))
    return {path: PROJECT + path for path in found}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside of docs/."""
    for path, place in outside().items():
        files.append(File.generated(config, place, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page, except in its code."""
    return rewritten(markdown, page.file.src_uri)


def rewritten(markdown: str, place: str) -> str:
    """Return the text of the page at this place of the site with links that work there."""
    return "".join(_parts(markdown, place))


def _parts(markdown: str, place: str) -> Iterator[str]:
    in_code = False
    paragraph: list[str] = []
    for line in markdown.splitlines(keepends=True):
        fence = line.lstrip().startswith("```")
        if fence or in_code or line.startswith("    "):
            yield _LINK.sub(lambda link: _link(link, place), "".join(paragraph))
            paragraph.clear()
            in_code = in_code != fence
            yield line
        else:
            paragraph.append(line)  # a link may go over two lines
    yield _LINK.sub(lambda link: _link(link, place), "".join(paragraph))


def _link(link: re.Match[str], place: str) -> str:
    picture, text, target = link.groups()
    if _ELSEWHERE.match(target):
        return link[0]
    path, hash_sign, anchor = target.partition("#")
    here = place.removeprefix(PROJECT) if place.startswith(PROJECT) else f"docs/{place}"
    found = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    if found.startswith("docs/"):
        there = found.removeprefix("docs/")
    elif found in outside():
        there = outside()[found]
    else:
        return text if found in text else f"{text} (`{found}`)"
    relative = posixpath.relpath(there, posixpath.dirname(place) or ".")
    return f"{picture}[{text}]({relative}{hash_sign}{anchor})"
