"""The sentence encoder, on a tiny model with random weights; the real one if its weights are in the cache."""

from __future__ import annotations

import json

import numpy as np
import pytest

from odar.errors import SettingsError
from odar.providers.minilm import WEIGHTS, EmbeddingSimilarity, Encoder, WordPieces, read_safetensors
from odar.providers.weights import find_weights, weights_status

VOCABULARY = {
    piece: number
    for number, piece in enumerate(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##happy", "##ness", "happy", "cafe", ",", "!", "漢", "字", "a"]
    )
}
WIDTH, HEADS, UP = 8, 2, 16


def tensors(layers: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
        "embeddings.position_embeddings.weight": (32, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    pairs = {"embeddings.LayerNorm": (WIDTH,)}
    for i in range(layers):
        name = f"encoder.layer.{i}"
        pairs |= {f"{name}.attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
        pairs |= {
            f"{name}.attention.output.dense": (WIDTH, WIDTH),
            f"{name}.attention.output.LayerNorm": (WIDTH,),
            f"{name}.intermediate.dense": (UP, WIDTH),
            f"{name}.output.dense": (WIDTH, UP),
            f"{name}.output.LayerNorm": (WIDTH,),
        }
    for name, shape in pairs.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def ids(text: str, limit: int = 64) -> list[str]:
    names = {number: piece for piece, number in VOCABULARY.items()}
    return [names[number] for number in WordPieces(VOCABULARY).ids(text, limit)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Unhappyness, happy!", ["un", "##happy", "##ness", ",", "happy", "!"]),
        ("CAFÉ 漢字", ["cafe", "漢", "字"]),
        ("a\u200ba\n\ta", ["[UNK]", "a"]),
        ("sad " + "a" * 101, ["[UNK]", "[UNK]"]),
        ("", []),
    ],
)
def test_word_pieces_are_those_of_uncased_bert(text, pieces):
    assert ids(text) == ["[CLS]", *pieces, "[SEP]"]


def test_a_long_text_is_cut_off_before_the_closing_token():
    assert ids("a " * 50, limit=6) == ["[CLS]", "a", "a", "a", "a", "[SEP]"]


def test_a_vector_has_length_1_and_depends_on_the_order_of_words():
    encoder = Encoder(tensors(), WordPieces(VOCABULARY), HEADS)
    vectors = encoder.encode(["happy", "a unhappyness, happy! a a a", "a happy", "happy a", ""])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-3)
    assert not np.allclose(vectors[2], vectors[3], atol=1e-3)


def test_a_text_has_the_same_vector_alone_and_in_a_batch():
    encoder = Encoder(tensors(), WordPieces(VOCABULARY), HEADS)
    texts = ["happy", "a unhappyness, happy! a a a", "", "happy a"]
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    np.testing.assert_allclose(encoder.encode(texts), alone, atol=1e-6)


def test_a_text_is_encoded_once():
    encoded: list[str] = []

    class Counting(Encoder):
        def encode(self, texts):
            encoded.extend(texts)
            return super().encode(texts)

    similarity = EmbeddingSimilarity()
    similarity._encoder = Counting(tensors(), WordPieces(VOCABULARY), HEADS)
    first = similarity.encode(["happy", "a", "happy"])
    again = similarity.encode(["a", "happy", "unhappyness"])
    assert sorted(encoded) == ["a", "happy", "unhappyness"]
    assert (first[:2] == again[[1, 0]]).all()


def test_a_model_is_read_from_its_two_files(tmp_path):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors().items():
        header[name] = {
            "dtype": "F32",
            "shape": tensor.shape,
            "data_offsets": [len(data), len(data) + tensor.nbytes],
        }
        data += tensor.tobytes()
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    model, tokenizer = tmp_path / "model.safetensors", tmp_path / "tokenizer.json"
    model.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    tokenizer.write_text(json.dumps({"model": {"vocab": VOCABULARY}}))
    read = read_safetensors(model)
    assert all((read[name] == tensor).all() for name, tensor in tensors().items())
    assert len(read) == len(tensors())


def test_missing_weights_are_reported_with_the_command_that_fetches_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path))
    with pytest.raises(SettingsError, match=f"odar pull {WEIGHTS}"):
        EmbeddingSimilarity().prepare()


def test_the_real_model_gives_the_published_similarities():
    if weights_status(find_weights(WEIGHTS)).state != "present":
        pytest.skip(f"needs odar pull {WEIGHTS}")
    texts = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    s = EmbeddingSimilarity()(texts)
    assert s[0] == pytest.approx([1.0, 0.695, 0.943, 0.0], abs=0.002)  # the last, 0.257, is below the floor
    assert (s == s.T).all()
