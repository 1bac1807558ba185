"""Recorded answers: one schema, one journal, one collector; in this process or on Ray.

schema.py          items with attempts, the form of every recorded answer
header.py          everything that answers depend on; files with another header are refused
files.py           reading and writing: .jsonl and .jsonl.gz
collect.py         every agent on every item
questions.py       the one reader of users' question files
batch.py           the work of `odar batch`
journal.py         rows on disk: survive kill -9, torn lines and a second process
executor.py        items → an engine → the journal, within rate limits and budget
work.py            work that needs an engine: maximum needs, replies kept in a memo
limits.py          requests and tokens in any 60 seconds, by provider
cluster.py         the same on many machines (Ray)
importers.py       answers that other tools recorded
joining.py         imported answers of several models, joined into items
"""
