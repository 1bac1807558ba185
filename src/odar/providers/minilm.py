"""Sentence embeddings for comparing free text: all-MiniLM-L6-v2 in numpy (SPEC 5.15).

Twenty-two million weights, `odar pull all-minilm-l6-v2`. No further package: the weights are read from the
safetensors file, text is cut into word pieces by `WordPieces`, and the six layers are forty lines of numpy.
"""

from __future__ import annotations

import json
import math
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.errors import SettingsError
from odar.providers.weights import find_weights, weights_status

WEIGHTS = "all-minilm-l6-v2"
FLOOR = 0.5
"""A cosine below this counts as nothing in common; answers to one question are seldom below it."""
MAX_TOKENS = 256
"""Word pieces that are read of each text, as the model was trained."""
_HEADS = 12
_EPSILON = 1e-12
_LONGEST_WORD = 100
_CLS, _SEP, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"

Array = NDArray[np.float64]
Floats = NDArray[np.float32]


class WordPieces:
    """The tokenizer of uncased BERT: lower case, accents removed, longest known pieces first."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary

    def ids(self, text: str, limit: int = MAX_TOKENS) -> list[int]:
        """Return at most `limit` token ids, the opening and closing token included."""
        known = self._vocabulary
        found: list[int] = []
        for word in _basic_words(text):
            if len(found) >= limit - 2:
                break
            found += self._pieces(word)
        return [known[_CLS], *found[: limit - 2], known[_SEP]]

    def _pieces(self, word: str) -> list[int]:
        known, pieces, start = self._vocabulary, [], 0
        while start < len(word) <= _LONGEST_WORD:
            prefix = "##" if start else ""
            end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in known), 0)
            if not end:
                return [known[_UNKNOWN]]
            pieces.append(known[prefix + word[start:end]])
            start = end
        return pieces or [known[_UNKNOWN]]


def _basic_words(text: str) -> Iterator[str]:
    """Cut a text at white space; punctuation and Chinese characters are words of their own."""
    word: list[str] = []
    for char in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(char)
        space = char in " \t\n\r" or category == "Zs"
        if category == "Mn" or (category[0] == "C" and not space) or char == "\ufffd":
            continue
        alone = category[0] == "P" or (char.isascii() and category[0] == "S") or "\u4e00" <= char <= "\u9fff"
        if space or alone:
            if word:
                yield "".join(word)
                word = []
            if alone:
                yield char
        else:
            word.append(char)
    if word:
        yield "".join(word)


class Encoder:
    """Turns texts into unit vectors.

    Args:
        tensors: the weights by name, as in the safetensors file.
        pieces: the tokenizer.
        heads: attention heads of each layer.
    """

    def __init__(self, tensors: Mapping[str, Floats], pieces: WordPieces, heads: int = _HEADS) -> None:
        self._pieces, self._heads = pieces, heads
        self._words, self._places, types = (
            tensors[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        self._type = types[0]
        self._norm = _pair(tensors, "embeddings.LayerNorm")
        count = len({name.split(".")[2] for name in tensors if name.startswith("encoder.layer.")})
        self._layers = [_Layer(tensors, f"encoder.layer.{i}", heads) for i in range(count)]

    @classmethod
    def load(cls, model: Path, tokenizer: Path) -> Encoder:
        """Read the two files of the model."""
        vocabulary = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
        return cls(read_safetensors(model), WordPieces(vocabulary))

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector per text; all texts pass through the layers together."""
        ids = [self._pieces.ids(text) for text in texts]
        ends = np.cumsum([len(each) for each in ids])
        spans = [slice(end - len(each), end) for end, each in zip(ends, ids, strict=True)]
        places = np.concatenate([np.arange(len(each)) for each in ids])
        # Texts stand one after another, without padding; only attention looks at one text at a time.
        x = _normalize(self._words[np.concatenate(ids)] + self._places[places] + self._type, *self._norm)
        for layer in self._layers:
            x = layer(x, spans)
        means = np.stack([x[span].mean(axis=0) for span in spans])
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))


class _Layer:
    """Self-attention and a feed-forward network."""

    def __init__(self, tensors: Mapping[str, Floats], name: str, heads: int) -> None:
        own = [_pair(tensors, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        self._qkv = np.concatenate([w for w, _ in own]).T.copy(), np.concatenate([b for _, b in own])
        self._out, self._up, self._down = (
            (weight.T.copy(), bias)
            for weight, bias in (
                _pair(tensors, f"{name}.{part}.dense") for part in ("attention.output", "intermediate", "output")
            )
        )
        self._norms = (
            _pair(tensors, f"{name}.attention.output.LayerNorm"),
            _pair(tensors, f"{name}.output.LayerNorm"),
        )
        self._heads = heads

    def __call__(self, x: Floats, spans: Sequence[slice]) -> Floats:
        width = x.shape[1]
        qkv = x @ self._qkv[0] + self._qkv[1]
        mixed = np.empty_like(x)
        for span in spans:
            q, k, v = qkv[span].reshape(-1, 3, self._heads, width // self._heads).transpose(1, 2, 0, 3)
            scores = (q / np.float32(math.sqrt(width / self._heads))) @ k.transpose(0, 2, 1)
            scores -= scores.max(axis=2, keepdims=True)
            np.exp(scores, out=scores)
            attended = (scores @ v) / scores.sum(axis=2, keepdims=True)
            mixed[span] = attended.transpose(1, 0, 2).reshape(-1, width)
        x = _normalize(x + mixed @ self._out[0] + self._out[1], *self._norms[0])
        up = _gelu(x @ self._up[0] + self._up[1])
        return _normalize(x + up @ self._down[0] + self._down[1], *self._norms[1])


def _gelu(x: Floats) -> Floats:
    """Return 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), within 0.001 of the erf form; in place, for speed."""
    inner = x * x
    inner *= np.float32(0.044715)
    inner += 1
    inner *= x
    inner *= np.float32(math.sqrt(2 / math.pi))
    np.tanh(inner, out=inner)
    inner += 1
    inner *= x
    inner *= np.float32(0.5)
    return inner


def _normalize(x: Floats, scale: Floats, shift: Floats) -> Floats:
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + np.float32(_EPSILON))
    return np.asarray(centred / deviation * scale + shift)


def _pair(tensors: Mapping[str, Floats], name: str) -> tuple[Floats, Floats]:
    return tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def read_safetensors(path: Path) -> dict[str, Floats]:
    """Return the float32 tensors of a safetensors file: a JSON header, then the numbers."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8:start])
    return {
        name: np.frombuffer(
            raw,
            np.float32,
            (about["data_offsets"][1] - about["data_offsets"][0]) // 4,
            start + about["data_offsets"][0],
        ).reshape(about["shape"])
        for name, about in header.items()
        if name != "__metadata__" and about["dtype"] == "F32"
    }


class EmbeddingSimilarity:
    """Cosine of sentence embeddings, 0 below `FLOOR`; the model is loaded when it is first needed."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None
        self._lock = threading.Lock()

    def prepare(self) -> Encoder:
        """Load the model once.

        Raises:
            SettingsError: the weights are not there; says how to get them.
        """
        with self._lock:
            if self._encoder is None:
                weights = find_weights(WEIGHTS)
                if weights_status(weights).state != "present":
                    raise SettingsError(
                        f"fusion.similarity = 'minilm' needs the weights of {WEIGHTS}; run `odar pull {WEIGHTS}`"
                    )
                self._encoder = Encoder.load(*(file.path for file in weights.files))
            return self._encoder

    def cosines(self, texts: Sequence[str]) -> Array:
        """Return the cosines of all pairs, from 0 to 1, without the floor."""
        vectors = self.prepare().encode(texts).astype(np.float64)
        cosines = np.clip(vectors @ vectors.T, 0.0, 1.0)
        cosines = (cosines + cosines.T) / 2
        np.fill_diagonal(cosines, 1.0)
        return np.asarray(cosines)

    def __call__(self, texts: Sequence[str]) -> Array:
        """Return the similarities of all pairs."""
        cosines = self.cosines(texts)
        return np.where(cosines < FLOOR, 0.0, cosines)


similarity = EmbeddingSimilarity()
