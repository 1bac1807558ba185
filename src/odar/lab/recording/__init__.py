"""Recorded answers: one schema, one journal, one collector; in this process or on Ray.

What is recorded:

schema.py          items with attempts, the form of every recorded answer
header.py          everything that answers depend on; files with another header are refused
files.py           reading and writing recordings: .jsonl and .jsonl.gz

Where items come from:

questions.py       the one reader of users' question files
traffic.py         requests of a log, for `odar advise`
collect.py         every agent on every item
importers.py       answers that other tools recorded
joining.py         imported answers of several models, joined into items

How a run works, whatever its items are (`odar batch` uses it too):

executor.py        work items → work → the journal, within rate limits and budget
journal.py         rows on disk: survive kill -9, torn lines and a second process
limits.py          requests and tokens in any 60 seconds, by provider
cluster.py         work on many machines (Ray)
work.py            for work that uses an engine: the most that an item can take, replies kept in a memo
batch.py           the work of `odar batch`
"""
