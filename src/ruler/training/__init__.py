"""Model and data -> trained model. Import from the files: settings alone need no torch."""
