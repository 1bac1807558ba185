"""Sentence embeddings for comparing free text: all-MiniLM-L6-v2 in numpy (SPEC 5.15).

`odar pull all-minilm-l6-v2` downloads the 22 million weights. No other package is needed: `read_safetensors` reads
the weights, `WordPieces` tokenizes, and `Encoder` computes the six layers.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.errors import SettingsError
from odar.providers.weights import find_weights, weights_status

WEIGHTS = "all-minilm-l6-v2"
FLOOR = 0.5
"""A cosine below this counts as 0; answers to the same question are seldom below it."""
MAX_TOKENS = 128
"""Maximum number of tokens per text, as in training; 256 do not improve the choices."""
CACHED_TEXTS = 256
"""Number of texts whose vectors are cached."""
_HEADS = 12
_EPSILON = 1e-12
_GELU_ROWS = 32
_MAX_WORD_LENGTH = 100
_CLS, _SEP, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"

Array = NDArray[np.float64]
Floats = NDArray[np.float32]


class WordPieces:
    """The tokenizer of uncased BERT: lower case, no accents, longest known pieces first."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary

    def ids(self, text: str, limit: int = MAX_TOKENS) -> list[int]:
        """Return at most `limit` token ids, the opening and closing token included."""
        ids: list[int] = []
        for word in _basic_words(text):
            if len(ids) >= limit - 2:
                break
            ids += self._pieces(word)
        return [self._vocabulary[_CLS], *ids[: limit - 2], self._vocabulary[_SEP]]

    def _pieces(self, word: str) -> list[int]:
        known, pieces, start = self._vocabulary, [], 0
        while start < len(word) <= _MAX_WORD_LENGTH:
            prefix = "##" if start else ""
            end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in known), 0)
            if not end:
                return [known[_UNKNOWN]]
            pieces.append(known[prefix + word[start:end]])
            start = end
        return pieces or [known[_UNKNOWN]]


def _basic_words(text: str) -> Iterator[str]:
    """Split a text at white space; punctuation and Chinese characters are separate words."""
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
    """Turns texts into unit vectors; `tensors` are the weights by their names in the safetensors file."""

    def __init__(self, tensors: Mapping[str, Floats], pieces: WordPieces, heads: int = _HEADS) -> None:
        self._pieces = pieces
        kinds = ("word", "position", "token_type")
        self._words, self._positions, types = (tensors[f"embeddings.{kind}_embeddings.weight"] for kind in kinds)
        self._type = types[0]
        self._norm = _weight_and_bias(tensors, "embeddings.LayerNorm")
        count = len({name.split(".")[2] for name in tensors if name.startswith("encoder.layer.")})
        self._layers = [_Layer(tensors, f"encoder.layer.{i}", heads) for i in range(count)]

    @classmethod
    def load(cls, model: Path, tokenizer: Path) -> Encoder:
        """Read the two files of the model."""
        vocabulary = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
        return cls(read_safetensors(model), WordPieces(vocabulary))

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return a vector for each text. Their tokens are rows of one matrix, so no padding is computed."""
        ids = [self._pieces.ids(text) for text in texts]
        ends = np.cumsum([len(each) for each in ids])
        parts = [slice(end - len(each), end) for each, end in zip(ids, ends.tolist(), strict=True)]
        tokens = np.concatenate([self._words[each] + self._positions[: len(each)] for each in ids])
        x = _normalize(tokens + self._type, *self._norm)
        for layer in self._layers:
            x = layer(x, parts)
        means = np.array([x[part].mean(axis=0) for part in parts])
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))


class _Layer:
    """Self-attention and a feed-forward network."""

    def __init__(self, tensors: Mapping[str, Floats], name: str, heads: int) -> None:
        query, key, value = (
            _weight_and_bias(tensors, f"{name}.attention.self.{part}") for part in ("query", "key", "value")
        )
        scale = np.float32(math.sqrt(heads / len(query[1])))
        query = query[0] * scale, query[1] * scale  # scales the attention scores once, not for every text
        weights, biases = zip(query, key, value, strict=True)
        self._qkv = np.concatenate(weights).T.copy(), np.concatenate(biases)
        parts = ("attention.output", "intermediate", "output")
        pairs = [_weight_and_bias(tensors, f"{name}.{part}.dense") for part in parts]
        self._out, self._up, self._down = ((weight.T.copy(), bias) for weight, bias in pairs)
        self._down[0][:] *= np.float32(0.5)  # compensates for the factor 2 of `_double_gelu`
        self._norms = [
            _weight_and_bias(tensors, f"{name}.{part}.LayerNorm") for part in ("attention.output", "output")
        ]
        self._heads = heads

    def __call__(self, x: Floats, parts: Sequence[slice]) -> Floats:
        """Return the next states of all tokens; a token attends to those of its own part."""
        size, width = x.shape
        qkv = _linear(x, self._qkv).reshape(size, 3, self._heads, width // self._heads).transpose(1, 2, 0, 3)
        attended = np.empty_like(x).reshape(size, self._heads, -1)
        for part in parts:
            q, k, v = qkv[:, :, part]
            scores = q @ k.transpose(0, 2, 1)
            scores -= scores.max(axis=2, keepdims=True)
            np.exp(scores, out=scores)
            attended[part] = ((scores @ v) / scores.sum(axis=2, keepdims=True)).transpose(1, 0, 2)
        x = _normalize(x + _linear(attended.reshape(size, width), self._out), *self._norms[0])
        return _normalize(x + _linear(_double_gelu(_linear(x, self._up)), self._down), *self._norms[1])


def _linear(x: Floats, layer: tuple[Floats, Floats]) -> Floats:
    product = x @ layer[0]
    product += layer[1]
    return np.asarray(product)


def _double_gelu(x: Floats) -> Floats:
    """Return x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), twice GELU within 0.001 of its erf form.

    Works in place on a few rows at a time, which stay in the CPU cache; this halves the time.
    """
    root = math.sqrt(2 / math.pi)
    for start in range(0, len(x), _GELU_ROWS):
        rows = x[start : start + _GELU_ROWS]
        inner = rows * rows
        inner *= np.float32(0.044715 * root)
        inner += np.float32(root)
        inner *= rows
        np.tanh(inner, out=inner)
        inner += 1
        rows *= inner
    return x


def _normalize(x: Floats, scale: Floats, shift: Floats) -> Floats:
    x = x - x.mean(axis=1, keepdims=True)
    squares = np.einsum("ij,ij->i", x, x)[:, None]
    x /= np.sqrt(squares / np.float32(x.shape[1]) + np.float32(_EPSILON))
    x *= scale
    x += shift
    return x


def _weight_and_bias(tensors: Mapping[str, Floats], name: str) -> tuple[Floats, Floats]:
    return tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def read_safetensors(path: Path) -> dict[str, Floats]:
    """Return the float32 tensors of a safetensors file: a JSON header, then the numbers."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8:start])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(raw[start + first : start + end], np.float32).reshape(entry["shape"])
    return tensors


class EmbeddingSimilarity:
    """Cosine of sentence embeddings, 0 below `FLOOR`; the model is loaded on first use."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(os.cpu_count(), "odar-embed")
        self._cache: dict[str, Floats] = {}
        """Vectors of the latest texts: samples are compared as they arrive, and again when one is chosen."""

    def prepare(self) -> Encoder:
        """Load the model once, and return it.

        Raises:
            SettingsError: the weights are missing; the message has the command that downloads them.
        """
        with self._lock:
            if self._encoder is None:
                weights = find_weights(WEIGHTS)
                if weights_status(weights).state != "present":
                    raise SettingsError(
                        f"fusion.similarity = 'minilm' needs the weights of {WEIGHTS}; run `odar pull {WEIGHTS}`"
                    )
                _use_one_blas_thread()
                self._encoder = Encoder.load(*(file.path for file in weights.files))
            return self._encoder

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return a vector for each text; new texts are divided among as many threads as there are cores."""
        encoder, cache = self.prepare(), self._cache
        vectors = {text: cache[text] for text in texts if text in cache}
        if new := sorted({*texts} - vectors.keys(), key=len):
            count = min(len(new), os.cpu_count() or 1)
            batches = [new[i::count] for i in range(count)]  # of about the same length
            for batch, encoded in zip(batches, self._threads.map(encoder.encode, batches), strict=True):
                vectors |= zip(batch, encoded, strict=True)
        with self._lock:
            self._cache = dict([*self._cache.items(), *vectors.items()][-CACHED_TEXTS:])
        return np.array([vectors[text] for text in texts])

    def __call__(self, texts: Sequence[str]) -> Array:
        """Return the similarities of all pairs, from 0 to 1."""
        vectors = self.encode(texts).astype(np.float64)
        cosines = np.clip(vectors @ vectors.T, 0.0, 1.0)
        cosines = (cosines + cosines.T) / 2
        np.fill_diagonal(cosines, 1.0)
        return np.where(cosines < FLOOR, 0.0, cosines)


def _use_one_blas_thread() -> None:
    """Limit OpenBLAS to one thread, because `EmbeddingSimilarity` already encodes texts in several threads.

    Its threads wait for each other by spinning, which takes four to eight times the CPU time on a busy machine.
    Another BLAS is left as it is.
    """
    library = ctypes.CDLL(import_module("numpy._core._multiarray_umath").__file__)
    for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads"):
        with suppress(AttributeError):
            getattr(library, name)(1)
            return


similarity = EmbeddingSimilarity()
