"""HTTP: OTLP and records in, SQL and pages out."""
