"""Executors import the decoders without the rest of the program."""

from __future__ import annotations

import subprocess
import sys


def test_decoding_needs_neither_spark_nor_sql() -> None:
    program = """
import sys
from lakebed.decode import logs, metrics, spans
assert not {"pyspark", "sqlalchemy", "ptars"} & set(sys.modules), "at import"
for module in (logs, metrics, spans):
    module.decode([])
assert not {"pyspark", "sqlalchemy"} & set(sys.modules), "when used"
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
