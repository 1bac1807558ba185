"""Files that ship with the package: the starter questions."""
