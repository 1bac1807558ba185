"""Recordings: one schema of recorded answers, its files, and where questions and imported answers come from.

What is recorded:

schema.py          items with attempts, the form of every recorded answer
header.py          everything that answers depend on; files with another header are refused
files.py           reading and writing recordings: .jsonl and .jsonl.gz; tables of other tools

Where items come from, besides `odar.lab.runs.collect`:

questions.py       the one reader of users' question files
traffic.py         requests of a log, for `odar advise`
importers.py       answers that other tools recorded
joining.py         imported answers of several models, joined into a recording
"""
