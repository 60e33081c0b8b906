"""All planted faults. Each is a mistake that somebody may make, and that no reader sees at once."""

from typing import Final

from tests.planted_faults.answering_faults import ANSWERING
from tests.planted_faults.known_defects import KNOWN
from tests.planted_faults.requesting_faults import REQUESTING
from tests.planted_faults.serving_faults import SERVING
from tests.planted_faults.waiting_faults import WAITING

FAULTS: Final = (*KNOWN, *REQUESTING, *SERVING, *ANSWERING, *WAITING)
