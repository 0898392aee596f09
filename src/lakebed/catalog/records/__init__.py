"""The rows of each catalog table: one module per table."""
