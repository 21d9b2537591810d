"""Where the larger sets are published, and how a download becomes arrays."""
