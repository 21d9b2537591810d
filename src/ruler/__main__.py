"""`python -m ruler` is `ruler`."""

from ruler.cli import main

main()
