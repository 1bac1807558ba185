"""Every decision, once: path, escalation, stopping, answer fusion (SPEC 4, 5). Pure: no I/O, clock or randomness.

The engine, calibration and replay all call these modules. In the order in which a question meets them:

- `experts`: question → expert → a model for each agent
- `path`: difficulty → Simple, Medium or Hard; `posterior`: the difficulty after the fast answer was seen
- `answers`, `response_format`: the final answer in a model's text, and whether it has the form a client asked for
- `equivalence`: which answers are the same; `stopping`: when enough samples have been taken
- `energy`, `alignment`: the free energy of a candidate, comparable between models
- `rules`, `fusion`: which candidate wins, with or without log-probabilities
- `simulation`: all of it over recorded questions, as arrays (`arrays`), for calibration and replay
"""
