"""Text → d(x): how hard a query looks before any model has seen it. Pure."""
