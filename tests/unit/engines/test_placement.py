import random
from pathlib import Path

import pytest

from tests.unit.engines.placements import place
from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Capacity
from trainyard.engines.placement import MissingResources, check_promised_resources, fit_types, missing_resources
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.attempts import Share

GIB = 1024**3
CATALOG = Catalog.read(Path("no such file"))
LAPTOP = Capacity.of_machine(slots=2, cpus=2.0, memory_bytes=8 * GIB)
SERVER = Capacity.of_machine(slots=64, cpus=64.0, memory_bytes=512 * GIB, gpus=(0, 1, 2, 3))

M5_LARGE = CATALOG["ml.m5.large"]
P3 = CATALOG["ml.p3.2xlarge"]
P3_OF_FOUR = CATALOG["ml.p3.8xlarge"]
P4D = CATALOG["ml.p4d.24xlarge"]


def test_a_job_that_fits_gets_what_its_type_promises() -> None:
    assert place([M5_LARGE, M5_LARGE], SERVER, running=[]) == (Share(2.0, 8 * GIB), Share(2.0, 8 * GIB))
    assert fit_types([M5_LARGE, M5_LARGE], SERVER).shortfalls == ()


def test_three_of_the_largest_run_on_a_laptop_alone_and_share_it() -> None:
    shares = place([P4D] * 3, LAPTOP, running=[])

    assert shares is not None
    assert {share.cpus for share in shares} == {0.66}
    assert sum(share.memory_bytes or 0 for share in shares) <= 8 * GIB
    assert all(share.gpus == () for share in shares)
    assert place([M5_LARGE], LAPTOP, running=shares) is None


def test_a_shortfall_is_reported_once_per_type() -> None:
    assert fit_types([P4D] * 3, LAPTOP).shortfalls == (
        "Each ml.p4d.24xlarge gets 0.66 of 96 CPUs, 2.7 of 1152 GiB of memory and none of 8 GPUs on this machine.",
        "Its 3 instances share 2 slots.",
    )


def test_as_many_instances_as_there_are_slots_run_at_once() -> None:
    first = place([M5_LARGE], LAPTOP, running=[])
    assert first is not None
    second = place([M5_LARGE], LAPTOP, running=first)
    assert second is not None

    assert place([M5_LARGE], LAPTOP, running=[*first, *second]) is None


def test_all_instances_of_a_job_start_or_none() -> None:
    running = [Share(2.0, GIB)]

    assert place([M5_LARGE, M5_LARGE], LAPTOP, running=running) is None
    assert place([M5_LARGE], LAPTOP, running=running) is not None


def test_a_gpu_is_never_given_to_two_instances() -> None:
    first = place([P3, P3], SERVER, running=[])
    assert first is not None
    second = place([P3], SERVER, running=first)
    assert second is not None

    assert [share.gpus for share in (*first, *second)] == [(0,), (1,), (2,)]
    assert place([P3, P3], SERVER, running=[*first, *second]) is None


def test_gpus_that_came_back_are_given_again() -> None:
    running = [Share(gpus=(0,)), Share(gpus=(3,))]

    shares = place([P3, P3], SERVER, running=running)

    assert shares is not None
    assert [share.gpus for share in shares] == [(1,), (2,)]


def test_a_job_that_wants_more_gpus_than_there_are_waits_for_all_of_them() -> None:
    assert place([P4D], SERVER, running=[Share(gpus=(2,))]) is None

    shares = place([P4D], SERVER, running=[])

    assert shares is not None
    assert shares[0].gpus == (0, 1, 2, 3)


def test_instances_that_want_the_same_get_the_same_number_of_gpus() -> None:
    shares = place([P3_OF_FOUR] * 3, SERVER, running=[])

    assert shares is not None
    assert [len(share.gpus) for share in shares] == [1, 1, 1]


def test_gpus_too_few_for_every_instance_are_given_to_none() -> None:
    shares = place([P3] * 5, SERVER, running=[])

    assert shares is not None
    assert [share.gpus for share in shares] == [()] * 5
    assert "none of 1 GPU on this machine" in fit_types([P3] * 5, SERVER).shortfalls[0]


def test_cpu_jobs_start_while_all_gpus_are_in_use() -> None:
    assert place([M5_LARGE], SERVER, running=[Share(gpus=(0, 1, 2, 3))]) is not None


def test_local_is_the_whole_machine_and_lacks_nothing() -> None:
    local, local_gpu = CATALOG["local"], CATALOG["local_gpu"]

    assert place([local], SERVER, running=[]) == (Share(64.0, 512 * GIB),)
    assert place([local_gpu], SERVER, running=[]) == (Share(64.0, 512 * GIB, gpus=(0, 1, 2, 3)),)
    assert place([local, local], SERVER, running=[]) == (Share(32.0, 256 * GIB), Share(32.0, 256 * GIB))
    assert fit_types([local, local_gpu], SERVER).shortfalls == ()


def test_instances_of_different_types_share_in_proportion() -> None:
    large, small = CATALOG["ml.m5.24xlarge"], CATALOG["ml.m5.12xlarge"]
    machine = Capacity.of_machine(slots=4, cpus=36.0, memory_bytes=144 * GIB)

    fitted = fit_types([large, small], machine)

    assert [size.cpus for size in fitted.sizes] == [24.0, 12.0]
    assert [size.memory_bytes for size in fitted.sizes] == [96 * GIB, 48 * GIB]


def test_missing_resources_are_slots_and_gpus() -> None:
    taken = place([P3_OF_FOUR], SERVER, running=[]) or ()
    assert missing_resources([M5_LARGE], SERVER, running=taken) == MissingResources(0, 0)
    assert missing_resources([P3, P3], SERVER, running=taken) == MissingResources(0, 2)
    assert missing_resources([M5_LARGE], LAPTOP, running=[Share()] * 2) == MissingResources(1, 0)
    assert missing_resources([P4D] * 3, LAPTOP, running=[Share()]) == MissingResources(
        1, 0
    )  # which takes all there is, alone


def test_a_strict_yard_refuses_what_it_does_not_have() -> None:
    check_promised_resources([M5_LARGE], SERVER)

    with pytest.raises(InvalidRequest, match=r"0\.66 of 96 CPUs"):
        check_promised_resources([P4D] * 3, LAPTOP)


def test_every_job_can_start_on_every_empty_machine() -> None:
    chance = random.Random(7)
    types = list(CATALOG)
    for _ in range(500):
        job = chance.choices(types, k=chance.randrange(1, 30))
        cpus = chance.choice([0.5, 1, 2, 7, 64])
        machine = Capacity.of_machine(
            chance.randrange(1, 9), cpus, chance.randrange(1, 64) * GIB, tuple(range(chance.randrange(9)))
        )

        shares = place(job, machine, running=[])

        assert shares is not None
        assert len(shares) == len(job)
        given = [gpu for share in shares for gpu in share.gpus]
        assert len(given) == len(set(given))
        assert set(given) <= set(machine.gpus)
        assert sum(share.memory_bytes or 0 for share in shares) <= machine.memory_bytes
        assert all(share.cpus and share.cpus >= 0.01 for share in shares)
