"""d(x) and the catalogue → which path, which models. Rules only, nothing trained. Pure."""
