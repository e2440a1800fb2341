"""Lets `python -m ratoon` stand for the `ratoon` script."""

import sys

from ratoon.cli.main import main

sys.exit(main())
