"""The HTML report on recordings, one self-contained file.

findings.py    the outcomes of all policies on each recording, and kinds of errors
results.py     exhibits of the main results
analyses.py    exhibits of ablations, settings, attacks, cost, errors, router quality and uncertainty
estimators.py  exhibits of retrained difficulty estimators
draw.py        what an exhibit is, and its figure as SVG
page.py        all exhibits on one page
"""
