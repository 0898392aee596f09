"""`python -m lakebed` is the `lakebed` command."""

from lakebed.cli.main import main

main()
