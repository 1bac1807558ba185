"""Breaks the code in one place at a time, in a copy, and shows that a test notices.

    make mutants                 # all of them
    python scripts/mutate.py λ   # those whose name holds this

A mutant that survives is a hole in the tests: the exit code is 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """One way to break the code."""

    name: str
    file: str
    right: str
    wrong: str
    tests: str


MUTANTS = (
    Mutant(
        "λ: its sign (5.3)", "policy/energy.py", "energy + weight * variance", "energy - weight * variance", "policy/test_energy.py"),
    Mutant(
        "E: not per character (5.1)",
        "policy/energy.py",
        "-math.fsum(logprobs) / characters",
        "-math.fsum(logprobs) / len(logprobs)",
        "policy/test_energy.py"),
    Mutant("E: its sign (5.1)", "policy/energy.py", "-math.fsum(logprobs) / characters", "math.fsum(logprobs) / characters", "policy/test_energy.py"),
    Mutant("V: not squared (5.2)", "policy/energy.py", "map(mul, apart, apart)", "map(abs, apart)", "policy/test_energy.py"),
    Mutant(
        "V: scaffold counted (5.4)",
        "policy/energy.py",
        "variance = varentropy(content)",
        "variance = varentropy(logprobs)",
        "policy/test_energy.py"),
    Mutant(
        "z-score: not divided (5.5)",
        "policy/energy.py",
        "(value - self.mean) / self.deviation",
        "value - self.mean",
        "policy/test_energy.py"),
    Mutant("z-score: not centred (5.5)", "policy/energy.py", "(value - self.mean) /", "value /", "policy/test_energy.py"),
    Mutant(
        "raw and aligned mixed (5.5)",
        "policy/fusion.py",
        "e.free_energy if basis.raw or e.aligned is None else e.aligned",
        "e.free_energy if e.aligned is None else e.aligned",
        "policy/test_fusion.py"),
    Mutant("20% rule: the wrong way (5.6)", "policy/fusion.py", "missing > self.missing_limit", "missing < self.missing_limit", "policy/test_fusion.py"),
    Mutant("argmin: argmax (5.7)", "policy/rules.py", "    own = -ballot.free_energy\n    best", "    own = ballot.free_energy\n    best", "policy/test_rules.py policy/test_fusion.py"),
    Mutant("β: turned round (5.10)", "policy/rules.py", "        answers = _log_masses(np.log(ballot.skills) + ballot.beta * own, ballot)\n    weights = ", "        answers = _log_masses(np.log(ballot.skills) - ballot.beta * own, ballot)\n    weights = ", "policy/test_rules.py policy/test_fusion.py"),
    Mutant("β: ignored (5.10)", "policy/rules.py", "        answers = _log_masses(np.log(ballot.skills) + ballot.beta * own, ballot)\n    weights = ", "        answers = _log_masses(np.log(ballot.skills) + own, ballot)\n    weights = ", "policy/test_rules.py policy/test_fusion.py"),
    Mutant("skills: ignored (5.10b)", "policy/rules.py", "        answers = _log_masses(np.log(ballot.skills) + ballot.beta * own, ballot)\n    weights = ", "        answers = _log_masses(ballot.beta * own, ballot)\n    weights = ", "policy/test_rules.py policy/test_fusion.py"),
    Mutant("answers: never equal (5.10)", "policy/fusion.py", "self.equivalence([candidates[i].answer for i in spoken])", "range(len(spoken))", "policy/test_fusion.py"),
    Mutant("cut-off answers vote (5.6b)", "policy/fusion.py", "candidate.stated and candidate.finish != \"length\"", "True", "policy/test_fusion.py"),
    Mutant("arrays: cut-off answers vote (5.6b)", "policy/fusion.py", "stated = among & self.complete", "stated = among", "policy/test_agreement.py"),
    Mutant("arrays: no ladder (5.6)", "policy/fusion.py", "ladder = (silent & ~by_surrogate) | ~scored.any(axis=1)", "ladder = ~scored.any(axis=1)", "policy/test_agreement.py"),
    Mutant("stopping: at any lead (5.12)", "policy/stopping.py", ">= (self.confidence or 0.0) - TIE", ">= 0.0", "policy/test_stopping.py"),
    Mutant("τ1: ≤ for < (1)", "policy/path.py", "< self.tau1", "<= self.tau1", "policy/test_path.py"),
    Mutant("τ2: > for ≥ (1)", "policy/path.py", "< self.tau2", "<= self.tau2", "policy/test_path.py"),
    Mutant("prompt MD5: of nothing (3.1)", "agents/prompts/__init__.py", "hashlib.md5(raw,", 'hashlib.md5(b"",', "agents/test_prompts.py"),
    Mutant("cost: output left out (6.1)", "catalogue.py", " + usage.output * self.output", "", "test_catalogue.py"),
    Mutant("cost: cached at full price (6.1)", "catalogue.py", "cached * self.cached", "cached * self.input", "test_catalogue.py"),
    Mutant("cost: cache writes as plain input (6.1)", "catalogue.py", "brief * (self.written or 0.0)", "brief * self.input", "test_catalogue.py"),
    Mutant("ledger: unknown counted as nothing (6.1)", "agents/ledger.py", "if len(costs) == len(self.calls) else None", "", "agents/test_ledger.py"),
    Mutant("ledger: nothing held back (6.2)", "agents/ledger.py", "return held + spent + self._at_risk_usd", "return spent + self._at_risk_usd", "agents/test_ledger.py"),
    Mutant("ledger: risk forgotten (6.2)", "agents/ledger.py", "return held + spent + self._at_risk_usd", "return held + spent", "agents/test_ledger.py"),
    Mutant("limits: a client's own words free (6.2)", "agents/ledger.py", "max(_understood(message), _as_written(message))", "_understood(message)", "agents/test_ledger.py"),
    Mutant("running: outliers not pulled in", "policy/alignment.py", "values = np.clip(values, low - reach, high + reach)", "", "policy/test_alignment.py"),
    Mutant("running: counts never fade", "policy/alignment.py", "max(0.0, day - self.day) / half_life", "0.0", "policy/test_alignment.py"),
    Mutant("running: used from the first", "store/alignment.py", " and r.count >= MIN_SERVED", "", "store/test_alignment.py"),
    Mutant("drift: any difference", "policy/alignment.py", "abs(z) > SURE and abs(shift) > SHIFT", "abs(z) > SURE", "policy/test_alignment.py"),
    Mutant("surrogate: scored in vain (5.6)", "agents/scoring.py", "self.fusion.choose, seen,", "self.fusion.choose, weighed,", "agents/test_scoring.py"),
    Mutant("fit: the least likely (5.10)", "calibration/fusion_fit.py", "best = int(np.argmax(", "best = int(np.argmin(", "calibration/test_fusion_fit.py"),
    Mutant("fit: less often right (5.10b)", "calibration/fusion_fit.py", ">= least", ">= 0", "calibration/test_fusion_fit.py"),
    Mutant("fit: the rule in use not tried (5.10b)", "calibration/fit.py", "today.setup.fusion, goal), today.setup.fusion]", "today.setup.fusion, goal)]", "calibration/test_fit.py"),
    Mutant("choice: by luck (2.7)", "calibration/routing_fit.py", "difference.mean() - standard_error(difference) >= -RISK", "True", "calibration/test_parts.py"),
    Mutant("choice: two units (2.7)", "calibration/setup.py", "np.isfinite(self.cost).all() and self.cost.any()", "np.isfinite(self.cost).all()", "calibration/test_parts.py"),
    Mutant("judged: a sure loss (2.7)", "calibration/routing_fit.py", "accuracy_gain.high < 0", "accuracy_gain.high < -1", "calibration/test_routing_fit.py"),
    Mutant("judged: a loss for no saving (2.7)", "calibration/routing_fit.py", "cost_change.high >= 0", "cost_change.high >= 9", "calibration/test_routing_fit.py"),
    Mutant("judged: any loss for a saving (2.7)", "calibration/routing_fit.py", "accuracy_gain.low < -tolerance", "accuracy_gain.low < -1", "calibration/test_routing_fit.py"),
    Mutant("judged: dearer for nothing (2.7)", "calibration/routing_fit.py", "cost_change.low > 0 and", "cost_change.low > 9 and", "calibration/test_routing_fit.py"),
    Mutant(
        "surrogate: aligned by the models' own (5.6)",
        "calibration/setup.py",
        "candidates.surrogate, self.surrogate or",
        "candidates.surrogate, self.statistics or",
        "calibration/test_surrogate.py"),
    Mutant("local: any peer (14.1)", "gateway/access.py", "    if not is_loopback(peer := _peer(scope)):\n        return f\"address {peer!r}\"\n", "", "gateway/test_access.py"),
    Mutant("local: behind a proxy (14.1)", "gateway/access.py", "        elif _is_proxy_header(name):\n", "        elif False:\n", "gateway/test_access.py"),
    Mutant("fields: what ODAR sets is overridden (14.2)", "forwarding.py", "{**extra, **body}", "{**body, **extra}", "test_forwarding.py"),
    Mutant("fields: everything is sent on (14.2)", "forwarding.py", "options.extra.items() if name in allowed}", "options.extra.items() if True}", "test_forwarding.py"),
    Mutant("fields: another price where money is limited (14.2)", "forwarding.py", "            allowed -= PRICED_OTHERWISE", "            pass", "test_forwarding.py"),
    Mutant("budget: what is reserved is not counted (14.6)", "store/budgets.py", "self.spent_day + self.held_day + need.usd <= day", "self.spent_day + need.usd <= day", "store/test_budgets.py"),
    Mutant("budget: settled twice (14.6)", "store/budgets.py", "        if not found and now < held.expires_at + _KEEP_S:", "        if False:", "store/test_budgets.py"),
    Mutant("budget: a crashed replica holds on (14.6)", "store/budgets.py", "live = reservations.c.expires_at > now", "live = reservations.c.expires_at > 0", "store/test_budgets.py"),
    Mutant("budget: unknown cost is free (14.6)", "agents/ledger.py", "self._at_risk_usd += reservation.cost_usd", "pass", "agents/test_ledger.py"),
    Mutant("operator faults: shown to clients (14.5)", "gateway/errors.py", "message = f\"the gateway is not able to answer this; tell its operator the reference {reference}\"", "message = one_line(error)", "gateway/test_errors.py"),
    Mutant("headers of a client: bytes not counted (14.8)", "gateway/server.py", "self._header_bytes > self._limits.header_bytes or ", "", "gateway/test_http_protocol.py"),
    Mutant("headers of a client: number not counted (14.8)", "gateway/server.py", " or len(self.headers) >= self._limits.headers", "", "gateway/test_http_protocol.py"),
    Mutant("headers of a client: an endless one (14.8)", "gateway/server.py", "if self._unparsed > self._limits.header_bytes:", "if False:", "gateway/test_http_protocol.py"),
    Mutant("headers of a client: no timeout (14.8)", "gateway/server.py", "if self._read_timer is None and self._in_head:", "if False:", "gateway/test_http_protocol.py"),
    Mutant("silent connections: no timeout (14.8)", "gateway/server.py", "        self._peer = peer\n        self._read_timer = self.loop.call_later(self._limits.header_timeout_s, self._read_too_slow)", "        self._peer = peer", "gateway/test_http_protocol.py"),
    Mutant("body of a client: goes on after its answer (14.8)", "gateway/server.py", 'self._read_timer = self.loop.call_later(_LINGER_S, self.abort, "body_after_answer")', "pass", "gateway/test_http_protocol.py"),
    Mutant("connections of a peer: not limited (14.8)", "gateway/server.py", "if self._open[peer] >= self.per_peer:", "if False:", "gateway/test_http_protocol.py"),
    Mutant("requests ahead of answers: not limited (14.8)", "gateway/server.py", "elif len(self.pipeline) > _MAX_PIPELINED:", "elif False:", "gateway/test_http_protocol.py"),
    Mutant("a client that does not read: no timeout (14.8)", "gateway/server.py", "self.abort(\"write_timeout\")", "pass", "gateway/test_http_protocol.py"),
    Mutant("a slow stream: no end at its deadline (14.8)", "gateway/endpoint.py", "timer = loop.call_later(left + self._gateway.write_timeout_s, state.exchange.abort)", "timer = loop.call_later(1e6, state.exchange.abort)", "gateway/test_http_protocol.py"),
    Mutant("headers of an upstream: bytes not counted (14.9)", "providers/connection.py", "if self._unparsed > _MAX_HEADER_BYTES:", "if False:", "providers/test_connection.py"),
    Mutant("headers of an upstream: number not counted (14.9)", "providers/connection.py", " or self._header_count > _MAX_HEADERS", "", "providers/test_connection.py"),
    Mutant("breaker: a client's deadline counts (14.7)", "providers/breaker.py", "return request.short_timeout", "return False", "security/test_availability.py"),
    Mutant("breaker: a model nobody configured counts (14.7)", "providers/breaker.py", "return request.unlisted_model and error.status is not None", "return False", "security/test_availability.py"),
    Mutant("breaker: no timeout counts (14.7)", "providers/breaker.py", "return request.short_timeout", "return True", "security/test_availability.py"),
    Mutant("429: waited for although the model was named (14.14)", "agents/team.py", "retry_rate_limit=last and not self.plain", "retry_rate_limit=True", "security/test_availability.py"),
    Mutant("429: a long retry-after is waited for (14.14)", "providers/http.py", "(error.retry_after or 0.0) > self._retry.max_retry_after_s", "False", "security/test_availability.py"),
    Mutant("retries: not counted for the question (14.14)", "agents/ledger.py", "return self._retries <= self.limits.retries", "return True", "security/test_availability.py"),
    Mutant("requests: any number of messages (14.11)", "gateway/fields.py", "if count > MAX_MESSAGES:", "if False:", "security/test_availability.py"),
    Mutant("requests: any number of tools (14.11)", "gateway/fields.py", "if len(tools) > MAX_TOOLS:", "if False:", "security/test_availability.py"),
    Mutant("requests: any schema (14.11)", "gateway/fields.py", "(size := len(dump_json(form))) > largest:", "(size := len(dump_json(form))) > 1e9:", "security/test_availability.py"),
    Mutant("requests: any number of values (14.11)", "gateway/fields.py", "        if count > most:\n", "        if False:\n", "security/test_availability.py"),
    Mutant("requests: large ones in the event loop (14.11)", "gateway/endpoint.py", "_READ_AT_ONCE_BYTES = 32_000", "_READ_AT_ONCE_BYTES = 10**9", "security/test_availability.py"),
    Mutant("/metrics: in the event loop (14.12)", "gateway/metrics.py", "return await asyncio.to_thread(self.text)", "return self.text()", "security/test_availability.py"),
    Mutant("status by words (14.13)", "gateway/errors.py", "return ApiError(422, one_line(error), \"budget_exceeded\")", "return ApiError(504, one_line(error), \"budget_exceeded\")", "security/test_availability.py"),
    Mutant("redirects: taken for an answer", "providers/http.py", "if not 200 <= answer.status < 300:", "if not 200 <= answer.status < 400:", "security/test_hostile_upstream.py"),
    Mutant("access: keys no longer required (14.1)", "gateway/access.py", "        return self._required\n", "        return not self._keys.empty()\n", "gateway/test_access.py"),
    Mutant("access: a proxied scraper is believed (14.3)", "gateway/access.py", "if address is None or _proxy_header(scope[\"headers\"]) is not None:", "if address is None:", "gateway/test_access.py"),
    Mutant("access: any key (14.1)", "gateway/access.py", "            raise ApiError(401, \"this key is not known here; `odar keys` makes one\", \"invalid_api_key\")", "            return ApiKey(\"x\")", "gateway/test_access.py gateway/test_endpoint.py"),
)  # fmt: skip


def main(wanted: str) -> int:
    """Run every mutant whose name holds `wanted`; print a table; 1 if one survives."""
    chosen = [mutant for mutant in MUTANTS if wanted in mutant.name]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        _hurry(copy / "tests" / "conftest.py")
        print("| broken | noticed by | s |\n|---|---|---|", flush=True)
        for mutant in chosen:
            started = time.monotonic()
            noticed = _noticed(copy, mutant)
            survivors += noticed is None
            print(f"| {mutant.name} | {noticed or '**nobody**'} | {time.monotonic() - started:.0f} |", flush=True)
    print(f"\n{len(chosen) - survivors} of {len(chosen)} mutants were noticed")
    return 1 if survivors else 0


def _hurry(conftest: Path) -> None:
    """Fewer examples, and no search for the smallest one: that it fails is enough."""
    text = conftest.read_text()
    quick = "max_examples=40, phases=[Phase.explicit, Phase.generate]"
    text = text.replace("max_examples=100", quick).replace("import settings", "import Phase, settings")
    conftest.write_text(text)


def _noticed(copy: Path, mutant: Mutant) -> str | None:
    """The first test that fails with this mutant in place; None if all pass."""
    file = copy / "src" / "odar" / mutant.file
    right = file.read_text()
    if right.count(mutant.right) != 1:
        raise SystemExit(
            f"{mutant.name}: {mutant.right!r} occurs {right.count(mutant.right)} times in {mutant.file}"
        )
    file.write_text(right.replace(mutant.right, mutant.wrong))
    try:
        return _first_failure(copy, [f"tests/{name}" for name in mutant.tests.split()])
    finally:
        file.write_text(right)


def _first_failure(copy: Path, tests: list[str]) -> str | None:
    quick = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *quick, *tests],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED ")]
    if run.returncode == 0:
        return None
    if run.returncode != 1 or not failed:
        raise SystemExit(f"the tests could not be run:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return failed[0].split()[1].removeprefix("tests/").split("[")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
