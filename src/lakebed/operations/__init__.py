"""Administrative operations: each is declared once, and SQL, Python and Flight derive from it."""
