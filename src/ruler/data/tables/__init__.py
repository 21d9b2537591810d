"""Tables: named or your own, encoded, verified and split."""
