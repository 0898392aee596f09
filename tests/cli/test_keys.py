"""Keys on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.parts import Cli


def test_keys_create_says_that_the_first_key_closes_running_servers(
    cli: Cli, weather: Path
) -> None:
    assert "anyone who can reach a server" in cli("keys", "list").err
    first = cli("keys", "create", "boss", "--role", "admin")
    assert first.code == 0
    assert "running ones too, require a key from every caller within 5 seconds" in first.err
    second = cli("keys", "create", "reader", "--role", "read", "--json")
    assert (second.code, second.err) == (0, "")
    assert second.json["key"].startswith("lakebed_")
