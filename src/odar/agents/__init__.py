"""Decision → candidates → verdict: prompts, the two agents, scoring, deadlines and the budget ledger."""
