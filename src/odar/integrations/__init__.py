"""ODAR inside other people's tools. Each module is imported by the tool it extends, and needs its extra."""
