"""The `ratoon` command line: one file per command, `main.py` finds them."""
