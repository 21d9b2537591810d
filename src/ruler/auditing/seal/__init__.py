"""What makes a saved report evidence: a manifest of all hashes, a signature, and the checks of `ruler verify`."""
