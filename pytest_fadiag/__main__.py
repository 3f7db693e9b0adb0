"""``python -m pytest_fadiag`` is ``fadiag``: without the working folder, which Python puts on the
path here.
"""

from __future__ import annotations

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
from .cli import main

sys.exit(main())
