"""What has changed in a live document, and the rates and quantiles in it: against the plain definitions."""

from dataclasses import dataclass

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tg_base.telemetry import Cells, labels
from tg_gateway.relay.answer_metrics import AnswerMetrics
from tg_gateway.relay.live_rates import MAX_MARKS, LiveRates, find_quantile
from tg_schema.live import LIVE_TABLES, LiveDocument, LiveGateway, LivePool, LiveProcessor, LiveQueue, LiveStream

NAMES = st.sampled_from(["a", "b", "c", "\u2028"])
DOCUMENTS = st.builds(
    LiveDocument,
    whole=st.just(True),
    totals=st.dictionaries(st.sampled_from(LIVE_TABLES), st.integers(0, 9)),
    gateways=st.dictionaries(NAMES, st.from_type(LiveGateway)),
    queues=st.dictionaries(NAMES, st.from_type(LiveQueue)),
    processors=st.dictionaries(NAMES, st.from_type(LiveProcessor)),
    pools=st.dictionaries(NAMES, st.from_type(LivePool)),
    streams=st.dictionaries(NAMES, st.from_type(LiveStream)),
)


def patch(target: object, change: object) -> object:
    """RFC 7396, section 2."""
    if not isinstance(change, dict):
        return change
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = patch(found.get(name), value)
    return found


@given(DOCUMENTS, DOCUMENTS)
def test_a_change_leads_from_one_document_to_the_next(before: LiveDocument, after: LiveDocument) -> None:
    change = after.since(before)
    assert before.apply(change) == after
    assert after.apply(before) == before
    for name in LIVE_TABLES:
        was, now, told = getattr(before, name), getattr(after, name), getattr(change, name)
        assert told.keys() == {each for each in was.keys() | now.keys() if was.get(each) != now.get(each)}
        merged = patch(msgspec.to_builtins(was), msgspec.to_builtins(told))
        # Null within a row means unknown; a merge patch has no such value, and leaves the field out.
        assert msgspec.convert(merged, dict[str, object]).keys() == now.keys()


@given(st.lists(st.floats(0, 100), max_size=40), st.sampled_from([0.5, 0.99]))
def test_a_quantile_lies_within_the_bounds_of_the_true_one(observed: list[float], share: float) -> None:
    cells = Cells(labels.SECONDS)
    for each in observed:
        cells.observe(each)
    found = find_quantile(cells.counts, share)
    if not observed:
        assert found is None
        return
    true = next(each for place, each in enumerate(sorted(observed), 1) if place >= share * len(observed))
    bounds = (0.0, *labels.SECONDS)
    low = max((each for each in bounds if each < true), default=0.0)
    high = min((each for each in labels.SECONDS if each >= true), default=bounds[-1])
    assert found is not None
    assert min(low, bounds[-1]) <= found <= high or true > bounds[-1] == found


@dataclass
class _Place:
    letters: int
    errors: int
    first: float


@given(st.lists(st.builds(_Place, st.integers(0, 1000), st.integers(0, 3), st.sampled_from(labels.SECONDS))))
def test_rates_are_of_the_window_alone(happened: list[_Place]) -> None:
    """What came before the oldest mark does not count, nor what another gateway of this process has counted."""
    flow = "flow-of-rates"
    metrics = {("s", model, flow): AnswerMetrics("s", model, flow) for model in ("m", "n")}
    rates = LiveRates(metrics)
    for before in (True, False):
        for place in happened:
            for each in metrics.values():
                each.letters += place.letters
                each.errors += place.errors
                each.first_token.observe(place.first)
        if before:
            for _ in range(10):
                rates.mark()
    window = rates.window
    assert window < 60
    if not happened:
        assert rates.measure() == {}
        return
    tokens, errors, firsts, _ = rates.measure()[flow, "s"]
    assert errors == 2 * sum(each.errors for each in happened)
    assert find_quantile(firsts, 0.5) is not None
    assert tokens > 0 or not any(each.letters for each in happened)


def test_rates_of_a_place_that_was_forgotten_begin_anew() -> None:
    """As the relay does beyond so many places."""
    place = ("s", "m", "flow-of-forgotten-rates")
    metrics = {place: AnswerMetrics(*place)}
    rates = LiveRates(metrics)
    metrics[place].letters, metrics[place].errors = 4_000_000, 7
    for _ in range(MAX_MARKS):
        rates.mark()
    metrics[place] = AnswerMetrics(*place)
    metrics[place].errors += 1
    found = rates.measure()[place[2], place[0]]
    assert (found.tokens, find_quantile(found.firsts, 0.5), found.errors) == (0.0, None, 1)


def test_a_histogram_that_places_share_counts_once() -> None:
    """As those of all models beyond a thousand do."""
    flow = "flow-of-shared-rates"
    several = {("s", model, flow): AnswerMetrics("s", "other", flow) for model in ("m", "n", "o")}
    metrics = {("s", "p", flow): AnswerMetrics("s", "p", flow), **several}
    rates = LiveRates(metrics)
    for seconds, model in ((0.001, "m"), (60, "p"), (60, "p")):
        metrics["s", model, flow].first_token.observe(seconds)
    assert find_quantile(rates.measure()[flow, "s"].firsts, 0.5) == 37.5
