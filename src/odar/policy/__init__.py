"""Every decision, once: path, escalation, stopping, answer fusion (SPEC 4, 5). Pure: no I/O, clock or randomness.

The engine, calibration and replay all call these modules. In the order in which a question passes through them:

- `experts`: question → expert → a model for each agent
- `path`: difficulty → Simple, Medium or Hard; `target`, `certificate`: the thresholds for a mean cost or for a
  certified accuracy; `session`: the agent that continues a conversation
- `signals`, `posterior`: fast answer → difficulty, for the second choice of the path
- `answers`, `response_format`, `json_schema`: text → final answer, and its faults against the client's tools and
  format
- `cut_off`: answers that ended at the token limit
- `equivalence`, `similarity`: equal answers, and the similarity of free text; `stopping`: the end of sampling
- `energy`, `alignment`: the free energy of a candidate, comparable between models
- `rules`, `fusion`: candidates → answer, with or without log-probabilities
- `simulation`: all of it over recorded questions, as arrays (`arrays`), for calibration and replay
"""
