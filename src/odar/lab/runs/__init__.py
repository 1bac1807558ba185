"""Runs: a list of work items, each done and paid for once, within rates and budget; in this process or on Ray.

The engine of a run, whatever its items are:

executor.py        work items → work → the journal
journal.py         rows on disk: survive kill -9, torn lines and a second process
limits.py          what an item can take from providers; requests and tokens in any 60 seconds
cluster.py         work on many machines (Ray)

The work that ODAR does with it:

collect.py         every agent on every item, for a recording (`odar eval collect`, `calibrate`, `advise`)
batch.py           an answer to each question (`odar batch`)
"""
