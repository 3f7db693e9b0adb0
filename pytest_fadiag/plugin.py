"""The pytest plugin's hooks and options."""

from __future__ import annotations
