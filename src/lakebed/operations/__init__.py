"""Administrative operations: each is declared once, and every door derives from the declaration.

To add one, write a function under `operation` in `lookups` or `retirement`, name it in the module's
``__all__``, and test it. `lakebed.admin`, Flight actions and, with ``in_sql``, SQL then have it.
Its body carries out plans through ``lake.retirement``, which has the guard.
"""
