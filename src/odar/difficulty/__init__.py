"""Text in, difficulty out (SPEC 2): pure, lazy, numpy only.

text        cleaning, LaTeX masked, terms, lengths      base        the protocol, baselines, turns of a conversation
tokenizer   spaCy's tokens without spaCy                estimator   d(x) = m(σ(W·φ(x) + b)), learned
parser      their vectors and trees                     training    an estimator from one's own queries
syntax      f9, f10, f13 from the trees                 data/       made by scripts/: parser, vocabularies,
domain      f22-f24: 8-way classifier                               classifier, weights, each with its report
university  terms of university courses in short questions
features    φ(x), the 24 features in order
"""
