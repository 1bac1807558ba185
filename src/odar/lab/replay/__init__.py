"""Replay of policies on recorded answers, without model calls.

table.py     a recording as a table of items and states; `walk` asks a policy in every state
states.py    evidence of many items as arrays, and a belief that remembers what it has judged
outcomes.py  what a policy gave on each item: score, cost, calls; mixtures and frontiers of policies
policies.py  ODAR, the paper's policy and the baselines by name
"""
