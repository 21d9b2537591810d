"""Ways to run jobs: every executor takes jobs and leaves their rows in the store."""
