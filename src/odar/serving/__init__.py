"""The gateway: one engine behind the APIs of OpenAI and Anthropic, with keys, budgets, sessions and a dashboard."""
