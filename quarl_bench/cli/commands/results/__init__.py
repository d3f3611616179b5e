"""Commands on results files: one page, one file, what moved."""
