"""Text in, difficulty out (SPEC 2, 5.11): pure, lazy, numpy only.

text        clean, LaTeX masked, terms, lengths    features    φ(x), the 24 features in order
lexical     f1-f8                                  estimator   d(x) = σ(W·φ(x) + b), learned
tokenizer   spaCy's tokens without spaCy           sticky      short turns inherit difficulty
tok2vec     their vectors                          training    an estimator from one's own queries
parser      their trees                            posterior   d(x, y_fast), once the fast answer is seen
syntax      f9, f10, f13 from the trees            data/       made by scripts/: parser, vocabularies,
semantic    f15-f21                                            classifier, weights, each with its report
domain      f22-f24: 8-way classifier
"""
