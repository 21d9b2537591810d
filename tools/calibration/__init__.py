"""The calibration study: worlds in which the truth is known, audited as a user would, and the tables made of them."""
