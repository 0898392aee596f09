"""A browser of somebody: it keeps its cookie, and sends forms with the token that they had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

from lakebed.web.sessions import COOKIE
from tests.serve.parts import Answer, Served
from tests.web.parts import Page, see

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(slots=True)
class Browser:
    """Loads pages and sends forms."""

    served: Served
    headers: Mapping[str, str] = field(default_factory=dict)
    word: str = ""
    token: str = ""

    def ask(self, path: str) -> Answer:
        """A page as it comes."""
        answer = self.served.ask("GET", path, headers=self._headers())
        if "set-cookie" in answer.headers:
            self.word = SimpleCookie(answer.headers["set-cookie"])[COOKIE].value
        return answer

    def load(self, path: str, status: int = 200) -> Page:
        """A page, whose token is kept."""
        return self._keep(see(self.ask(path), status))

    def data(self, path: str) -> Any:
        """A page's data."""
        return self.ask(f"{path}.json").json()

    def send(self, path: str, **fields: str) -> Answer:
        """A form with the last token."""
        body = urlencode({"token": self.token} | fields).encode()
        return self.served.ask("POST", path, body, FORM | self._headers())

    def send_and_see(self, path: str, **fields: str) -> Page:
        """The page that says what came of a form."""
        answer = self.send(path, **fields)
        assert answer.status == 303, answer.body.decode()
        return self.load(answer.headers["location"])

    def send_in_vain(self, path: str, status: int, **fields: str) -> Page:
        """The page that says why a form was refused."""
        return self._keep(see(self.send(path, **fields), status))

    def _keep(self, page: Page) -> Page:
        for each in page.all("input", name="token"):
            self.token = each["value"] or ""
        return page

    def _headers(self) -> dict[str, str]:
        return dict(self.headers) | ({"Cookie": f"{COOKIE}={self.word}"} if self.word else {})
