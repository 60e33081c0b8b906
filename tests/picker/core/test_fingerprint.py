"""Fingerprints: equal beginnings, equal blocks; and what is remembered of them, within bounds."""

import tracemalloc
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from tests.picker.core.cases import endpoint, request
from tg_picker.core import Fingerprint, Placement, fingerprint_prompt, fingerprint_text, fingerprint_tokens
from tg_picker.core.state.output_estimates import OutputEstimates
from tg_picker.core.state.prefix_owners import PrefixOwners
from tg_picker.core.state.server_state import ServerState


@given(st.lists(st.integers(0, 2**32 - 1), max_size=300), st.integers(0, 300))
def test_a_prompt_shares_what_it_begins_with(tokens: list[int], cut: int) -> None:
    whole = fingerprint_tokens(tokens).blocks
    changed = fingerprint_tokens([*tokens[:cut], *(token ^ 1 for token in tokens[cut:])]).blocks
    shared = min(cut, len(tokens)) // 64
    assert len(whole) == len(tokens) // 64
    assert whole[:shared] == changed[:shared]
    assert not set(whole[shared:]) & set(changed[shared:])


def test_wire_values_are_the_same_in_every_process() -> None:
    """Pickers tell each other blocks, so their hashes are part of a protocol."""
    assert fingerprint_tokens(range(128), "base/x").blocks == TOKENS
    assert fingerprint_text("abcd" * 128, "base/x").blocks == TEXT


TOKENS = (10005721914405549, 61472308144362934)
TEXT = (50551454462732073, 56073872603534414)


def test_text_counts_four_characters_a_token() -> None:
    assert len(fingerprint_text("a" * 256).blocks) == 1
    assert fingerprint_text("a" * 255).blocks == ()
    assert len(fingerprint_text("\u00fc\ud800" * 128).blocks) == 1


def test_a_prompt_of_an_adapter_has_one_fingerprint_whoever_knows_its_model() -> None:
    assert fingerprint_prompt("a" * 1024, "m", "x") == fingerprint_prompt("a" * 1024, "", "x")
    assert fingerprint_prompt("a" * 1024, "m", None) == fingerprint_text("a" * 1024, "m")


def test_a_salt_keeps_adapters_apart() -> None:
    assert not set(fingerprint_text("a" * 1024, "x").blocks) & set(fingerprint_text("a" * 1024, "y").blocks)


def test_of_a_salt_nothing_is_kept() -> None:
    """Clients choose salts."""
    tracemalloc.start()
    try:
        for number in range(16):
            fingerprint_text("", f"{number}" * 500_000)
            fingerprint_tokens((), f"{number}" * 500_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


@example([(0, 1), (1, 16)], 16, 0)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), max_size=30), st.integers(1, 60), st.integers(0, 4))
def test_what_is_known_of_a_prompt_is_its_beginning(added: list[tuple[int, int]], capacity: int, family: int) -> None:
    def prompt(family: int, blocks: int) -> Fingerprint:
        return Fingerprint(tuple(range(1000 * family, 1000 * family + blocks)))

    owners = PrefixOwners(capacity)
    for each in added:
        owners.add(prompt(*each))
        assert len(owners) <= capacity
        assert owners.match(prompt(*each)) == min(each[1], capacity)
    asked = prompt(family, 50)
    lengths = [owners.match(Fingerprint(asked.blocks[: length + 1])) == length + 1 for length in range(50)]
    assert lengths.count(True) == owners.match(asked)
    assert sorted(lengths, reverse=True) == lengths


def test_prefixes_of_a_hundred_full_servers_fit_in_64_mib() -> None:
    """Ten servers, each given three times what it keeps, are a tenth of it."""
    random = Random(0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    servers = [PrefixOwners() for _ in range(10)]
    for owners in servers:
        for _ in range(300):
            owners.add(Fingerprint(tuple(random.getrandbits(60) for _ in range(50))))
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert all(len(owners) > 4_000 for owners in servers)
    assert used <= 6.4 * 2**20


def test_a_placement_is_at_most_a_kibibyte() -> None:
    """Without the prompt's blocks, which the server's state keeps within its own bounds."""
    estimates, state = OutputEstimates(), ServerState(endpoint("a"))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [
        Placement(
            state, request("x", tokens=20_000, blocks=tuple(range(start, start + 300))), estimates, 100, start / 7
        )
        for start in range(0, 30_000, 300)
    ]
    state.prefixes.clear()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / len(kept) <= 1024
