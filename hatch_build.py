"""Refuses to build, and with that to install from source, where Lakebed does not run."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformHook(BuildHookInterface):
    """The build hook that `pip install .` runs first."""

    def initialize(self, _version: str, _build_data: dict[str, Any]) -> None:
        """Raise an error on Windows."""
        if sys.platform == "win32":
            raise SystemExit("lakebed runs on Linux and macOS, not on Windows: install it in WSL 2")
