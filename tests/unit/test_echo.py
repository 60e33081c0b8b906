"""Whether a silence is that of others: an own message on the same topic has come back, or the bus is down."""

from tests.fakes.set_clock import SetClock
from tg_base.bus.memory import MemoryBus
from tg_base.protocol import Echo

TOPIC = "non-persistent://public/default/echo"
PATIENCE = 1.0


async def test_a_silence_is_real_once_the_own_echo_is_back_or_overdue() -> None:
    bus, clock = MemoryBus(), SetClock()
    echo = Echo(bus, TOPIC, clock, PATIENCE)
    async with bus.subscribe(TOPIC, None) as deliveries:
        assert not echo.is_settled(doubtful=False)
        assert not echo.is_settled(doubtful=True)
        first = await anext(deliveries)
        clock.now = PATIENCE / 2
        assert not echo.is_settled(doubtful=True), "what came before the echo is not read yet"
        assert echo.take(first)
        assert echo.is_settled(doubtful=True)
        assert not echo.is_settled(doubtful=False)
        assert not echo.is_settled(doubtful=True)
        assert echo.take(first)
        assert not echo.is_settled(doubtful=True), "the late echo of an earlier doubt proves nothing"
        clock.now += PATIENCE
        assert echo.is_settled(doubtful=True)
    echo.close()
    await bus.aclose()
