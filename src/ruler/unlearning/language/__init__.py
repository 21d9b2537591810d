"""Methods for language models, one file each."""
