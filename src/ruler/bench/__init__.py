"""Against the peers, side by side in one run: what a user would pick instead, on the same data and machine."""
