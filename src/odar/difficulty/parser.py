"""The transition parser: spaCy's compiled greedy decoder, fed from `tok2vec` without spaCy's layers in between.

The decoder asks its model once per call for a table: what each token adds to the score of each transition in each
of the places of a parser state (SPEC 2.4). `Scores` makes that table by one product, and stands in for the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.tok2vec import Vectors, product


class Arc(TypedDict):
    """One arc of a parse: indices of two tokens, and the relation's hash."""

    head: int
    child: int
    label: int


class Scores:
    """What tokens add to the scores of transitions, by the weights of a trained parser without an upper layer."""

    def __init__(self, model: Any) -> None:
        linear = next(layer for layer in model.walk() if layer.name == "linear")
        lower = model.get_ref("lower")
        weights = lower.get_param("W")
        self.shape = weights.shape[:3]
        """Places of a state, transitions, pieces of the maxout."""
        flat = weights.reshape(-1, weights.shape[3])
        # two linear layers in a row are one
        self.weights = np.ascontiguousarray((flat @ linear.get_param("W")).T)
        self.shift = flat @ linear.get_param("b")
        self.padding = lower.get_param("pad").reshape(-1)
        self.bias = lower.get_param("b")
        self.ops = model.ops

    def of(self, vectors: Vectors) -> Vectors:
        """(tokens, places · transitions · pieces)."""
        scores: Vectors = product(vectors, self.weights) + self.shift
        return scores

    # What spaCy's `precompute_hiddens` asks of the parser's lower layer.

    def __call__(self, scores: Vectors, is_train: bool) -> tuple[NDArray[np.float32], None]:
        """The table that the decoder reads: `scores` under the row for a missing token."""
        return np.concatenate([self.padding[None], scores]).reshape(-1, *self.shape), None

    def get_param(self, name: str) -> Vectors:
        """The bias; nothing else is asked for."""
        return cast(Vectors, self.bias)

    def has_dim(self, name: str) -> bool:
        """Whether there is a maxout."""
        return True

    def get_dim(self, name: str) -> int:
        """The maxout's pieces."""
        return int(self.shape[2])


class _Steps:
    """A step model as spaCy's decoder wants it: scores of all tokens of all documents of one call."""

    vec2scores = None

    def __init__(self, scores: Scores, docs: Sequence[Any]) -> None:
        from spacy.ml.parser_model import precompute_hiddens

        self.tokvecs = np.concatenate([doc.tensor for doc in docs])
        self.state2vec = precompute_hiddens(len(docs), self.tokvecs, scores)
        self._class_mask = np.ones(scores.shape[1], np.float32)

    def clear_memory(self) -> None:
        """Nothing is kept."""


class _Model:
    """A parser model as spaCy's decoder wants it; `doc.tensor` carries the scores of a document's tokens."""

    def __init__(self, scores: Scores) -> None:
        self.scores = scores
        self.ops = scores.ops
        self.attrs = {"resize_output": lambda model, size: None}

    def walk(self) -> tuple[()]:
        """No layer has a dropout rate to set."""
        return ()

    def predict(self, docs: Sequence[Any]) -> _Steps:
        """Scores for one call of the decoder."""
        return _Steps(self.scores, docs)


class GreedyParser:
    """Heads and labels of documents, by the weights of a trained `parser` pipe; their own values, batch or not."""

    def __init__(self, pipe: Any) -> None:
        from spacy.pipeline.dep_parser import DependencyParser

        if pipe.model.attrs["has_upper"] or pipe.model.attrs["unseen_classes"]:
            raise ValueError("the parser has an upper layer: train it with scripts/train_parser.py --upper false")
        self.scores = Scores(pipe.model)
        self._decoder = DependencyParser(pipe.vocab, _Model(self.scores), moves=pipe.moves)

    def __call__(self, docs: Sequence[Any], vectors: Sequence[Vectors]) -> list[list[Arc]]:
        """For each document its arcs; a root has none."""
        for doc, rows in zip(docs, vectors, strict=True):
            doc.tensor = self.scores.of(rows)
        return [state.arcs for state in self._decoder.greedy_parse(docs)]
