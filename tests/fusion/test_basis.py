from __future__ import annotations

from odar.fusion.basis import Basis
from odar.fusion.choose import Fusion
from odar.types import Candidate, Energy, Step, Token


def candidate(model, aligned, origin="", scorer=""):
    energy = Energy(0.1, 0.1, 0.1 if aligned is None else aligned, aligned, origin, scorer)
    return Candidate(Step.SOLVE, model, model, model, (Token("word", -0.1),), energy=energy)


def test_calibrated_candidates_need_no_remark():
    basis = Basis.of([candidate("a", 0.1, "calibrated"), candidate("b", 0.2, "calibrated")])
    assert (basis.raw, basis.mark, basis.reason("lowest free energy")) == (False, "", "lowest free energy")


def test_served_traffic_is_named_and_never_mixed_in_silence():
    verdict = Fusion().choose([candidate("a", 0.1, "calibrated"), candidate("b", -0.2, "running")])
    assert (verdict.winner, verdict.scorer) == (1, "fep (running)")
    assert verdict.reason == "lowest free energy; b aligned by served traffic"


def test_running_and_raw_energies_never_meet():
    verdict = Fusion().choose([candidate("a", -9.0, "running"), candidate("b", None)])
    assert verdict.scorer == "fep (uncalibrated)"
    assert verdict.reason == "raw free energy: no alignment statistics for b"


def test_a_surrogate_is_named():
    verdict = Fusion().choose([candidate("a", 0.1, "calibrated", "s"), candidate("b", 0.2, "calibrated", "s")])
    assert (verdict.scorer, verdict.reason) == ("fep by surrogate s", "lowest free energy by surrogate s")
    raw = Fusion().choose([candidate("a", None, scorer="s"), candidate("b", None, scorer="s")])
    assert raw.scorer == "fep by surrogate s (uncalibrated)"
    assert raw.reason == "raw free energy by surrogate s: no alignment statistics for a, b"
