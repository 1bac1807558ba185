"""Recorded answers → statistics, skills and belief of a user's agents, and what pays (SPEC 9.8, 10.1).

items.py      which recorded items count, scored by labels or by the slow model's answer
fit.py        statistics, skills and weights of the belief, from some of them
compare.py    every cascade and fixed choice on items that nothing was fitted to, and the best as a calibration
guarantee.py  the cheapest dial with a bounded loss, with the test that certifies it (`odar certify`)
advice.py     the same comparison on a user's traffic, mostly without labels (`odar advise`)
"""
