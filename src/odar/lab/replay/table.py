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
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from odar.agents.agents import configured_source
from odar.agents.measure import opinion_of, with_groups
from odar.calibration_file import Calibration, Source, Statistics, load_calibration
from odar.call_prices import is_nominal, reference_price, token_prices, usual_lengths
from odar.catalogue import Price
from odar.config import with_values
from odar.errors import InputError
from odar.lab.recording.files import Recording, open_recording
from odar.lab.recording.header import Header
from odar.lab.recording.schema import CHARACTERS_PER_TOKEN, MIN_RIGHT_SCORE, Attempt, RecordedItem
from odar.lab.replay.outcomes import Outcomes
from odar.lab.replay.states import KnownPosterior, ReplayCascade, stacked_evidence
from odar.planning import make_plan, value_of
from odar.policy.arrays import Array, Bools, Ints
from odar.policy.base import FixedPolicy, Policy
from odar.policy.belief import Evidence, Opinion
from odar.policy.cascade import CascadePolicy
from odar.policy.dial import Dial, TargetState
from odar.policy.energy import Alignment, free_energy
from odar.policy.equivalence import group_candidates
from odar.policy.fusion import Fusion
from odar.policy.paper import PATHS, PaperPolicy
from odar.policy.policies import choose_policy, rate_agents
from odar.policy.signals import QuantileTables, shipped_tables
from odar.settings import Settings
from odar.types import FAST, Ask, Assignment, Candidate, Estimate, Plan, Query, Stage, State, Step, Verdict, path_of


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """The search for cycles takes a fifth of a replay, because states are many small objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(slots=True, eq=False)
class _Node:
    """A state of an item: some of its answers, and the states that follow when more are asked for."""

    row: _Row
    first_sample: int
    """The sample with which every agent begins."""
    stages: tuple[Stage, ...] = ()
    taken: tuple[int, ...] = ()
    """Numbers of its answers, in the order in which they were asked for."""
    candidates: tuple[Candidate, ...] = ()
    scores: tuple[float, ...] = ()
    cost_usd: float = 0.0
    seconds: float = 0.0
    """NaN if unknown."""
    tokens: float = 0.0
    """Generated tokens; NaN if unknown."""
    opinions: tuple[Opinion, ...] = ()
    """Empty until a policy needs them."""
    following: dict[Stage, _Node] = field(default_factory=dict)
    winners: dict[int, int] = field(default_factory=dict)
    """The winning candidate by the number of the fusion rule."""


@dataclass(slots=True, eq=False)
class _Row:
    """One item, and the states that walks have reached. Answers are identified by their position in the item."""

    item: RecordedItem
    plan: Plan
    candidates: list[Candidate] = field(default_factory=list)
    costs: list[tuple[float, float]] = field(default_factory=list)
    """Dollars of the prompt and of the generated tokens of each answer."""
    numbers: dict[tuple[str, Step], list[int]] = field(default_factory=dict)
    """Numbers of the answers of each agent at each step, in recorded order."""
    opinions: list[Opinion] = field(default_factory=list)
    """Opinion of each candidate alone; empty until a policy needs them."""
    roots: dict[int, _Node] = field(default_factory=dict)

    def root(self, first_sample: int) -> _Node:
        """The state before the first call, if every agent begins with this sample."""
        return self.roots.setdefault(first_sample, _Node(self, first_sample))


class ReplayTable:
    """Recorded items, ready for walks of policies.

    Args:
        items: the items; their tokens are not needed.
        settings: agents, models, fusion and routing.
        prompts: the MD5 of each step's prompt, which identifies statistics of the calibration.
        calibration: statistics and belief; its settings must be in `settings` already.
        header: of the recording, for reports.

    Its items and settings do not change; `replaced` makes another table.
    """

    def __init__(
        self,
        items: Sequence[RecordedItem],
        settings: Settings,
        prompts: Mapping[Step, str],
        calibration: Calibration | None = None,
        header: Header | None = None,
    ) -> None:
        self.items = [item.without_tokens() for item in items]
        self.settings = settings
        self.prompts = prompts
        self.calibration = calibration or Calibration()
        self.header = header
        self._cards = {
            name: settings.card(name) for agent in settings.agent_names for name in settings.models_of(agent)
        }
        self._agent_sources = {
            (agent, step): self.source(agent, step=step)
            for agent in settings.agent_names
            for step in (Ask(agent).step, Step.VERIFY)
        }
        self._fusions: dict[Hashable, int] = {}
        """Numbers of the fusion rules that walks have used."""
        self.agents = rate_agents(settings, self.calibration, self._agent_sources)
        """Skill and family of each agent."""
        default_cards = {agent: self._cards[model] for agent, model in settings.default_models.items()}
        self.reference_usd = reference_price(default_cards)
        """Price of a slow call of ordinary length, the unit of the dial."""
        self._scales: dict[tuple[str, str, Step], tuple[Alignment | None, QuantileTables]] = {}
        self.outcomes: dict[str, Outcomes] = {}
        """Outcomes of policies by name, once they are known."""
        self._cascades: dict[Hashable, ReplayCascade] = {}
        self._posteriors: dict[Hashable, KnownPosterior] = {}
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
        table = cls(items, settings, header.prompt_md5s(), calibration or header.to_calibration(), header)
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
        """The table of these rows, with other settings, calibration or difficulty; that is given for all rows."""
        items = self.items
        if difficulty is not None:
            items = [replace(item, difficulty=d) for item, d in zip(items, difficulty.tolist(), strict=True)]
        if rows is not None:
            items = [items[row] for row in np.arange(len(self))[rows]]
        calibration = calibration or self.calibration
        return ReplayTable(items, settings or self.settings, self.prompts, calibration, self.header)

    @cached_property
    @_garbage_collection_paused()
    def _rows(self) -> list[_Row]:
        return list(map(self._make_row, self.items))

    @cached_property
    def _samples(self) -> dict[tuple[str, Step], int]:
        """The number of answers that every item has."""
        keys = {key for row in self._rows for key in row.numbers}
        return {key: min(len(row.numbers.get(key, ())) for row in self._rows) for key in keys}

    @property
    def difficulty(self) -> Array:
        """d(x) of each item."""
        return np.array(self.column("difficulty"), dtype=np.float64)

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
        own = (agent, Ask(agent).step)
        by_item = ([a.score or 0.0 for a in item.attempts if (a.agent, a.step) == own] for item in self.items)
        return np.array([np.mean(scores) if scores else np.nan for scores in by_item])

    @property
    def all_answers(self) -> Stage:
        """The stage that asks for every recorded answer at once, except verifications."""
        return Stage(tuple(Ask(agent, count) for agent in self.agents if (count := self.samples(agent))))

    def fusion_of(self, settings: Settings) -> Fusion:
        """The fusion rule of these settings, with the calibrated skills."""
        return Fusion.from_settings(settings.fusion, self.calibration.statistics, self._agent_sources)

    def samples(self, agent: str, step: Step | None = None) -> int:
        """How many answers of an agent every item has, at its usual step or at this one."""
        return self._samples.get((agent, step or Ask(agent).step), 0)

    def has(self, stage: Stage) -> bool:
        """Whether every item has the answers for a stage alone."""
        return all(self.samples(ask.agent, ask.step) >= ask.samples for ask in stage.asks)

    def source(self, agent: str, model: str = "", step: Step | None = None) -> Source:
        """What identifies an agent's statistics in a calibration, by default of its own model at its usual step."""
        card = self._cards[model or self.settings.agent(agent).model]
        return configured_source(self.settings, self.prompts.get(step or Ask(agent).step, ""), card, agent)

    def _scale(self, attempt: Attempt) -> tuple[Alignment | None, QuantileTables]:
        """What the energy of an answer (if that is calibrated) and its signals are compared with."""
        key = (attempt.agent, attempt.model, attempt.step)
        if key not in self._scales:
            known = self.calibration.statistics.get(self.source(*key))
            alignment = known.alignment if known is not None and known.count else None
            self._scales[key] = alignment, shipped_tables() if known is None else known.tables
        return self._scales[key]

    @_garbage_collection_paused()
    def walk(
        self,
        policy: Policy,
        *,
        dial: Dial | None = None,
        fusion: Fusion | None = None,
        verdict: Callable[[State], Verdict | None] | None = None,
        first_sample: int = 0,
    ) -> Outcomes:
        """The outcome of a policy on every item.

        Args:
            policy: decides in every state.
            dial: in place of the settings'; a target moves from item to item, as it does when questions are served.
            fusion: in place of the settings', where the policy leaves the choice to it.
            verdict: chooses the final answer, in place of the policy; None leaves it to the fusion rule.
            first_sample: begin with this sample of every agent; the first ones follow the last one.

        Raises:
            InputError: the recording lacks an answer that the policy asks for.
        """
        dial = dial or self.settings.dial()
        fusion = fusion or self.fusion_of(self.settings)
        skills = tuple(sorted(fusion.skills.items()))
        rule = self._fusions.setdefault((fusion.rule, fusion.beta, fusion.similarity, skills), len(self._fusions))
        decide = verdict or policy.verdict
        # the paper's policy and fixed choices read neither prices nor opinions
        needs_opinions = verdict is not None or not isinstance(policy, PaperPolicy | FixedPolicy)
        target = TargetState()
        nodes: list[_Node] = []
        winners: list[int] = []
        # all items at once, unless the value of a right answer depends on what earlier items took
        for part in [[row] for row in self._rows] if dial.target else [self._rows]:
            factor = target.factor(dial.target_value) if dial.target else 1.0
            plans = [row.plan for row in part]
            if needs_opinions:
                values = [value_of(plan, dial, self.reference_usd) * factor for plan in plans]
                plans = [
                    replace(plan, value_usd=value, dial=str(dial))
                    for plan, value in zip(plans, values, strict=True)
                ]
            starts = [row.root(first_sample) for row in part]
            for node, state in self._run(starts, plans, policy, needs_opinions=needs_opinions):
                if not node.taken:
                    agents = ", ".join(sorted(node.row.plan.models))
                    raise InputError(f"policy {policy.name} asks no agent; the recording holds answers of {agents}")
                chosen = decide(state) if len(node.taken) > 1 else None
                nodes.append(node)
                winners.append(_fused(node, fusion, rule) if chosen is None else chosen.winner)
            if dial.target:
                used = len(nodes[-1].taken) if dial.target == "calls" else nodes[-1].cost_usd
                target.count(used, dial.target_value)
        # one array entry for each item
        floats = partial(np.array, dtype=np.float64)
        won = list(zip(nodes, winners, strict=True))
        return Outcomes(
            score=floats([node.scores[winner] for node, winner in won]),
            cost_usd=floats([node.cost_usd for node in nodes]),
            calls=floats([len(node.taken) for node in nodes]),
            seconds=floats([node.seconds for node in nodes]),
            tokens=floats([node.tokens for node in nodes]),
            path=np.array([PATHS.index(path_of(node.stages)) for node in nodes]),
            winner=np.array([node.taken[winner] for node, winner in won]),
            best=floats([max(node.scores) for node in nodes]),
            stages=tuple(node.stages for node in nodes),
            name=policy.name,
        )

    def evidence_after(self, stages: Sequence[Stage] = ()) -> tuple[Evidence, Bools]:
        """What a belief judges by after some stages, as arrays over the items (n), and whether each of the k
        answers is right (n, k).

        Raises:
            InputError: an item lacks an answer.
        """
        nodes = []
        for row in self._rows:
            node = row.root(0)
            for stage in stages:
                node = self._after(node, stage)
            nodes.append(node)
        plans = [row.plan for row in self._rows]
        opinions = list(map(self._opinions, nodes))
        right = [[score >= MIN_RIGHT_SCORE for score in node.scores] for node in nodes]
        return stacked_evidence(plans, opinions), np.array(right, dtype=bool)

    def policy_of(self, settings: Settings) -> Policy:
        """The policy of these settings; a cascade without the stages for which too few answers were recorded.

        A cascade is kept for further walks: what may happen in it does not depend on the dial.
        """
        policy = choose_policy(settings, self.calibration, self.agents)
        if not isinstance(policy, CascadePolicy):
            return policy
        stages = tuple(stage for stage in policy.stages if self.has(stage))
        most = {agent: min(self.samples(agent), policy.max_samples[agent]) for agent in self.agents}
        key = (stages, tuple(most.items()))
        if key not in self._cascades:
            self._cascades[key] = ReplayCascade(stages, policy.agents, policy.belief, most, self._posteriors)
        return self._cascades[key]

    def _run(
        self, starts: Sequence[_Node], plans: Sequence[Plan], policy: Policy, *, needs_opinions: bool
    ) -> list[tuple[_Node, State]]:
        """Ask the policy in every state until it stops; items that were asked the same are judged together."""
        nodes = list(starts)
        states = list(map(State, plans))
        groups: dict[tuple[Stage, ...], list[int]] = {(): list(range(len(nodes)))}
        while groups:
            _, members = groups.popitem()
            if isinstance(policy, ReplayCascade):
                policy.prepare([states[i] for i in members])
            for i in members:
                stage = policy.next_stage(states[i]).stage
                if stage is None:
                    continue
                if len(nodes[i].taken) > 1 and any(ask.verify for ask in stage.asks):
                    _check_verified(nodes[i], policy.verdict(states[i]))
                nodes[i] = node = self._after(nodes[i], stage)
                opinions = self._opinions(node) if needs_opinions else ()
                states[i] = State(plans[i], node.stages, node.candidates, opinions=opinions)
                groups.setdefault(node.stages, []).append(i)
        return list(zip(nodes, states, strict=True))

    def _after(self, node: _Node, stage: Stage) -> _Node:
        """The state of an item after one more stage; the same for all policies."""
        if (known := node.following.get(stage)) is not None:
            return known
        row = node.row
        new: list[int] = []
        cost_usd = 0.0
        for ask in stage.asks:
            numbers = _answers(node, ask)
            cost_usd += self._cost(row, numbers)
            new += numbers
        attempts = [row.item.attempts[number] for number in new]
        times = [attempt.seconds for attempt in attempts]
        tokens = [attempt.usage.output for attempt in attempts]
        node.following[stage] = _Node(
            row,
            node.first_sample,
            (*node.stages, stage),
            (*node.taken, *new),
            (*node.candidates, *[row.candidates[number] for number in new]),
            (*node.scores, *[attempt.score or 0.0 for attempt in attempts]),
            node.cost_usd + cost_usd,
            node.seconds + (math.nan if None in times else max(each for each in times if each is not None)),
            node.tokens + sum([math.nan if count is None else count for count in tokens]),
        )
        return node.following[stage]

    def _cost(self, row: _Row, numbers: Sequence[int]) -> float:
        """Dollars of a request with these answers, which share the prompt if the model returns several at once."""
        if len(numbers) == 1:
            return sum(row.costs[numbers[0]])
        costs = [row.costs[number] for number in numbers]
        one_request = self._cards[row.item.attempts[numbers[0]].model].n
        prompts = max(prompt for prompt, _ in costs) if one_request else sum(prompt for prompt, _ in costs)
        return prompts + sum(output for _, output in costs)

    def _opinions(self, node: _Node) -> tuple[Opinion, ...]:
        """What a belief sees of the candidates of a state."""
        row = node.row
        if not row.opinions:
            agents = {name: agent.on(row.plan.kind) for name, agent in self.agents.items()}
            for attempt, candidate in zip(row.item.attempts, row.candidates, strict=True):
                assert attempt.signals is not None
                _, quantiles = self._scale(attempt)
                row.opinions.append(opinion_of(candidate, attempt.signals, quantiles, agents[attempt.agent]))
        if not node.opinions:
            own = [row.opinions[number] for number in node.taken]
            node.opinions = with_groups(own, group_candidates(node.candidates))
        return node.opinions

    def _make_row(self, item: RecordedItem) -> _Row:
        models = {attempt.agent: attempt.model for attempt in item.attempts}
        cards = {agent: self._cards[name] for agent, name in models.items()}
        estimate = Estimate(item.difficulty, self.settings.routing.estimator)
        assignment = Assignment(item.expert, models=models)
        plan = make_plan(Query(item.query), estimate, assignment, cards, Dial(), lengths=self._lengths)
        prices = token_prices(cards)
        question_tokens = int(len(item.query) // CHARACTERS_PER_TOKEN)
        row = _Row(item, plan)
        for number, attempt in enumerate(item.attempts):
            figures = attempt.figures
            energy = None
            if figures is not None and figures.energy is not None and figures.varentropy is not None:
                alignment, _ = self._scale(attempt)
                weight = self.settings.fusion.varentropy_weight
                energy = free_energy(figures.energy, figures.varentropy, weight, alignment)
            row.candidates.append(replace(attempt, energy=energy))
            row.costs.append(_attempt_cost(attempt, prices[attempt.agent], question_tokens))
            row.numbers.setdefault((attempt.agent, attempt.step), []).append(number)
        return row

    def fitted_statistics(self) -> dict[Source, Statistics]:
        """The statistics of every source on all recorded answers.

        μ and σ have clipped tails, so that outliers do not move them. A source without log-probabilities has
        quantiles of lengths only: its μ is 0 and its σ is 1.
        """
        by_agent: dict[tuple[str, str, Step], list[tuple[Attempt, int]]] = defaultdict(list)
        for item in self.items:
            tokens = Query(item.query).estimated_tokens
            for attempt in item.attempts:
                by_agent[attempt.agent, attempt.model, attempt.step].append((attempt, tokens))
        by_source: dict[Source, list[tuple[Attempt, int]]] = defaultdict(list)
        for key, answers in by_agent.items():
            by_source[self.source(*key)] += answers
        weight = self.settings.fusion.varentropy_weight
        return {source: _statistics(answers, weight) for source, answers in by_source.items()}


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
        split: only items of this split (`calibrate` or `held-out`) and those without one.

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


def _answers(node: _Node, ask: Ask) -> list[int]:
    """The numbers of the recorded answers that stand for a request, after those that the state holds."""
    known = node.row.numbers.get((ask.agent, ask.step), [])
    begin = sum(number in node.taken for number in known)
    if begin + ask.samples > len(known):
        what = "verifications" if ask.verify else "answers"
        raise InputError(
            f"{begin + ask.samples} {what} by {ask.agent} are needed, and the recording holds {len(known)} for "
            "an item; odar eval collect … --samples N records more"
        )
    if not node.first_sample:
        return known[begin : begin + ask.samples]
    return [known[(node.first_sample + begin + k) % len(known)] for k in range(ask.samples)]


def _check_verified(node: _Node, verdict: Verdict | None) -> None:
    """Raise InputError if the answer to be verified, which leads now, is not that of the fast agent."""
    if node.taken[verdict.winner if verdict else 0] not in node.row.numbers.get((FAST, Step.ANSWER), ()):
        raise InputError("a verification of another answer than the fast one was not recorded")


def _fused(node: _Node, fusion: Fusion, number: int) -> int:
    """The winner of a state's candidates by a fusion rule; the node keeps it by the number of the rule."""
    if len(node.candidates) == 1:
        return 0
    if number not in node.winners:
        node.winners[number] = fusion.choose(node.candidates, node.row.item.query).winner
    return node.winners[number]


def _statistics(answers: Sequence[tuple[Attempt, int]], weight: float) -> Statistics:
    """The statistics of one source; each of its answers is given with the length of the question in tokens."""
    attempts = [attempt for attempt, _ in answers]
    energies = [
        free_energy(figures.energy, figures.varentropy, weight, None).free_energy
        for figures in (attempt.figures for attempt in attempts)
        if figures is not None and figures.energy is not None and figures.varentropy is not None
    ]
    clipped = np.clip(energies, *np.percentile(energies, [1, 99])) if len(energies) > 2 else np.array(energies)
    signals = [attempt.signals for attempt in attempts if attempt.signals is not None]
    right = [attempt.score >= MIN_RIGHT_SCORE for attempt in attempts if attempt.score is not None]
    prompts = [max(0, each.usage.input - tokens) for each, tokens in answers if each.usage.input is not None]
    outputs = [attempt.usage.output for attempt in attempts if attempt.usage.output is not None]
    return Statistics(
        mean=_mean(clipped, 6) or 0.0,
        deviation=round(float(clipped.std()), 6) or 1.0 if energies else 1.0,
        count=len(energies),
        accuracy=_mean(right, 6),
        quantiles=QuantileTables.of_answers(signals).to_dict() or None,
        prompt_tokens=_mean(prompts, 1),
        output_tokens=_mean(outputs, 1),
        unanswered=_mean([not each.finished for each in signals], 4) or 0.0,
    )


def _mean(values: Sequence[float] | Array, digits: int) -> float | None:
    return round(float(np.mean(values)), digits) if len(values) else None


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
