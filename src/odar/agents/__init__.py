"""Decision → candidates: prompts, the two agents, energies, deadlines and the ledger."""
