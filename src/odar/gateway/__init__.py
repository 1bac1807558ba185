"""The OpenAI-compatible API: one engine behind three protocols."""
