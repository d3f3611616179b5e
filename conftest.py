"""Only what pytest allows nowhere else: the plugin that runs pytest inside tests."""

pytest_plugins = ["pytester"]
