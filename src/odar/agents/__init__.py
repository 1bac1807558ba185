"""Stage → candidates: the agents, their prompts and calls, and what the calls cost.

- `agents`: the configured agents of an engine; each question gets its `team` from them, which makes the calls
- `ledger`: the calls of one request, and its limits of calls, money and time
- `measure`: candidates → energies and opinions → the next state
- `stream`: the answer while it is generated
- `prompts/`: the sets of prompts, one file per step
"""
