"""Providers: each answers a `Request` with a `Reply`, through one wire protocol or runtime."""
