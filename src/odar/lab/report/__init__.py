"""The HTML report on recordings, one self-contained file."""
