"""Contract suites that every entry of a table passes, ours and those of other packages: one file per kind."""
