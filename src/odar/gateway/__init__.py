"""HTTP gateway: one engine behind the APIs of OpenAI and Anthropic."""
