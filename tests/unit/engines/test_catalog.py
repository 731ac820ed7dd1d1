from pathlib import Path

import pytest

from trainyard.engines.catalog import SPOT_PRICE_FRACTION, Catalog, InstanceType
from trainyard.foundation.errors import InvalidRequest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.toml"


@pytest.fixture
def catalog(file: Path) -> Catalog:
    return Catalog.read(file)


# The CPUs, the memory in GiB and the GPUs of types as AWS documents them.
DOCUMENTED = {
    "ml.m4.10xlarge": (40, 160, 0),
    "ml.m5.large": (2, 8, 0),
    "ml.m5.24xlarge": (96, 384, 0),
    "ml.m6i.32xlarge": (128, 512, 0),
    "ml.m7i.48xlarge": (192, 768, 0),
    "ml.m8i.96xlarge": (384, 1536, 0),
    "ml.c4.xlarge": (4, 7.5, 0),
    "ml.c4.8xlarge": (36, 60, 0),
    "ml.c5.9xlarge": (36, 72, 0),
    "ml.c5n.xlarge": (4, 10.5, 0),
    "ml.c5n.18xlarge": (72, 192, 0),
    "ml.c6i.4xlarge": (16, 32, 0),
    "ml.c7i.large": (2, 4, 0),
    "ml.r5.2xlarge": (8, 64, 0),
    "ml.r6i.large": (2, 16, 0),
    "ml.t3.medium": (2, 4, 0),
    "ml.t3.2xlarge": (8, 32, 0),
    "ml.p2.16xlarge": (64, 732, 16),
    "ml.p3.2xlarge": (8, 61, 1),
    "ml.p3.16xlarge": (64, 488, 8),
    "ml.p3dn.24xlarge": (96, 768, 8),
    "ml.p4d.24xlarge": (96, 1152, 8),
    "ml.p4de.24xlarge": (96, 1152, 8),
    "ml.p5.48xlarge": (192, 2048, 8),
    "ml.g4dn.12xlarge": (48, 192, 4),
    "ml.g4dn.16xlarge": (64, 256, 1),
    "ml.g5.16xlarge": (64, 256, 1),
    "ml.g5.48xlarge": (192, 768, 8),
    "ml.g6.12xlarge": (48, 192, 4),
    "ml.trn1.32xlarge": (128, 512, 0),
}


def test_the_common_types_have_what_aws_documents(catalog: Catalog) -> None:
    found = {name: catalog[name] for name in DOCUMENTED}

    assert {name: (each.cpus, each.memory_gib, each.gpus) for name, each in found.items()} == DOCUMENTED
    assert [name for name, each in found.items() if each.is_derived] == []


def test_every_shipped_type_has_prices_and_spot_is_the_lower(catalog: Catalog) -> None:
    for each in catalog:
        if each.name.startswith("ml."):
            assert 0 < each.spot_usd < each.on_demand_usd
            assert each.price_usd(is_spot=True) == each.spot_usd
            assert each.price_usd(is_spot=False) == each.on_demand_usd


def test_local_types_are_all_of_the_machine_and_cost_nothing(catalog: Catalog) -> None:
    assert catalog["local"] == InstanceType("local", None, None, 0, 0.0, 0.0)
    assert catalog["local_gpu"] == InstanceType("local_gpu", None, None, None, 0.0, 0.0)


def test_a_newer_type_of_a_known_kind_is_derived_from_its_name(catalog: Catalog) -> None:
    found = catalog["ml.r9x.12xlarge"]

    assert (found.cpus, found.memory_gib, found.gpus, found.is_derived) == (48, 384, 0, True)
    assert found.on_demand_usd > found.spot_usd > 0


@pytest.mark.parametrize(
    "name",
    ["", "ml.", "m5.large", "ml.m5", "ml.m5.huge", "ml.p9.48xlarge", "ml.mine.xlarge", "ml.m5.xxlarge", "local "],
)
def test_a_type_that_nothing_is_known_of_is_refused_and_named(catalog: Catalog, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"catalog\.toml") as caught:
        catalog[name]

    assert f'"{name}"' in caught.value.message


def test_a_price_can_be_edited(file: Path) -> None:
    file.write_text('["ml.m5.large"]\non_demand_usd = 0.05\nspot_usd = 0.04\n')

    changed = Catalog.read(file)["ml.m5.large"]

    assert (changed.on_demand_usd, changed.spot_usd) == (0.05, 0.04)
    assert changed.cpus == 2


def test_the_spot_price_follows_when_only_the_other_is_edited(file: Path) -> None:
    file.write_text('["ml.m5.large"]\non_demand_usd = 10\n')

    assert Catalog.read(file)["ml.m5.large"].spot_usd == pytest.approx(10 * SPOT_PRICE_FRACTION)


def test_a_change_of_size_leaves_the_prices_alone(file: Path, catalog: Catalog) -> None:
    file.write_text('["ml.m5.large"]\ncpus = 3\n')

    changed = Catalog.read(file)["ml.m5.large"]

    assert changed.cpus == 3
    assert changed.on_demand_usd == catalog["ml.m5.large"].on_demand_usd
    assert changed.spot_usd == catalog["ml.m5.large"].spot_usd


def test_a_type_can_be_added(file: Path) -> None:
    file.write_text('["ml.workstation"]\ncpus = 32\nmemory_gib = 128\ngpus = 2\n')

    added = Catalog.read(file)["ml.workstation"]

    assert (added.cpus, added.memory_gib, added.gpus) == (32, 128, 2)
    assert added.on_demand_usd > added.spot_usd > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = [", "not valid TOML"),
        ('"ml.m5.large" = 3', "not a table"),
        ('["ml.m5.large"]\nprice = 3', "price"),
        ('["ml.m5.large"]\ncpus = "many"', "'many'"),
        ('["ml.m5.large"]\ncpus = true', "True"),
        ('["ml.m5.large"]\non_demand_usd = -1', "-1"),
        ('["ml.m5.large"]\non_demand_usd = nan', "nan"),
        ('["ml.new"]\ncpus = 3', "needs cpus and memory_gib"),
    ],
)
def test_a_wrong_catalog_is_refused_with_its_path_and_the_mistake(file: Path, text: str, said: str) -> None:
    file.write_text(text)

    with pytest.raises(InvalidRequest, match=said) as caught:
        Catalog.read(file)

    assert str(file) in caught.value.message
