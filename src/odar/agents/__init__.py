"""Plan → candidates: prompts, concurrency, deadlines and the ledger."""
