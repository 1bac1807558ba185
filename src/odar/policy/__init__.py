"""Every decision, once: which agent to ask next, when to stop, and which answer to return (SPEC 4, 5, 9).

Pure: no I/O, clock or randomness. The engine, calibration and replay all call these modules. In the order in which
a question passes through them:

- `experts`: question → expert → a model for each agent; `kinds`: the form of its answer
- `session`: cached prompts of a conversation; `dial`: the value of a right answer
- `policies`: the policy by the settings; `base`: what a policy is, and fixed choices; `paper`: difficulty → Simple,
  Medium or Hard; `cascade`: is another call worth its price, by the `belief` and `cascade_values`
- `answers`: what a reply says, its final answer above all; `quantities`: text → numbers
- `equivalence`: equal answers and tool calls; `similarity`: how alike answers in prose are
- `energy`, `signals`: how sure an answer looks, by its log-probabilities and length, comparable between models
- `fusion`, `fusion_rules`: candidates → answer, for the paper's policy and fixed choices
"""
