"""`lakebed tables`; its verbs are gathered in `app`."""
