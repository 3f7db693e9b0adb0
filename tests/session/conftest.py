"""Runs in this process drop the modules that they were the first to import: loaded here, they are not loaded again."""

from __future__ import annotations

import importlib
import pkgutil

import pytest_fadiag

for module in pkgutil.walk_packages(pytest_fadiag.__path__, "pytest_fadiag."):
    if ".integrations." not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
