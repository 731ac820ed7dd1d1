"""The instance types that ship with the catalog: what AWS documents about each, and its approximate hourly price.

Most families follow one rule: an xlarge has four virtual CPUs, a 2xlarge twice as many and so on, and memory and price
grow with the CPUs. `REGULAR_FAMILIES` has those; the rest is written out. Prices are for training in us-east-1 in US
dollars, as known when this was written, and estimates for the newest GPUs. They are starting values for planning, to be
edited in the home folder's catalog.toml, and never a bill.
"""

from collections.abc import Iterator
from typing import NamedTuple

CPUS_OF_XLARGE = 4

# The sizes that are not a multiple of xlarge.
SMALL_SIZES = {"medium": 2, "large": 2, "xlarge": CPUS_OF_XLARGE}

# Memory per virtual CPU, by the first letter of an unknown family.
GIB_PER_CPU = {"m": 4.0, "c": 2.0, "r": 8.0}


class InstanceTypeFacts(NamedTuple):
    """What a type has, and its hourly on-demand price. Trainium chips do not count as GPUs."""

    cpus: int
    memory_gib: float
    gpus: int
    usd: float


class InstanceFamily(NamedTuple):
    """A family that follows the rule. `sizes` are names, or only the number before "xlarge"."""

    gib_per_cpu: float
    usd_of_xlarge: float
    sizes: str


REGULAR_FAMILIES: dict[str, InstanceFamily] = {
    "m4": InstanceFamily(4, 0.24, "xlarge 2 4 10 16"),
    "m5": InstanceFamily(4, 0.2304, "large xlarge 2 4 12 24"),
    "m6i": InstanceFamily(4, 0.2304, "large xlarge 2 4 8 12 16 24 32"),
    "m7i": InstanceFamily(4, 0.2419, "large xlarge 2 4 8 12 16 24 48"),
    "m7i-flex": InstanceFamily(4, 0.2298, "large xlarge 2 4 8 12 16"),
    "m8i": InstanceFamily(4, 0.254, "large xlarge 2 4 8 12 16 24 32 48 96"),
    "m8i-flex": InstanceFamily(4, 0.2413, "large xlarge 2 4 8 12 16"),
    "c4": InstanceFamily(1.875, 0.239, "xlarge 2 4"),
    "c5": InstanceFamily(2, 0.204, "xlarge 2 4 9 18"),
    "c5n": InstanceFamily(2.625, 0.2592, "xlarge 2 4"),
    "c6i": InstanceFamily(2, 0.204, "xlarge 2 4 8 12 16 24 32"),
    "c7i": InstanceFamily(2, 0.2142, "large xlarge 2 4 8 12 16 24 48"),
    "c7i-flex": InstanceFamily(2, 0.2035, "xlarge 2 4 8 12 16"),
    "c8i": InstanceFamily(2, 0.2249, "xlarge 2 4 8 12 16 24 32 48 96"),
    "c8i-flex": InstanceFamily(2, 0.2137, "xlarge 2 4 8 12 16"),
    "r5": InstanceFamily(8, 0.3024, "large xlarge 2 4 8 12 16 24"),
    "r5d": InstanceFamily(8, 0.3456, "large xlarge 2 4 8 12 16 24"),
    "r6i": InstanceFamily(8, 0.3024, "large xlarge 2 4 8 12 16 24 32"),
    "r7i": InstanceFamily(8, 0.3175, "large xlarge 2 4 8 12 16 24 48"),
    "r8i": InstanceFamily(8, 0.3334, "large xlarge 2 4 8 12 16 24 32 48 96"),
    "r8i-flex": InstanceFamily(8, 0.3167, "large xlarge 2 4 8 12 16"),
}

IRREGULAR_TYPES: dict[str, InstanceTypeFacts] = {
    "c4.8xlarge": InstanceTypeFacts(36, 60, 0, 1.909),
    "c5n.9xlarge": InstanceTypeFacts(36, 96, 0, 2.333),
    "c5n.18xlarge": InstanceTypeFacts(72, 192, 0, 4.666),
    "t3.medium": InstanceTypeFacts(2, 4, 0, 0.05),
    "t3.large": InstanceTypeFacts(2, 8, 0, 0.1),
    "t3.xlarge": InstanceTypeFacts(4, 16, 0, 0.2),
    "t3.2xlarge": InstanceTypeFacts(8, 32, 0, 0.399),
    "p2.xlarge": InstanceTypeFacts(4, 61, 1, 1.125),
    "p2.8xlarge": InstanceTypeFacts(32, 488, 8, 9.0),
    "p2.16xlarge": InstanceTypeFacts(64, 732, 16, 18.0),
    "p3.2xlarge": InstanceTypeFacts(8, 61, 1, 3.825),
    "p3.8xlarge": InstanceTypeFacts(32, 244, 4, 14.688),
    "p3.16xlarge": InstanceTypeFacts(64, 488, 8, 28.152),
    "p3dn.24xlarge": InstanceTypeFacts(96, 768, 8, 35.894),
    "p4d.24xlarge": InstanceTypeFacts(96, 1152, 8, 37.688),
    "p4de.24xlarge": InstanceTypeFacts(96, 1152, 8, 47.111),
    "p5.4xlarge": InstanceTypeFacts(16, 256, 1, 7.912),
    "p5.48xlarge": InstanceTypeFacts(192, 2048, 8, 63.296),
    "p5e.48xlarge": InstanceTypeFacts(192, 2048, 8, 69.0),
    "p5en.48xlarge": InstanceTypeFacts(192, 2048, 8, 72.795),
    "p6-b200.48xlarge": InstanceTypeFacts(192, 2048, 8, 130.0),
    "p6-b300.48xlarge": InstanceTypeFacts(192, 4096, 8, 160.0),
    "p6e-gb200.36xlarge": InstanceTypeFacts(144, 960, 4, 87.0),
    "g4dn.xlarge": InstanceTypeFacts(4, 16, 1, 0.736),
    "g4dn.2xlarge": InstanceTypeFacts(8, 32, 1, 0.94),
    "g4dn.4xlarge": InstanceTypeFacts(16, 64, 1, 1.505),
    "g4dn.8xlarge": InstanceTypeFacts(32, 128, 1, 2.72),
    "g4dn.12xlarge": InstanceTypeFacts(48, 192, 4, 4.89),
    "g4dn.16xlarge": InstanceTypeFacts(64, 256, 1, 5.44),
    "g5.xlarge": InstanceTypeFacts(4, 16, 1, 1.408),
    "g5.2xlarge": InstanceTypeFacts(8, 32, 1, 1.515),
    "g5.4xlarge": InstanceTypeFacts(16, 64, 1, 2.03),
    "g5.8xlarge": InstanceTypeFacts(32, 128, 1, 3.06),
    "g5.12xlarge": InstanceTypeFacts(48, 192, 4, 7.09),
    "g5.16xlarge": InstanceTypeFacts(64, 256, 1, 5.12),
    "g5.24xlarge": InstanceTypeFacts(96, 384, 4, 10.18),
    "g5.48xlarge": InstanceTypeFacts(192, 768, 8, 20.36),
    "g6.xlarge": InstanceTypeFacts(4, 16, 1, 1.127),
    "g6.2xlarge": InstanceTypeFacts(8, 32, 1, 1.222),
    "g6.4xlarge": InstanceTypeFacts(16, 64, 1, 1.654),
    "g6.8xlarge": InstanceTypeFacts(32, 128, 1, 2.518),
    "g6.12xlarge": InstanceTypeFacts(48, 192, 4, 5.752),
    "g6.16xlarge": InstanceTypeFacts(64, 256, 1, 4.246),
    "g6.24xlarge": InstanceTypeFacts(96, 384, 4, 8.344),
    "g6.48xlarge": InstanceTypeFacts(192, 768, 8, 16.688),
    "g6e.xlarge": InstanceTypeFacts(4, 32, 1, 2.605),
    "g6e.2xlarge": InstanceTypeFacts(8, 64, 1, 2.803),
    "g6e.4xlarge": InstanceTypeFacts(16, 128, 1, 3.755),
    "g6e.8xlarge": InstanceTypeFacts(32, 256, 1, 5.661),
    "g6e.12xlarge": InstanceTypeFacts(48, 384, 4, 13.116),
    "g6e.16xlarge": InstanceTypeFacts(64, 512, 1, 9.471),
    "g6e.24xlarge": InstanceTypeFacts(96, 768, 4, 18.832),
    "g6e.48xlarge": InstanceTypeFacts(192, 1536, 8, 37.664),
    "g7.2xlarge": InstanceTypeFacts(8, 32, 1, 2.2),
    "g7.4xlarge": InstanceTypeFacts(16, 64, 1, 2.9),
    "g7.8xlarge": InstanceTypeFacts(32, 128, 1, 4.4),
    "g7.12xlarge": InstanceTypeFacts(48, 192, 2, 6.9),
    "g7.24xlarge": InstanceTypeFacts(96, 384, 4, 13.8),
    "g7.48xlarge": InstanceTypeFacts(192, 768, 8, 27.6),
    "g7e.2xlarge": InstanceTypeFacts(8, 64, 1, 4.2),
    "g7e.4xlarge": InstanceTypeFacts(16, 128, 1, 4.9),
    "g7e.8xlarge": InstanceTypeFacts(32, 256, 1, 6.4),
    "g7e.12xlarge": InstanceTypeFacts(48, 512, 2, 10.4),
    "g7e.24xlarge": InstanceTypeFacts(96, 1024, 4, 20.7),
    "g7e.48xlarge": InstanceTypeFacts(192, 2048, 8, 41.4),
    "trn1.2xlarge": InstanceTypeFacts(8, 32, 0, 1.545),
    "trn1.32xlarge": InstanceTypeFacts(128, 512, 0, 24.725),
    "trn1n.32xlarge": InstanceTypeFacts(128, 512, 0, 28.497),
    "trn2.48xlarge": InstanceTypeFacts(192, 2048, 0, 51.0),
}


def shipped_types() -> Iterator[tuple[str, InstanceTypeFacts]]:
    """Yield every type with its name after "ml."."""
    for name, family in REGULAR_FAMILIES.items():
        for size in family.sizes.split():
            full = size if size in SMALL_SIZES else f"{size}xlarge"
            cpus = cpus_of(full)
            assert cpus is not None, f"{full} is a size"
            usd = round(family.usd_of_xlarge * cpus / CPUS_OF_XLARGE, 4)
            yield f"{name}.{full}", InstanceTypeFacts(cpus, family.gib_per_cpu * cpus, 0, usd)
    yield from IRREGULAR_TYPES.items()


def cpus_of(size: str) -> int | None:
    """Return the virtual CPUs of a size in a family that follows the rule; None if it is no such size."""
    number = size.removesuffix("xlarge")
    if size in SMALL_SIZES:
        return SMALL_SIZES[size]
    return CPUS_OF_XLARGE * int(number) if number != size and number.isascii() and number.isdigit() else None
