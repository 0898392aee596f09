"""The registry of view sets: the definitions of all that is materialized."""
