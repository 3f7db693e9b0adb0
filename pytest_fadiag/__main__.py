"""``python -m pytest_fadiag`` is the command ``fadiag``."""

from __future__ import annotations

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
