"""A conversation keeps its agent unless a change is worth more than the prompt cache it loses."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from odar.catalogue import Price
from odar.conversation import Message
from odar.policy.path import Routing, Thresholds
from odar.policy.session import CACHE_S, Session, SessionRequest
from odar.types import Assignment, Call, Decision, Estimate, Path, Query, Role, Step, Usage

PRICES = {Role.FAST: Price(0.2, 0.02, 1.25), Role.SLOW: Price(2.5, 0.25, 15.0)}
ROUTING = Routing(Thresholds(0.3, 0.7), 5, uses_posterior=True, clearly_hard=0.85)
PAIR = Assignment(fast="quick", slow="deep")
LONG = Message("user", "word " * 16_000)
TURN = Query.from_messages((LONG, Message("assistant", "done"), Message("user", "and now?")))
STEP = Query.from_messages((LONG, Message("assistant", ""), Message("tool", "3 passed", tool_call_id="c1")))


def decide(request: SessionRequest, d: float) -> Decision:
    return request.decide(ROUTING, Estimate(d, "test"), PAIR, PRICES)


def call(step: Step, tokens: int = 20_000, cached: int = 0, error: str | None = None) -> Call:
    return Call(step, "p", "m", 1, Usage(tokens, cached, 50, 0), 0.01, 1.0, error=error)


def on(agent: Role, **changes: object) -> Session:
    """Return a session in progress whose whole conversation is in the cache of `agent` at time 0."""
    begun = Session(agent, ("quick", "deep"), requests=3, difficulty=0.6, read={agent: (20_000, 0.0)})
    return replace(begun, **changes)  # type: ignore[arg-type]


def test_a_first_request_is_routed_by_difficulty_alone() -> None:
    for d, path in [(0.1, Path.SIMPLE), (0.5, Path.MEDIUM), (0.9, Path.HARD)]:
        decision = decide(Session().request(TURN, 0.0), d)
        assert (decision.path, decision.session and decision.session.event) == (path, "start")


def test_cached_tokens_move_the_thresholds_of_a_new_turn() -> None:
    for d, path in [(0.5, Path.SIMPLE), (0.9, Path.MEDIUM)]:  # else medium and hard
        assert decide(on(Role.FAST).request(TURN, 1.0), d).path is path
    kept = decide(on(Role.SLOW).request(TURN, 1.0), 0.29)
    assert kept.path is Path.MEDIUM
    assert kept.alone
    assert decide(on(Role.SLOW).request(TURN, 1.0), 0.1).path is Path.SIMPLE
    full = decide(on(Role.SLOW).request(TURN, 1.0), 0.5)
    assert not full.alone


def test_caches_count_only_while_they_last_and_only_for_the_same_conversation() -> None:
    session = on(Role.SLOW)
    assert session.request(TURN, CACHE_S + 1).ratio(PRICES) == 1
    assert session.request(TURN, 1.0, same_prefix=False).ratio(PRICES) == 1
    assert session.request(TURN, 1.0).ratio(PRICES) < 1
    assert on(Role.FAST).request(TURN, 1.0).ratio(PRICES) > 2


def test_a_tool_loop_stays_with_its_agent_and_the_slow_one_works_alone() -> None:
    fast = decide(on(Role.FAST).request(STEP, 1.0), 0.9)
    assert fast.path is Path.SIMPLE and ROUTING.needs_fast_answer(fast)
    slow = decide(on(Role.SLOW).request(STEP, 1.0), 0.1)
    assert slow.path is Path.MEDIUM and slow.alone
    assert not ROUTING.needs_fast_answer(slow)


def test_the_second_escalation_of_a_turn_is_not_considered_but_that_of_the_next_turn_is() -> None:
    spent = on(Role.FAST, escalated=True)
    assert not ROUTING.needs_fast_answer(decide(spent.request(STEP, 1.0), 0.1))
    new = spent.request(TURN, 1.0)
    assert ROUTING.needs_fast_answer(decide(new, 0.1))
    after = new.after(new.settle(decide(new, 0.1), [call(Step.ANSWER)], PRICES), [call(Step.ANSWER)], 2.0)
    assert not after.escalated


def test_a_session_returns_to_the_fast_agent_after_the_hard_part() -> None:
    session, agents = on(Role.SLOW, difficulty=0.9), []
    for second in range(8):
        request = session.request(STEP, float(second))
        decision = decide(request, 0.1)
        calls = [call(Step.ANSWER if decision.path is Path.SIMPLE else Step.SOLVE)]
        settled = request.settle(decision, calls, PRICES)
        session = request.after(settled, calls, float(second))
        agents.append(session.agent)
    assert agents == [Role.SLOW] * 4 + [Role.FAST] * 4
    assert session.switches == 1


def test_an_escalation_in_a_loop_is_counted_and_kept() -> None:
    request = on(Role.FAST).request(STEP, 1.0)
    looked = ROUTING.reconsider(decide(request, 0.1), 0.8)
    calls = [call(Step.ANSWER, cached=15_000), call(Step.SOLVE)]
    settled = request.settle(looked, calls, PRICES)
    assert settled.session is not None
    assert (settled.session.event, settled.session.switches, settled.session.cached_tokens) == (
        "escalate",
        1,
        15_000,
    )
    after = request.after(settled, calls, 2.0)
    assert (after.agent, after.escalated, after.difficulty, after.path) == (Role.SLOW, True, 0.8, Path.HARD)


def test_a_failed_slow_agent_does_not_continue_the_session() -> None:
    request = on(Role.SLOW).request(STEP, 1.0)
    calls = [call(Step.SOLVE, error="down"), call(Step.ANSWER)]
    settled = request.settle(decide(request, 0.1), calls, PRICES)
    assert settled.session is not None and settled.session.event == "return"
    assert request.after(settled, calls, 2.0).agent is Role.FAST


def test_further_slow_answers_are_paid_from_the_savings_of_the_session() -> None:
    turn = on(Role.SLOW).request(TURN, 1.0)
    hard = decide(turn, 0.9)
    assert (hard.path, hard.alone) == (Path.HARD, False)
    assert turn.afford(hard, PRICES).alone
    rich = replace(turn, session=replace(turn.session, saved=1e6))
    assert not rich.afford(hard, PRICES).alone
    assert turn.afford(decide(turn, 0.1), PRICES).path is Path.SIMPLE


def test_a_first_request_with_tools_is_limited_to_one_slow_answer() -> None:
    first = Session().request(TURN, 0.0)
    assert not first.afford(decide(first, 0.9), PRICES).alone
    with_tools = replace(first, has_tools=True)
    assert with_tools.afford(decide(with_tools, 0.9), PRICES).alone
    assert with_tools.may_skip_fast and not first.may_skip_fast


def test_a_fast_answer_saves_what_the_slow_one_would_have_cost_with_its_cache() -> None:
    request = on(Role.FAST).request(TURN, 1.0)
    slow_alone = 20_000 * 0.25 + 50 * 15.0  # 20,000 tokens were read before
    fast = 20_000 * 0.02 + 50 * 1.25
    assert request.saving([call(Step.ANSWER, cached=20_000)], PRICES) == slow_alone - fast
    assert request.saving([call(Step.SOLVE, cached=20_000)], PRICES) == 0
    assert request.saving([call(Step.SOLVE)], PRICES) == -20_000 * (2.5 - 0.25)  # escalation reads all again


def test_a_turn_that_escalates_to_the_slow_agent_alone_counts_as_escalated() -> None:
    request = on(Role.FAST).request(STEP, 1.0)
    looked = request.afford(ROUTING.reconsider(decide(request, 0.1), 0.8), PRICES)
    assert looked.alone
    calls = [call(Step.ANSWER, cached=15_000), call(Step.SOLVE)]
    after = request.after(request.settle(looked, calls, PRICES), calls, 2.0)
    assert (after.agent, after.escalated, after.difficulty, after.steps) == (Role.SLOW, True, 0.8, 0)


def test_models_that_cannot_be_used_any_more_are_not_kept() -> None:
    request, other = on(Role.FAST).request(TURN, 1.0), Assignment(fast="other", slow="deep")
    assert request.keep_pair(other, {Role.FAST: ["other", "quick"], Role.SLOW: ["deep"]}).fast == "quick"
    assert request.keep_pair(other, {Role.FAST: ["other"], Role.SLOW: ["deep"]}).fast == "other"


@given(st.sampled_from(Role), st.integers(0, 40_000), st.floats(0, 1), st.booleans(), st.booleans())
def test_more_difficulty_never_means_less_compute(
    agent: Role, cached: int, d: float, known: bool, loop: bool
) -> None:
    session = on(agent, read={agent: (cached, 0.0)})
    request = session.request(STEP if loop else TURN, 1.0)
    prices = PRICES if known else {Role.FAST: None, Role.SLOW: Price(0, 0, 0)}
    easy, hard = (request.decide(ROUTING, Estimate(x, "t"), PAIR, prices) for x in (d / 2, d))
    assert list(Path).index(easy.path) <= list(Path).index(hard.path)
    assert request.ratio(prices) >= 0
