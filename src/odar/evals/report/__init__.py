"""The report: everything a panel shows, on one page that stands by itself."""
