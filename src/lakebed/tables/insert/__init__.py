"""Read and validate records, and insert their rows."""
