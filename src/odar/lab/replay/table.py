"""A recording as a table of items and states, over which every policy is a walk (SPEC 9.9).

A state is a question with some of its recorded answers, the samples of an agent in recorded order. The table builds
states as the engine does: free energies, groups of equal answers and opinions come from the same functions. Then
`walk` asks a policy in every state, as the engine would, and looks up the answers in place of calls. So there is
one implementation of each decision, and engine and replay agree.

`evidence_after` gives one state of all items as arrays, for fits that try hundreds of beliefs.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odar.agents.agents import configured_source
from odar.agents.measure import grouped, opinion_of
from odar.agents.team import agent_request_template
from odar.calibration_file import Calibration, Source, Statistics, load_calibration
from odar.call_prices import is_nominal, reference_price, token_prices, usual_lengths
from odar.catalogue import Price
from odar.config import with_values
from odar.conversation import NO_PARAMETERS
from odar.errors import InputError
from odar.lab.recording.files import Recording, open_recording
from odar.lab.recording.header import Header
from odar.lab.recording.schema import CHARACTERS_PER_TOKEN, MIN_RIGHT_SCORE, Attempt, RecordedItem
from odar.lab.replay.outcomes import ARRAYS, Outcomes
from odar.lab.replay.states import RememberingBelief, stacked_evidence
from odar.planning import make_plan, value_of
from odar.policy.arrays import Array, Bools, Ints
from odar.policy.base import FixedPolicy, Policy
from odar.policy.belief import Agent, Belief, Evidence, Opinion
from odar.policy.cascade import CascadePolicy
from odar.policy.dial import Dial, TargetState
from odar.policy.energy import Alignment, free_energy
from odar.policy.equivalence import group_candidates
from odar.policy.fusion import Fusion
from odar.policy.paper import PATHS, PaperPolicy
from odar.policy.policies import agents_of, choose_policy
from odar.policy.signals import QuantileTables, shipped_tables
from odar.settings import FusionSettings, Settings
from odar.types import FAST, Ask, Assignment, Candidate, Estimate, Plan, Query, Stage, State, Step, Verdict, path_of

Taken = tuple[int, ...]
"""Numbers of the attempts of an item that a state holds, in the order in which they were asked for."""


class _AfterStage(NamedTuple):
    """What a stage leads to."""

    taken: Taken
    """All answers of the state after it."""
    candidates: tuple[Candidate, ...]
    """The same answers as candidates."""
    cost_usd: float
    """Of this stage alone."""
    seconds: float
    """Of this stage alone; NaN if unknown."""


class _Scale(NamedTuple):
    """What the energy and the signals of an answer are compared with."""

    alignment: Alignment | None
    """None if it is not calibrated."""
    quantiles: QuantileTables


class _ItemOutcome(NamedTuple):
    """The outcome of a policy on one item; the fields are those of `Outcomes`."""

    score: float
    cost_usd: float
    calls: int
    seconds: float
    tokens: float
    path: int
    winner: int
    best: float
    stages: tuple[Stage, ...]


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """The search for cycles takes a fifth of a replay: states are many small objects without cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Row:
    """One item: its plan, its answers as candidates, and what earlier walks have found out about its states.

    An answer is named by its number, its place in `attempts`.
    """

    __slots__ = (
        "after_stage", "attempts", "candidates", "costs", "numbers", "opinions", "plan", "query",
        "single_opinions", "winners",
    )  # fmt: skip

    def __init__(self, item: RecordedItem, plan: Plan) -> None:
        self.query = item.query
        self.plan = plan
        self.attempts = item.attempts
        self.candidates: list[Candidate] = []
        self.costs: list[tuple[float, float]] = []
        """Dollars of the prompt and of the generated tokens of each attempt."""
        self.numbers: dict[tuple[str, Step], list[int]] = {}
        """Numbers of the answers of each agent at each step, in recorded order."""
        for number, attempt in enumerate(item.attempts):
            self.numbers.setdefault((attempt.agent, attempt.step), []).append(number)
        # memory of earlier walks
        self.single_opinions: list[Opinion] = []
        """Opinion of each candidate alone; empty until needed."""
        self.opinions: dict[Taken, tuple[Opinion, ...]] = {}
        """Opinions of the candidates of a state, with their groups of equal answers."""
        self.after_stage: dict[tuple[Taken, Stage, int], _AfterStage] = {}
        """What follows if this stage is asked in the state with these answers, beginning with this sample."""
        self.winners: dict[tuple[int, Taken], int] = {}
        """Winner by the fusion rule, by the id of the rule and the candidates."""


class _Walk:
    """A policy on its way through the states of one item."""

    __slots__ = ("cost_usd", "plan", "row", "seconds", "state", "taken")

    def __init__(self, row: _Row, plan: Plan) -> None:
        self.row = row
        self.plan = plan
        self.state = State(plan)
        self.taken: Taken = ()
        self.cost_usd = 0.0
        self.seconds = 0.0


class ReplayTable:
    """Recorded items, ready for walks of policies.

    Args:
        items: the items; their tokens are not needed.
        settings: agents, models, fusion and routing.
        prompts: the MD5 of each step's prompt, which identifies statistics of the calibration.
        calibration: statistics and belief; its settings must be in `settings` already.
        difficulty: d(x) of each item, in place of the recorded ones.
        header: of the recording, for reports.

    The numbers of a table hold for these settings; `replaced` makes a table with others.
    """

    def __init__(
        self,
        items: Sequence[RecordedItem],
        settings: Settings,
        prompts: Mapping[Step, str],
        calibration: Calibration | None = None,
        difficulty: Sequence[float] | Array | None = None,
        header: Header | None = None,
    ) -> None:
        self.items = [item.without_tokens() for item in items]
        self.settings = settings
        self.prompts = prompts
        self.calibration = calibration or Calibration()
        self.header = header
        self._agent_sources = {
            (agent, step): configured_source(settings, prompts.get(step, ""), settings.agent(agent).model, agent)
            for agent in settings.agent_names
            for step in (Ask(agent).step, Step.VERIFY)
        }
        self._fusions: dict[FusionSettings, Fusion] = {}
        self.fusion = self.fusion_of(settings)
        self.agents = agents_of(settings, self.calibration, self._agent_sources)
        """Skill and family of each agent."""
        default_cards = {agent: settings.card(settings.agent(agent).model) for agent in settings.agent_names}
        self.reference_usd = reference_price(default_cards)
        """Price of a slow call of ordinary length, the unit of the dial."""
        self._cards = {name: settings.card(name) for agent in default_cards for name in settings.models_of(agent)}
        self._sources: dict[tuple[str, str, Step], Source] = {}
        self._scales: dict[tuple[str, str, Step], _Scale] = {}
        self.outcomes: dict[str, Outcomes] = {}
        """Outcomes of policies by name, once they are known."""
        self._cascades: dict[Hashable, CascadePolicy] = {}
        self._beliefs: dict[Any, RememberingBelief] = {}
        given = [item.difficulty for item in items] if difficulty is None else difficulty
        self.difficulty: Array = np.array(given, dtype=np.float64)
        """d(x) of each item."""
        self._lengths = usual_lengths(settings.agent_names, self.calibration, self._agent_sources)
        self.nominal = is_nominal(default_cards)
        """Whether prices are nominal, because one is unknown or zero."""

    @classmethod
    def from_items(
        cls, items: Sequence[RecordedItem], header: Header, calibration: Calibration | None = None
    ) -> ReplayTable:
        """The table of a recording, with its calibration or with another one.

        If the calibration does not know these models, their energies and signals are compared with those of the
        recording itself, which needs no labels.
        """
        settings = header.to_settings()
        if calibration is not None:
            settings = with_values(settings, calibration.settings)
        table = cls(items, settings, header.prompt_md5s(), calibration or header.to_calibration(), header=header)
        return table if table.is_calibrated else table.replaced(calibration=table.own_calibration())

    def __len__(self) -> int:
        return len(self.items)

    def replaced(
        self,
        *,
        rows: Ints | Bools | None = None,
        settings: Settings | None = None,
        calibration: Calibration | None = None,
        difficulty: Array | None = None,
    ) -> ReplayTable:
        picked = np.arange(len(self)) if rows is None else np.arange(len(self))[rows]
        return ReplayTable(
            [self.items[row] for row in picked],
            settings or self.settings,
            self.prompts,
            calibration or self.calibration,
            (self.difficulty if difficulty is None else difficulty)[picked],
            self.header,
        )

    @cached_property
    @_garbage_collection_paused()
    def _rows(self) -> list[_Row]:
        return [self._make_row(item, d) for item, d in zip(self.items, self.difficulty.tolist(), strict=True)]

    @cached_property
    def _samples(self) -> dict[tuple[str, Step], int]:
        """The number of answers that every item has."""
        keys = {key for row in self._rows for key in row.numbers}
        return {key: min(len(row.numbers.get(key, ())) for row in self._rows) for key in keys}

    @property
    def kinds(self) -> list[str]:
        return [row.plan.kind for row in self._rows]

    @property
    def is_calibrated(self) -> bool:
        """Whether the calibration has statistics of a source of these answers."""
        answers = {(each.agent, each.model, each.step) for item in self.items for each in item.attempts}
        return any(self.source(*each) in self.calibration.statistics for each in answers)

    def own_calibration(self) -> Calibration:
        """The recording's own statistics, without those that need labels."""
        own = {source: replace(each, accuracy=None) for source, each in self.fitted_statistics().items()}
        return replace(self.calibration, statistics=own)

    def column(self, name: str) -> list[Any]:
        return [getattr(item, name) for item in self.items]

    def sets(self) -> list[str]:
        return list(dict.fromkeys(item.key.set for item in self.items))

    def of_set(self, name: str) -> Bools:
        return np.array([item.key.set == name for item in self.items], dtype=bool)

    def scores(self, agent: str) -> Array:
        """The mean score of an agent's answers to each item; NaN for an item without one."""
        key = (agent, Ask(agent).step)
        by_item = ([row.attempts[n].score or 0.0 for n in row.numbers.get(key, ())] for row in self._rows)
        return np.array([np.mean(scores) if scores else np.nan for scores in by_item])

    def candidates_right(self) -> list[list[bool]]:
        """Whether each candidate of each item is right; verifications are not candidates."""
        return [
            [(each.score or 0.0) >= MIN_RIGHT_SCORE for each in item.attempts if each.step is not Step.VERIFY]
            for item in self.items
        ]

    def is_confirmed(self, row: int, winner: int, agents: Collection[str]) -> bool:
        """Whether the first answer of another of these agents equals the winning attempt's."""
        answers = self._rows[row]
        others = [
            answers.numbers[agent, Ask(agent).step][0]
            for agent in agents
            if agent != answers.attempts[winner].agent and (agent, Ask(agent).step) in answers.numbers
        ]
        groups = group_candidates([answers.candidates[number] for number in (winner, *others)])
        return groups[0] >= 0 and groups[0] in groups[1:]

    def fuse(self, fusion: Fusion, policy: Policy | None = None) -> Array:
        """1 for each item if the winner of all its candidates is right, else 0.

        The verdict of the policy counts, if one is given and has one, else that of the fusion rule.
        """
        right = []
        for row, known in zip(self._rows, self.candidates_right(), strict=True):
            taken = tuple(i for i, each in enumerate(row.attempts) if each.step is not Step.VERIFY)
            candidates = tuple(row.candidates[number] for number in taken)
            verdict = None
            if policy is not None:
                verdict = policy.verdict(State(row.plan, (), candidates, opinions=self._opinions(row, taken)))
            right.append(known[(verdict or fusion.choose(candidates, row.query)).winner])
        return np.array(right, dtype=np.float64)

    def fusion_of(self, settings: Settings) -> Fusion:
        """The fusion rule of these settings, with the calibrated skills."""
        if settings.fusion not in self._fusions:
            self._fusions[settings.fusion] = Fusion.from_settings(
                settings.fusion, self.calibration.statistics, self._agent_sources
            )
        return self._fusions[settings.fusion]

    def samples(self, agent: str, step: Step | None = None) -> int:
        """How many answers of an agent every item has, at its usual step or at this one."""
        return self._samples.get((agent, step or Ask(agent).step), 0)

    def has(self, stage: Stage) -> bool:
        """Whether every item has the answers for a stage alone."""
        return all(self.samples(ask.agent, ask.step) >= ask.samples for ask in stage.asks)

    def supported(self, policy: CascadePolicy) -> CascadePolicy:
        """A cascade that asks for no more answers than were recorded."""
        stages = tuple(stage for stage in policy.stages if self.has(stage))
        recorded = {agent: self.samples(agent) for agent in self.agents}
        most = {agent: min(count, policy.max_samples.get(agent, count)) for agent, count in recorded.items()}
        return replace(policy, stages=stages, max_samples=most)

    def source(self, agent: str, model: str, step: Step) -> Source:
        """What identifies an agent's statistics in a calibration, with the token limit of this model."""
        key = (agent, model, step)
        if key not in self._sources:
            own = configured_source(self.settings, self.prompts.get(step, ""), model, agent)
            template = agent_request_template(self.settings.agent(agent), self._cards[model], NO_PARAMETERS, None)
            self._sources[key] = replace(own, max_tokens=template.sampling.max_tokens or own.max_tokens)
        return self._sources[key]

    def _scale(self, attempt: Attempt) -> _Scale:
        key = (attempt.agent, attempt.model, attempt.step)
        if key not in self._scales:
            known = self.calibration.statistics.get(self.source(*key))
            alignment = known.alignment if known is not None and known.count else None
            self._scales[key] = _Scale(alignment, shipped_tables() if known is None else known.tables)
        return self._scales[key]

    @_garbage_collection_paused()
    def walk(
        self,
        policy: Policy,
        *,
        dial: Dial | None = None,
        fusion: Fusion | None = None,
        verdict: Callable[[State], Verdict] | None = None,
        first_sample: int = 0,
        name: str = "",
        note: str = "",
    ) -> Outcomes:
        """The outcome of a policy on every item.

        Args:
            policy: decides in every state.
            dial: in place of the settings'; a target moves from item to item, as it does when questions are served.
            fusion: in place of the settings', where the policy leaves the choice to it.
            verdict: chooses the final answer, in place of policy and fusion.
            first_sample: begin with this sample of every agent; the first ones follow the last one.
            name: name of the outcome; by default the policy's.
            note: explanation for readers of a table.

        Raises:
            InputError: the recording lacks an answer that the policy asks for.
        """
        dial = dial or self.settings.dial()
        fusion = fusion or self.fusion
        belief = None
        # the paper's policy and fixed choices read neither prices nor opinions
        needs_opinions = not isinstance(policy, PaperPolicy | FixedPolicy)
        if isinstance(policy, CascadePolicy):
            belief = self._remembering(policy.belief)
            policy = policy if policy.belief is belief else replace(policy, belief=belief)
        target = TargetState()
        found = []
        # all items at once, unless the value of a right answer depends on what earlier items took
        for part in [[row] for row in self._rows] if dial.target else [self._rows]:
            factor = target.factor(dial.target_value) if dial.target else 1.0
            walks = []
            for row in part:
                plan = row.plan
                if needs_opinions:
                    value = value_of(plan, dial, self.reference_usd) * factor
                    plan = replace(plan, value_usd=value, dial=str(dial))
                walks.append(_Walk(row, plan))
            self._run(walks, policy, belief, first_sample, needs_opinions=needs_opinions)
            found += [self._outcome(walk, policy, fusion, verdict or policy.verdict) for walk in walks]
            if dial.target:
                used = found[-1].calls if dial.target == "calls" else found[-1].cost_usd
                target.count(used, dial.target_value)
        arrays: dict[str, Any] = {
            each: np.array(
                [getattr(outcome, each) for outcome in found],
                dtype=np.int64 if each in ("path", "winner") else np.float64,
            )
            for each in ARRAYS
        }
        stages_asked = tuple(outcome.stages for outcome in found)
        return Outcomes(**arrays, stages=stages_asked, name=name or policy.name, note=note)

    def evidence_after(self, stages: Sequence[Stage] = ()) -> tuple[Evidence, Bools]:
        """What a belief judges by after some stages, as arrays over the items (n), and whether each of the k
        answers is right (n, k).

        Raises:
            InputError: an item lacks an answer.
        """
        walks = []
        for row in self._rows:
            taken: Taken = ()
            for stage in stages:
                taken = self._after_stage(row, taken, stage, 0).taken
            walks.append((row, taken))
        evidence = stacked_evidence([row.plan for row, _ in walks], [self._opinions(*each) for each in walks])
        right = [[(row.attempts[n].score or 0.0) >= MIN_RIGHT_SCORE for n in taken] for row, taken in walks]
        return evidence, np.array(right, dtype=bool)

    def policy_of(self, settings: Settings) -> Policy:
        """The policy of these settings; a cascade without the stages for which too few answers were recorded.

        A cascade is kept for further walks: what may happen in it does not depend on the dial.
        """
        policy = choose_policy(settings, self.calibration, self.agents)
        if not isinstance(policy, CascadePolicy):
            return policy
        policy = self.supported(policy)
        key = (policy.stages, tuple(policy.max_samples.items()))
        if key not in self._cascades:
            self._cascades[key] = replace(policy, belief=self._remembering(policy.belief))
        return self._cascades[key]

    def _remembering(self, belief: Belief) -> RememberingBelief:
        key = tuple(belief.weights.items())
        if key not in self._beliefs:
            self._beliefs[key] = RememberingBelief(belief.weights)
        return self._beliefs[key]

    def _run(
        self,
        walks: Sequence[_Walk],
        policy: Policy,
        belief: RememberingBelief | None,
        first_sample: int,
        *,
        needs_opinions: bool,
    ) -> None:
        """Ask the policy in every state until it stops; items that were asked the same are judged together."""
        groups: dict[tuple[Stage, ...], list[_Walk]] = {(): list(walks)}
        while groups:
            stages, members = groups.popitem()
            if belief is not None:
                belief.prepare([walk.state for walk in members], self.agents)
            for walk in members:
                stage = policy.next_stage(walk.state).stage
                if stage is not None:
                    self._ask(walk, stage, policy, needs_opinions, first_sample)
                    groups.setdefault((*stages, stage), []).append(walk)

    def _ask(self, walk: _Walk, stage: Stage, policy: Policy, needs_opinions: bool, first_sample: int) -> None:
        row = walk.row
        if len(walk.taken) > 1 and any(ask.verify for ask in stage.asks):
            verdict = policy.verdict(walk.state)
            if walk.taken[verdict.winner if verdict else 0] not in row.numbers.get((FAST, Step.ANSWER), ()):
                raise InputError("a verification of another answer than the fast one was not recorded")
        after = self._after_stage(row, walk.taken, stage, first_sample)
        walk.cost_usd += after.cost_usd
        walk.seconds += after.seconds
        walk.taken = after.taken
        opinions = self._opinions(row, after.taken) if needs_opinions else ()
        walk.state = State(walk.plan, (*walk.state.stages, stage), after.candidates, opinions=opinions)

    def _after_stage(self, row: _Row, taken: Taken, stage: Stage, first_sample: int) -> _AfterStage:
        """What one more stage leads to; the same for all policies."""
        key = (taken, stage, first_sample)
        if (known := row.after_stage.get(key)) is not None:
            return known
        new: list[int] = []
        cost_usd = 0.0
        for ask in stage.asks:
            numbers = self._answers(row, ask, taken, first_sample)
            cost_usd += self._cost(row, numbers)
            new += numbers
        times = [row.attempts[number].seconds for number in new]
        seconds = math.nan if None in times else max(each for each in times if each is not None)
        taken = (*taken, *new)
        candidates = tuple([row.candidates[number] for number in taken])
        row.after_stage[key] = _AfterStage(taken, candidates, cost_usd, seconds)
        return row.after_stage[key]

    def _outcome(
        self, walk: _Walk, policy: Policy, fusion: Fusion, decide: Callable[[State], Verdict | None]
    ) -> _ItemOutcome:
        row = walk.row
        taken = walk.taken
        if not taken:
            agents = ", ".join(sorted(walk.plan.agents))
            raise InputError(f"policy {policy.name} asks no agent; the recording holds answers of {agents}")
        verdict = decide(walk.state) if len(taken) > 1 else None
        if len(taken) == 1:
            winner = 0
        elif verdict is not None:
            winner = verdict.winner
        elif (known := row.winners.get((id(fusion), taken))) is not None:
            winner = known
        else:
            winner = fusion.choose(walk.state.candidates, row.query).winner
            row.winners[id(fusion), taken] = winner
        attempts = [row.attempts[number] for number in taken]
        scores = [each.score or 0.0 for each in attempts]
        tokens = sum([math.nan if each.usage.output is None else each.usage.output for each in attempts])
        return _ItemOutcome(
            score=scores[winner],
            cost_usd=walk.cost_usd,
            calls=len(taken),
            seconds=walk.seconds,
            tokens=tokens,
            path=PATHS.index(path_of(walk.state.stages)),
            winner=taken[winner],
            best=max(scores),
            stages=walk.state.stages,
        )

    def _answers(self, row: _Row, ask: Ask, taken: Taken, first_sample: int) -> list[int]:
        """The numbers of the recorded answers that stand for a request, after those that are taken."""
        known = row.numbers.get((ask.agent, ask.step), [])
        begin = sum(number in taken for number in known)
        if begin + ask.samples > len(known):
            what = "verifications" if ask.verify else "answers"
            raise InputError(
                f"{begin + ask.samples} {what} by {ask.agent} are needed, and the recording holds {len(known)} for "
                "an item; odar eval collect … --samples N records more"
            )
        if not first_sample:
            return known[begin : begin + ask.samples]
        return [known[(first_sample + begin + k) % len(known)] for k in range(ask.samples)]

    def _cost(self, row: _Row, numbers: Sequence[int]) -> float:
        """Dollars of a request with these answers, which share the prompt if the model returns several at once."""
        if len(numbers) == 1:
            return sum(row.costs[numbers[0]])
        costs = [row.costs[number] for number in numbers]
        together = self._cards[row.attempts[numbers[0]].model].n
        prompts = max(prompt for prompt, _ in costs) if together else sum(prompt for prompt, _ in costs)
        return prompts + sum(output for _, output in costs)

    def _opinions(self, row: _Row, taken: Taken) -> tuple[Opinion, ...]:
        if (known := row.opinions.get(taken)) is None:
            if not row.single_opinions:
                agents = {name: agent.on(row.plan.kind) for name, agent in self.agents.items()}
                row.single_opinions = [
                    self._single_opinion(each, row.candidates[i], agents[each.agent])
                    for i, each in enumerate(row.attempts)
                ]
            groups = group_candidates([row.candidates[number] for number in taken])
            known = row.opinions[taken] = grouped([row.single_opinions[number] for number in taken], groups)
        return known

    def _single_opinion(self, attempt: Attempt, candidate: Candidate, agent: Agent) -> Opinion:
        assert attempt.signals is not None
        return opinion_of(candidate, attempt.signals, self._scale(attempt).quantiles, agent)

    def _make_row(self, item: RecordedItem, difficulty: float) -> _Row:
        models = {attempt.agent: attempt.model for attempt in item.attempts}
        cards = {agent: self._cards[name] for agent, name in models.items()}
        estimate = Estimate(difficulty, self.settings.routing.estimator)
        assignment = Assignment(item.expert, models=models)
        row = _Row(item, make_plan(Query(item.query), estimate, assignment, cards, Dial(), lengths=self._lengths))
        prices = token_prices(cards)
        for attempt in item.attempts:
            self._add_attempt(row, attempt, prices[attempt.agent])
        return row

    def _add_attempt(self, row: _Row, attempt: Attempt, price: Price) -> None:
        figures = attempt.figures
        energy = None
        if figures is not None and figures.energy is not None and figures.varentropy is not None:
            weight = self.settings.fusion.varentropy_weight
            energy = free_energy(figures.energy, figures.varentropy, weight, self._scale(attempt).alignment)
        row.candidates.append(attempt.to_candidate(energy))
        row.costs.append(_attempt_cost(attempt, price, int(len(row.query) // CHARACTERS_PER_TOKEN)))

    def fitted_statistics(self, rows: Ints | Bools | None = None) -> dict[Source, Statistics]:
        """The statistics of every source, on all recorded answers or on those of some items.

        μ and σ have clipped tails, so that outliers do not move them. A source without log-probabilities has
        quantiles of lengths only: its μ is 0 and its σ is 1.
        """
        items = self.items if rows is None else [self.items[row] for row in np.arange(len(self))[rows]]
        answers: dict[Source, list[tuple[Attempt, int]]] = {}
        for item in items:
            tokens = Query(item.query).estimated_tokens
            for attempt in item.attempts:
                source = self.source(attempt.agent, attempt.model, attempt.step)
                answers.setdefault(source, []).append((attempt, tokens))
        weight = self.settings.fusion.varentropy_weight
        return {source: _statistics(found, weight) for source, found in answers.items()}


def load_table(place: str | Path, calibration: str | None = None, split: str = "") -> ReplayTable:
    """The table of one recording; see `load_tables`."""
    (table,) = load_tables([place], calibration, split).values()
    return table


@_garbage_collection_paused()
def load_tables(
    places: Sequence[str | Path], calibration: str | None = None, split: str = ""
) -> dict[str, ReplayTable]:
    """Tables by file name, joining recordings of the same models and settings.

    An item that is in several files counts once. A file without items of the split is skipped if others have some.

    Args:
        places: the recordings.
        calibration: name or file of a calibration that replaces the one of the recordings.
        split: only items of this split (`calibrate` or `judge`) and those without one.

    Raises:
        InputError: there are no items, or an answer has no score.
    """
    groups: dict[str, list[tuple[str, Recording]]] = {}
    for place in places:
        recording = open_recording(place)
        header = recording.header
        made = json.dumps([header.made_by, header.samples, header.settings, header.calibration], sort_keys=True)
        groups.setdefault(made, []).append((str(place), recording))
    known = None if calibration is None else load_calibration(calibration)
    found = {}
    for members in groups.values():
        items = {item.key: item for _, each in reversed(members) for item in each.items(split, tokens=False)}
        if any(attempt.score is None for item in items.values() for attempt in item.attempts):  # it would be wrong
            raise InputError(
                f"{members[0][0]} has no right answers; odar advise and odar calibrate take slow's as the reference"
            )
        if items:
            name = " ".join(name for name, _ in members)
            found[name] = ReplayTable.from_items(list(items.values()), members[0][1].header, known)
    if not found:
        kind = f"items to {split} with" if split else "finished items yet; collect them with odar eval collect"
        raise InputError(f"{', '.join(map(str, places))} holds no {kind}")
    return found


def shared_rows(first: Sequence[Hashable], second: Sequence[Hashable]) -> tuple[Ints, Ints]:
    """The positions of the shared elements in each of two lists, in the order of the first.

    >>> [rows.tolist() for rows in shared_rows("abc", "ca")]
    [[0, 2], [1, 0]]
    """
    places = {each: i for i, each in enumerate(second)}
    pairs = [(i, places[each]) for i, each in enumerate(first) if each in places]
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def _statistics(answers: Sequence[tuple[Attempt, int]], weight: float) -> Statistics:
    """The statistics of one source; each of its answers is given with the length of the question in tokens."""
    attempts = [attempt for attempt, _ in answers]
    figures = [attempt.figures for attempt in attempts if attempt.figures is not None]
    energies = [
        free_energy(each.energy, each.varentropy, weight).free_energy
        for each in figures
        if each.energy is not None and each.varentropy is not None
    ]
    signals = [attempt.signals for attempt in attempts if attempt.signals is not None]
    right = [attempt.score >= MIN_RIGHT_SCORE for attempt in attempts if attempt.score is not None]
    rest: dict[str, Any] = {
        "quantiles": QuantileTables.of_answers(signals).to_dict() or None,
        "accuracy": round(float(np.mean(right)), 6) if right else None,
        "unanswered": round(float(np.mean([not each.finished for each in signals])), 4) if signals else 0.0,
        "prompt_tokens": _mean(
            [
                None if attempt.usage.input is None else max(0, attempt.usage.input - tokens)
                for attempt, tokens in answers
            ]
        ),
        "output_tokens": _mean([attempt.usage.output for attempt in attempts]),
    }
    if not energies:
        return Statistics(0.0, 1.0, 0, **rest)
    known = np.array(energies)
    clipped = np.clip(known, *np.percentile(known, [1, 99])) if known.size > 2 else known
    deviation = round(float(clipped.std()), 6) or 1.0
    return Statistics(round(float(clipped.mean()), 6), deviation, len(energies), **rest)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 1) if known else None


def _attempt_cost(attempt: Attempt, price: Price, prompt_tokens: int) -> tuple[float, float]:
    """Dollars of the prompt and of the generated tokens: as recorded, or else by the tokens at nominal prices."""
    prompt = attempt.prompt_usd
    output = attempt.output_usd
    if prompt is not None and output is not None and prompt + output:
        return prompt, output
    usage = attempt.usage
    read = prompt_tokens if usage.input is None else usage.input
    written = len(attempt.text) // CHARACTERS_PER_TOKEN if usage.output is None else usage.output
    return read * price.input / 1_000_000, written * price.output / 1_000_000
