"""What ODAR keeps of each question: one trace, made at its end, and stored in SQLite or PostgreSQL.

| module | holds |
|---|---|
| `trace` | makes the trace of a question from what the engine knows at its end |
| `record` | the trace with its HTTP request, as one JSON document |
| `story` | the document in plain words |
| `database` | every table, also those of `odar.serving`: keys, spending, reservations, responses, sessions |
| `writer` | writes records in a thread of its own |
| `archive`, `filter` | read, search, export and mark stored traces |
| `overview` | sums over traces: costs, savings, paths, latencies |
| `retention` | deletes old traces |
| `observations` | questions that the cascade and slow answered, for comparison |
| `confidence_sequence` | the interval of how much more often the cascade differs from slow |
| `cut_off` | answers that ended at their token limit |

`odar.telemetry` is something else: it exports the steps of a question as OpenTelemetry spans while they happen.
"""
