"""ODAR inside other people's tools."""
