"""Methods of others for classifiers, one file each."""
