"""Text in, difficulty out (SPEC 2, 5.11): pure, lazy, numpy at heart.

text        clean, LaTeX masked, terms          features    φ(x), the 24 features in order
lexical     f1-f8                               estimator   d(x) = σ(W·φ(x) + b), learned
structural  f11, f12, f14                       posterior   d(x, y_fast), once the fast answer is seen
syntax      f9, f10, f13: parser (`tok2vec`)    training    an estimator from one's own queries
semantic    f15-f21                             data/       what scripts/ made: parser, vocabularies,
domain      f22-f24: 8-way classifier                       classifier, weights, each with its report
"""
