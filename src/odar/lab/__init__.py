"""For researchers: record answers once, then replay every policy on them.

recording/         items with the answers of every agent, on disk: collected or imported
runs/              the work that makes recordings and answers batches: resumable, in rates and budget, on Ray too
replay/            a recording as a table, and every policy as a walk over it
calibration/       which policy pays for a user, and the calibration file for it
report/            the HTML page of `odar eval report`
benchmarks/        public sets of questions, and how their rows become tasks
graders/           functions that score an answer, one module for each kind of answer
selection.py       which tasks of a large set are asked, in strata and folds; checks before the first call
intervals.py       a figure with its 95% interval, by the bootstrap
training.py        the learned difficulty estimator (`odar train`)
statistics.py      differences between policies, their tests, and the table of all policies
router_quality.py  APGR, CPT and AUROC: how well a score chooses the questions for the strong model
fusion_study.py    every fusion rule on the same candidates (`odar eval fuse`)
adversarial.py     questions rewritten to look harder or easier than they are
"""
