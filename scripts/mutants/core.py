"""The core: the modules in which a fault would hurt most, and the tests that must notice it."""

from collections.abc import Iterator
from dataclasses import dataclass

from scripts.mutants.trials import ROOT

SOURCE = "src/trainyard"


@dataclass(frozen=True, slots=True)
class Area:
    """Modules below src/trainyard, by pattern. A mutant meets the unit tests of its module first, then `tests`.

    `choosing` is a `-k` expression that leaves out tests that need a server or test something else.
    """

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    choosing: str = ""

    def files(self) -> Iterator[str]:
        for pattern in self.modules:
            yield from sorted(
                str(file.relative_to(ROOT)) for file in (ROOT / SOURCE).glob(pattern) if file.stem != "__init__"
            )

    def stages(self, module: str) -> list[tuple[str, ...]]:
        """Return the arguments of successive pytest runs for a module. The first catches most mutants."""
        folder, _, name = module.removeprefix(f"{SOURCE}/").rpartition("/")
        own = f"tests/unit/{folder}/test_{name}"
        others = {str(file.relative_to(ROOT)) for pattern in self.tests for file in ROOT.glob(pattern)} - {own}
        stages = [[own] if (ROOT / own).exists() else [], sorted(others)]
        return [(*tests, "-k", self.choosing) for tests in stages if tests]


AREAS = (
    Area(
        "signature",
        modules=(
            "wire/signature.py",
            "wire/canonical.py",
            "wire/legacy_link.py",
            "wire/link_headers.py",
            "wire/payload.py",
            "wire/chunked.py",
        ),
        tests=(
            "tests/unit/wire/test_signature.py",
            "tests/unit/wire/test_canonical.py",
            "tests/unit/wire/test_legacy_link.py",
            "tests/unit/wire/test_link_headers.py",
            "tests/unit/wire/test_payload.py",
            "tests/unit/wire/test_chunked.py",
        ),
    ),
    Area("identity", modules=("server/identity.py",), tests=("tests/unit/server/services/iam/test_users.py",)),
    Area(
        "transitions",
        modules=("foundation/jobs/training/transitions.py",),
        tests=("tests/unit/foundation/jobs/training/test_*.py",),
    ),
    Area(
        "leases",
        modules=("server/records/leases.py", "server/records/queue_index.py"),
        tests=("tests/contract/test_records.py",),
        choosing="sqlite and (claim or due or held or lease or order or queue or release or state or waiting)",
    ),
    Area(
        "placement",
        modules=(
            "engines/placement.py",
            "server/control/scheduling/backfill.py",
            "server/control/scheduling/free_capacity.py",
            "server/control/scheduling/preemption.py",
            "server/control/scheduling/queue_order.py",
            "server/control/scheduling/reservation.py",
            "server/control/scheduling/scheduler.py",
        ),
        tests=("tests/unit/engines/test_placement*.py", "tests/unit/server/control/scheduling/test_*.py"),
        choosing="not quick",
    ),
    Area("spool", modules=("link/spool.py", "link/mailbox.py"), tests=()),
    Area(
        "objects",
        modules=(
            "objects/filesystem.py",
            "objects/datafiles.py",
            "objects/index.py",
            "objects/index_pages.py",
            "objects/index_uploads.py",
            "objects/listing.py",
            "objects/multipart.py",
            "objects/preconditions.py",
            "objects/verification.py",
            "objects/checksums.py",
        ),
        tests=("tests/unit/objects/test_*.py", "tests/contract/test_objects.py", "tests/unit/test_durability.py"),
        choosing="not (remote or TestCrash or TestCost or small_objects) and (not durability or object)",
    ),
    Area("confined", modules=("foundation/confined.py",), tests=()),
    Area(
        "rules",
        modules=(
            "insight/rules/evaluation.py",
            "insight/rules/parameters.py",
            "insight/rules/phases.py",
            "insight/rules/readings.py",
            "insight/rules/updates.py",
            "insight/rules/debugger/*.py",
        ),
        tests=(
            "tests/unit/insight/rules/test_*.py",
            "tests/unit/insight/rules/debugger/test_*.py",
            "tests/architecture/test_documentation.py",
        ),
        choosing="insight or up_to_date",
    ),
    Area(
        "tuning",
        modules=("insight/tuning/*.py",),
        tests=(
            "tests/unit/insight/tuning/test_*.py",
            "tests/contract/test_pruners.py",
            "tests/contract/test_strategies.py",
        ),
        choosing="not Bayesian",
    ),
)
