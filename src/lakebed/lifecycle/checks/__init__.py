"""The parts of a check: segments, sources, tables, strays and files that were set aside."""
