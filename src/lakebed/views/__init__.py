"""What is materialized: the registry of view sets."""
