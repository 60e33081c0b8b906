"""Each policy's decisions, worked by hand. Servers are single letters; a result names all that a seed may choose."""

from itertools import product
from pathlib import Path
from random import Random

import pytest

from bench.instances.baselines.policies import ALL_POLICIES
from tests.installed_package import install_package
from tests.picker.core.cases import choices, choose, request, server, told
from tg_picker.core import (
    AdapterReport,
    Endpoint,
    Fingerprint,
    InstanceRequest,
    LoadReport,
    Pick,
    Policy,
    Refusal,
    Scheduler,
    SchedulingContext,
    ServerState,
    load_policy,
)
from tg_schema import TgError
from tg_schema.errors import BadRequest, Internal, Unavailable

BASE, X, Y = request(), request("x"), request("y")


LOW = request("x", priority=-1)
TEN = tuple(range(10))


LONG = request(tokens=1000, blocks=TEN)


def policy(name: str) -> Policy:
    return ALL_POLICIES[name]()


def cached(state: ServerState, blocks: tuple[int, ...]) -> ServerState:
    state.prefixes.add(Fingerprint(blocks))
    return state


def loaded(state: ServerState, tokens: int) -> ServerState:
    """With so many tokens to compute, of a prompt that is over in the table's terms."""
    state.uncached_tokens = tokens
    return state


def test_random_may_choose_any() -> None:
    assert choices(policy("random"), BASE, server("a"), server("b"), server("c", told(99, 1.0))) == "abc"


def test_round_robin_takes_turns() -> None:
    turn, servers = policy("round-robin"), (server("a"), server("b"), server("c"))
    assert [choose(turn, BASE, *servers) for _ in range(5)] == ["a", "b", "c", "a", "b"]


LEAST_REQUEST = [
    ("own count", "b", [server("a", None, BASE), server("b")]),
    ("ties by chance", "ac", [server("a"), server("b", None, BASE), server("c")]),
    ("what is told does not matter", "a", [server("a", told(50, 0.9)), server("b", told(0, 0.0), BASE)]),
]


@pytest.mark.parametrize(("why", "chosen", "servers"), LEAST_REQUEST)
def test_least_request(why: str, chosen: str, servers: list[ServerState]) -> None:
    assert choices(policy("least-request"), BASE, *servers) == chosen, why


def pending(queued: int, active: str, **by_adapter: int) -> LoadReport:
    return LoadReport(
        0.0, queued=queued, adapters=AdapterReport(4, frozenset(active)), queued_by_adapter=by_adapter or {}
    )


SEED = [
    (
        "the fullest of those with the adapter",
        X,
        "b",
        [server("a", pending(1, "x", x=1)), server("b", pending(4, "x", x=4))],
    ),
    ("below the threshold of 5", X, "a", [server("a", pending(1, "x", x=1)), server("b", pending(5, "x", x=5))]),
    ("else fewest adapters", X, "b", [server("a", pending(5, "xy", x=5)), server("b", pending(9, "y"))]),
    ("then least pending", X, "b", [server("a", pending(3, "y")), server("b", pending(2, "z"))]),
    ("none has it", X, "a", [server("a", pending(9, "")), server("b", pending(0, "y"))]),
    ("base model", BASE, "b", [server("a", pending(0, "xy")), server("b", pending(9, "x"))]),
    ("by own count if nothing is told", X, "b", [server("a"), server("b", None, X)]),
    ("own count at the threshold", X, "a", [server("a"), server("b", None, X, X, X, X, X)]),
    ("what runs is not pending", X, "b", [server("a"), server("b", told(0), X, X, X, X, X)]),
    ("nor is what waits for another one", X, "b", [server("a"), server("b", told(6), X, Y, Y)]),
    ("its share of what waits", X, "a", [server("a"), server("b", told(10), X, Y)]),
]


@pytest.mark.parametrize(("why", "asked", "chosen", "servers"), SEED)
def test_seed(why: str, asked: InstanceRequest, chosen: str, servers: list[ServerState]) -> None:
    assert choices(policy("seed"), asked, *servers) == chosen, why


FILTER_TREE = [
    (
        "the adapter before a free slot",
        X,
        "a",
        [server("a", told(9, 0.9, slots=2, active="x")), server("b", told(0, 0, slots=2))],
    ),
    (
        "waiting counts as affinity",
        X,
        "a",
        [server("a", told(9, 0.9, slots=1, active="y", waiting="x")), server("b", told(0, 0, slots=2))],
    ),
    (
        "a free slot before a full server",
        X,
        "b",
        [server("a", told(0, 0, slots=1, active="y")), server("b", told(9, 0.9, slots=2, active="y"))],
    ),
    (
        "all full: all",
        X,
        "a",
        [server("a", told(0, 0, slots=1, active="y")), server("b", told(9, 0.9, slots=1, active="y"))],
    ),
    (
        "queue below 128 only",
        X,
        "b",
        [server("a", told(128, 0, slots=2, active="x")), server("b", told(127, 0.9, slots=2))],
    ),
    (
        "lowest band of queues: up to 20/3",
        BASE,
        "ab",
        [server("a", told(0, 0.1)), server("b", told(5, 0.1)), server("c", told(20, 0))],
    ),
    (
        "then the lowest band of caches",
        BASE,
        "b",
        [server("a", told(0, 0.9)), server("b", told(5, 0.1)), server("c", told(20, 0))],
    ),
    (
        "all queues long: least queue first",
        X,
        "b",
        [server("a", told(900, 0, slots=2, active="x")), server("b", told(128, 0.5, slots=1, active="y"))],
    ),
    (
        "sheddable: short queue and free cache",
        LOW,
        "b",
        [server("a", told(6, 0, slots=2, active="x")), server("b", told(5, 0.8, slots=2))],
    ),
    ("sheddable: refused", LOW, "saturated", [server("a", told(6, 0)), server("b", told(0, 0.81))]),
]


@pytest.mark.parametrize(("why", "asked", "chosen", "servers"), FILTER_TREE)
def test_filter_tree(why: str, asked: InstanceRequest, chosen: str, servers: list[ServerState]) -> None:
    names = {choose(policy("filter-tree"), asked, *servers, seed=seed) for seed in range(50)}
    assert "".join(sorted(names)) == chosen, why


def test_the_first_filter_tree_has_a_threshold_of_50() -> None:
    servers = [server("a", told(50, 0, slots=2, active="x")), server("b", told(49, 0.9, slots=2))]
    assert choices(policy("filter-tree-v0.1"), X, *servers) == "b"
    assert choices(policy("filter-tree"), X, *servers) == "a"


WEIGHTED = [
    # 2 * queue + 2 * (1 - kv) + 3 * prefix
    ("2 + 1.0 against 0 + 2", BASE, "a", [server("a", told(0, 0.5)), server("b", told(4, 0.0))]),
    ("equal queues score 1", BASE, "b", [server("a", told(4, 0.5)), server("b", told(4, 0.4))]),
    ("0 + 2 + 3 against 2 + 2 + 0", LONG, "a", [cached(server("a", told(9, 0.0)), TEN), server("b", told(0, 0.0))]),
    (
        "0 + 2 + 1.8 against 2 + 2 + 0",
        LONG,
        "b",
        [cached(server("a", told(9, 0.0)), TEN[:6]), server("b", told(0, 0.0))],
    ),
    (
        "adapters are not looked at",
        X,
        "ab",
        [server("a", told(0, 0, slots=1, active="x")), server("b", told(0, 0, slots=1, active="y"))],
    ),
    ("nothing is told: own unstarted", BASE, "b", [server("a", None, BASE), server("b")]),
]


@pytest.mark.parametrize(("why", "asked", "chosen", "servers"), WEIGHTED)
def test_weighted(why: str, asked: InstanceRequest, chosen: str, servers: list[ServerState]) -> None:
    assert choices(policy("weighted"), asked, *servers) == chosen, why


def test_weighted_caps_a_prefix_at_131072_tokens() -> None:
    """Without the cap 2,048 of 4,096 blocks were half of the prompt: 2 + 1.5 against 4. Of half as many they are."""
    asked = request(tokens=262_144, blocks=tuple(range(4_096)))
    for blocks, chosen in ((2_048, "a"), (1_024, "b")):
        servers = [cached(server("a", told(9, 0.0)), tuple(range(blocks))), server("b", told(0, 0.0))]
        assert choices(policy("weighted"), asked, *servers) == chosen


WEIGHTED_LORA = [
    (
        "active and waiting counts twice against the slots: full 0",
        X,
        "b",
        [server("a", told(0, 0, slots=2, active="y", waiting="y")), server("b", told(0, 0, slots=2, active="y"))],
    ),
    (
        "active 1.0 against free 0.8",
        X,
        "a",
        [server("a", told(0, 0, slots=2, active="x")), server("b", told(0, 0, slots=2))],
    ),
    (
        "free 0.8 against waiting 0.6",
        X,
        "b",
        [server("a", told(0, 0, slots=2, active="yz", waiting="x")), server("b", told(0, 0, slots=2, active="y"))],
    ),
    (
        "waiting 0.6 against full 0",
        X,
        "a",
        [server("a", told(0, 0, slots=2, active="yz", waiting="x")), server("b", told(0, 0, slots=2, active="yz"))],
    ),
    (
        "the base model prefers free slots",
        BASE,
        "b",
        [server("a", told(0, 0, slots=1, active="y")), server("b", told(0, 0, slots=2, active="y"))],
    ),
    (
        "an adapter is worth half a queue",
        X,
        "b",
        [server("a", told(9, 0, slots=2, active="x")), server("b", told(0, 0, slots=2))],
    ),
]


@pytest.mark.parametrize(("why", "asked", "chosen", "servers"), WEIGHTED_LORA)
def test_weighted_with_lora(why: str, asked: InstanceRequest, chosen: str, servers: list[ServerState]) -> None:
    assert choices(policy("weighted-lora"), asked, *servers) == chosen, why


EXACT = request(tokens=640, blocks=TEN)


STICKY = [
    ("a match of 0.8 sticks", EXACT, "a", [loaded(cached(server("a"), TEN[:8]), 200_000), server("b")]),
    ("0.7 does not", EXACT, "b", [loaded(cached(server("a"), TEN[:7]), 200_000), server("b")]),
    ("of tokens, not of blocks: 640 of 1000", LONG, "b", [loaded(cached(server("a"), TEN), 10_000), server("b")]),
    ("18 s of prefill behind still sticks", EXACT, "a", [loaded(cached(server("a"), TEN), 286_704), server("b")]),
    ("one token more does not", EXACT, "b", [loaded(cached(server("a"), TEN), 286_705), server("b")]),
    ("warm: least tokens in flight", EXACT, "b", [loaded(cached(server("a"), TEN), 9), cached(server("b"), TEN)]),
    ("cold: least tokens, this prompt included", EXACT, "a", [loaded(cached(server("a"), TEN[:4]), 200), server("b")]),
    (
        "all warm: nobody to be behind of",
        EXACT,
        "b",
        [loaded(cached(server("a"), TEN), 900_000), loaded(cached(server("b"), TEN), 800_000)],
    ),
    ("adapters are not looked at", X, "ab", [server("a", told(slots=1, active="x")), server("b", told(slots=1))]),
]


@pytest.mark.parametrize(("why", "asked", "chosen", "servers"), STICKY)
def test_sticky_until_saturated(why: str, asked: InstanceRequest, chosen: str, servers: list[ServerState]) -> None:
    assert choices(policy("sticky-until-saturated"), asked, *servers) == chosen, why


LORA_RESIDENCY = [
    (
        "homes with room",
        X,
        "a",
        [server("a", told(8, 0.8, slots=1, resident={"x": "gpu"})), server("b", told(0, 0, slots=1, resident={}))],
    ),
    (
        "homes saturated by queue: spread",
        X,
        "b",
        [server("a", told(9, 0, slots=1, resident={"x": "gpu"})), server("b", told(8, 0, slots=1, resident={}))],
    ),
    (
        "homes saturated by cache: spread",
        X,
        "b",
        [server("a", told(0, 0.81, slots=1, resident={"x": "gpu"})), server("b", told(8, 0, slots=1, resident={}))],
    ),
    (
        "spread to a host copy first",
        X,
        "b",
        [
            server("a", told(9, 0, slots=1, resident={"x": "gpu"})),
            server("b", told(8, 0.7, slots=1, resident={"x": "cpu"})),
            server("c", told(0, 0, slots=1, resident={})),
        ],
    ),
    (
        "all saturated: homes",
        X,
        "a",
        [server("a", told(99, 0, slots=1, resident={"x": "gpu"})), server("b", told(9, 0, slots=1, resident={}))],
    ),
    (
        "no home: a free slot",
        X,
        "b",
        [
            server("a", told(0, 0, slots=1, active="y", resident={"y": "gpu"})),
            server("b", told(0, 0.3, slots=2, active="y", resident={"y": "gpu"})),
        ],
    ),
    (
        "no home: idle before busy",
        X,
        "a",
        [
            server("a", told(0, 0.1, slots=1, resident={"y": "gpu"})),
            server("b", told(0, 0, slots=1, active="y", resident={"y": "gpu"})),
        ],
    ),
    ("nothing told: own placements are homes", X, "a", [server("a", None, X), server("b")]),
    (
        "base model: away from busy slots",
        BASE,
        "b",
        [server("a", told(0, 0, slots=2, active="xy")), server("b", told(0, 0, slots=2, active="x"))],
    ),
]


@pytest.mark.parametrize(("why", "asked", "chosen", "servers"), LORA_RESIDENCY)
def test_lora_residency(why: str, asked: InstanceRequest, chosen: str, servers: list[ServerState]) -> None:
    assert choices(policy("lora-residency"), asked, *servers) == chosen, why


def test_an_adapter_s_first_requests_go_to_one_home() -> None:
    servers = [server(name, told(0, 0, slots=2, resident={})) for name in "abcd"]
    homes = [choices(policy("lora-residency"), request(adapter), *servers) for adapter in "stuvwxyz"]
    assert all(len(home) == 1 for home in homes)
    assert len(set(homes)) > 1


REPORTS = [
    None,
    LoadReport(0.0),
    *(
        LoadReport(0.0, queued=queued, kv_usage=kv, blocks=blocks, block_tokens=16, adapters=adapters)
        for queued, kv, blocks, adapters in product(
            [None, 3],
            [None, 0.5],
            [None, 100],
            [
                None,
                AdapterReport(),
                AdapterReport(2),
                AdapterReport(None, frozenset("x"), frozenset("x")),
                AdapterReport(0, resident={"x": "gpu"}),
            ],
        )
    ),
]


@pytest.mark.parametrize("name", ALL_POLICIES)
def test_any_subset_of_metrics_gives_a_pick(name: str) -> None:
    full = told(3, 0.5, slots=2, active="x", resident={"x": "gpu"})
    for asked, report in product([BASE, X, LOW, LONG], REPORTS):
        servers = [server("a", report, X), server("b", full), server("c", report)]
        made = policy(name).choose(SchedulingContext(asked, servers, 100, 0.0, Random(0)))
        if isinstance(made, Refusal):
            assert asked is LOW  # all three may tell of a queue
        else:
            assert made.server in servers


LAST = """
from tg_picker.core import Choice

class Last:
    def choose(self, context):
        return Choice(context.servers[-1], ("last",))

class Shelf:
    Last = Last
"""


@pytest.fixture
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "last_policy.py").write_text(LAST)
    (tmp_path / "needs_a_solver.py").write_text("import a_solver_that_nobody_has\n")
    (tmp_path / "broken_policy.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = (
        "last = last_policy:Last",
        "needy = needs_a_solver:Policy [solver]",
        "odd = builtins:dict",
        "broken = broken_policy:P",
    )
    install_package(tmp_path / "site", monkeypatch, "tokengrid-zoo", "\n".join(("[tokengrid.policies]", *points)))


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize("name", ["last", "last_policy:Last", "last_policy:Shelf.Last"])
def test_a_policy_of_an_installed_package(name: str) -> None:
    servers = [Endpoint(f"10.0.0.{each}:80", str(each)) for each in range(3)]
    made = Scheduler(name).pick(request(), servers, 0.0)
    assert isinstance(made, Pick)
    assert (made.endpoint, made.reasons) == (servers[-1], ("last",))


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "lost",
            BadRequest,
            "known are broken, last, least-request, needy, odd, predicted-wait, round-robin, and any",
        ),
        ("needy", Unavailable, 'the policy "needy" needs .*; run: pip install "tokengrid-zoo\\[solver\\]"'),
        ("odd", BadRequest, "the policy builtins:dict is no class with a method `choose`"),
        ("last_policy:Lost", BadRequest, "the policy last_policy:Lost is no class with a method `choose`"),
        ("nowhere:Last", Unavailable, 'install the distribution that has the module "nowhere"'),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused(name: str, kind: type[TgError], words: str) -> None:
    with pytest.raises(kind, match=words) as refused:
        load_policy(name)
    assert refused.value.option == ("policy",)


@pytest.mark.usefixtures("_package")
def test_a_policy_with_a_defect_is_a_sentence() -> None:
    with pytest.raises(Internal, match='the policy "broken" has a defect; the log says which'):
        load_policy("broken")
