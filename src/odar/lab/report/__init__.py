"""The HTML report on recordings, one self-contained file.

findings.py    the outcomes of all policies on each recording, and kinds of errors
results.py     exhibits of the main results
analyses.py    exhibits of ablations, settings, attacks, cost, errors, router quality and uncertainty
estimators.py  exhibits of retrained difficulty estimators
exhibit.py     what an exhibit is: a table with texts, and sometimes a figure
draw.py        figures as SVG
page.py        all exhibits on one page
"""
