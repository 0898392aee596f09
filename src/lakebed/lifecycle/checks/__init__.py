"""What checks look at: segments, sources, tables, strays and files that were set aside."""
