"""View sets are declared on SQLite; in the campaign on PostgreSQL too: what differs between
catalogs is tested where they are.
"""

from __future__ import annotations

from tests.pipeline.conftest import dialect

__all__ = ["dialect"]
