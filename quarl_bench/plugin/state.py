"""What the plugin keeps on pytest's config object and in the properties of reports."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from quarl_bench.plugin.settings import Settings

SETTINGS = pytest.StashKey["Settings"]()
REGRESSION = pytest.StashKey[str]()  # what the comparison said: same, moved, mismatch, versions, no-baseline
DATADIRS = ("lazy_datadir", "original_datadir")  # fixtures that come with pytest-regressions
CATALOG = pytest.StashKey[tuple[Any, ...]]()

RECORDER = "quarl_recorder"  # the plugin that collects rows
PREFIX = "quarl_"  # of every property below
ROW = "quarl_row"  # property: the row of a judged item
CASE = "quarl_case"  # property: the id of an item of the catalog, judged or not
NOTE = "quarl_note"  # property: something the store trained or repaired
BASIS = "quarl_basis"  # property: what --quarl-shard cut the run by
VERDICT, LINE = "quarl_verdict", "quarl_line"  # properties: what remains of a row for other reports, as junit XML


def get_settings(config: pytest.Config) -> "Settings":
    """The settings of this run, read when first asked for; pytest.UsageError for values that cannot work."""
    if SETTINGS not in config.stash:
        from quarl_bench.plugin.settings import read_settings

        config.stash[SETTINGS] = read_settings(config)
    return config.stash[SETTINGS]
