"""Difficulty estimation (SPEC 2): from a text to d(x), without I/O, in numpy.

text        cleaning, LaTeX masking, terms, syllables     base        protocol, baselines, turns of a conversation
tokenizer   spaCy's tokens without spaCy                  estimator   d(x) = m(σ(W·φ(x) + b)), learned
parser      dependency trees: f9, f10, f13                data/       made by scripts/: parser, vocabularies,
domain      f22-f24: 8-way classifier                                 classifier, weights, each with its report
features    φ(x), the 24 features in order
"""
