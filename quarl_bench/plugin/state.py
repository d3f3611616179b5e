"""What the plugin keeps on pytest's config object."""

from typing import Any

import pytest

from quarl_bench.plugin.options import Settings

SETTINGS = pytest.StashKey[Settings]()
CATALOG = pytest.StashKey[tuple[Any, ...]]()
