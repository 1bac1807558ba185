"""Many items of work, each done once and paid once: `executor.run` is the whole of it.

journal.py     what is done, on disk: survives kill -9, torn lines, a second process
bounds.py      what an item may take at the most, and what it took
limits.py      requests and tokens in any 60 seconds, by provider
executor.py    items → an engine → the journal, within the limits and the budget
cluster.py     the engine on many machines (Ray); the local one is in executor.py
opening.py     work that needs an engine in each process
questions.py   what `odar batch` reads
answering.py   what it does with each: work for an engine
replies.py     replies that an unfinished item has paid for already
"""
