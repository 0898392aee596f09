"""Pages as a browser gets them: what is visible of them, and where their links lead."""

from __future__ import annotations

from contextlib import AbstractContextManager
from html.parser import HTMLParser
from typing import Any

from lakebed.lake import Lake
from tests.serve.parts import Answer, Served, serving

VOID = {"meta", "link", "input", "br", "hr", "img"}


def showing(lake: Lake, **options: Any) -> AbstractContextManager[Served]:
    """Serve a lake's pages, and what they read, until the block is left."""
    return serving(lake, otlp_port=None, flight_port=None, roles=("web",), **options)


class Page(HTMLParser):
    """What a page says, its tags with their attributes, and whether every tag was closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another"

    def handle_data(self, data: str) -> None:
        self._texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._texts).split())

    @property
    def links(self) -> list[str]:
        return [attrs.get("href") or "" for tag, attrs in self.tags if tag == "a"]

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        """The attributes of every such tag."""
        return [
            attrs
            for name, attrs in self.tags
            if name == tag and all(attrs.get(key.rstrip("_")) == wanted[key] for key in wanted)
        ]


def see(answer: Answer, status: int = 200) -> Page:
    """A page that came as one, under its policy, without anything that the policy would refuse."""
    assert answer.status == status, answer.body.decode()
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = Page(answer.body.decode())
    for tag, attrs in page.tags:
        assert "style" not in attrs, f"<{tag}> has a style of its own"
        assert not [name for name in attrs if name.startswith("on")], f"<{tag}> has a script"
        assert tag != "style"
        assert tag != "script" or (attrs.get("src") or "").startswith("/static/")
    labelled = page.html.count("<label")
    fields = [a for t, a in page.tags if t in ("input", "select", "textarea")]
    named = [a for a in fields if a.get("type") != "hidden"]
    assert labelled >= len([a for a in named if "aria-label" not in a])
    assert page.all("html", lang="en")
    assert len(page.all("main")) == len(page.all("h1")) == 1
    assert "#main" in page.links
    return page
