"""The HTTP APIs that the gateway speaks: OpenAI chat completions and responses, Anthropic messages."""
