"""Environments that are kept between jobs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.link.environments import EnvironmentBuild, EnvironmentCache, EnvironmentHold


@pytest.fixture
def kept(tmp_path: Path) -> EnvironmentCache:
    return EnvironmentCache(tmp_path / "environments" / "111122223333")


def make(kept: EnvironmentCache, key: str, *, size: int = 10, used_at: float | None = None) -> None:
    with making_of(kept, key) as making:
        (making.folder / "packages").mkdir()
        (making.folder / "packages" / "module.py").write_bytes(b"x" * size)
        making.commit()
    if used_at is not None:
        os.utime(lock_of(kept, key), (used_at, used_at))


def making_of(kept: EnvironmentCache, key: str) -> EnvironmentBuild:
    making = kept.begin_build(key)
    assert making is not None
    return making


def using(kept: EnvironmentCache, key: str) -> EnvironmentHold:
    hold = kept.use(key)
    assert hold is not None
    return hold


def using_cache(kept: EnvironmentCache) -> EnvironmentHold:
    hold = kept.use_cache()
    assert hold is not None
    return hold


def lock_of(kept: EnvironmentCache, key: str) -> Path:
    (found,) = [each.folder.with_name(f"{key}.lock") for each in kept.entries() if each.key == key]
    return found


def test_there_is_nothing_at_first(kept: EnvironmentCache) -> None:
    assert kept.use("a") is None
    assert kept.entries() == []
    assert kept.leftovers() == []


def test_what_was_made_can_be_used_by_many(kept: EnvironmentCache) -> None:
    make(kept, "a", size=123)
    with using(kept, "a") as first, using(kept, "a") as second:
        assert first.folder == second.folder
        assert (first.folder / "packages" / "module.py").stat().st_size == 123
    (only,) = kept.entries()
    assert (only.key, only.size_bytes) == ("a", 123)


def test_one_at_a_time_makes_an_environment_and_nobody_uses_it_meanwhile(kept: EnvironmentCache) -> None:
    with making_of(kept, "a") as making:
        assert kept.begin_build("a") is None
        assert kept.use("a") is None
        making_of(kept, "b").close()
        making.commit()
    assert kept.begin_build("a") is None
    assert kept.use("a") is not None


def test_what_is_not_kept_leaves_nothing(kept: EnvironmentCache, tmp_path: Path) -> None:
    with making_of(kept, "a") as making:
        (making.folder / "half").mkdir(mode=0o500)
        (making.folder / "half").chmod(0o500)
    assert kept.use("a") is None
    assert kept.entries() == []
    assert [path.name for path in (tmp_path / "environments" / "111122223333").iterdir()] == ["a.lock"]


def test_the_lock_of_a_maker_that_is_killed_ends_with_it_and_its_half_is_cleared(kept: EnvironmentCache) -> None:
    program = (
        "import os, pathlib, sys\nfrom trainyard.link.environments import EnvironmentCache\n"
        "making = EnvironmentCache(pathlib.Path(sys.argv[1])).begin_build('a')\n"
        "(making.folder / 'half').write_text('x')\nos.kill(os.getpid(), 9)\n"
    )
    make(kept, "b")
    folder = kept.entries()[0].folder.parent
    assert subprocess.run([sys.executable, "-c", program, folder], check=False).returncode == -9
    (left,) = kept.leftovers()
    assert (left / "half").exists()
    assert kept.use("a") is None
    with making_of(kept, "a") as making:
        assert list(making.folder.iterdir()) == []
        assert not left.exists()
        assert kept.leftovers() == []


def test_what_is_in_use_is_not_removed(kept: EnvironmentCache) -> None:
    make(kept, "a")
    with using(kept, "a") as used:
        assert not kept.remove("a")
        assert kept.surplus(0, unused_s=-1) == []
        assert (used.folder / "packages" / "module.py").exists()
    assert kept.remove("a")
    assert kept.use("a") is None
    assert kept.entries() == []


def test_an_environment_can_be_made_again_after_it_was_removed(kept: EnvironmentCache) -> None:
    make(kept, "a")
    kept.remove("a")
    make(kept, "a", size=7)
    assert [each.size_bytes for each in kept.entries()] == [7]


def test_the_longest_unused_go_first(kept: EnvironmentCache) -> None:
    for number, key in enumerate(("a", "b", "c")):
        make(kept, key, size=100, used_at=1000.0 + number)
    assert [each.key for each in kept.entries()] == ["c", "b", "a"]
    assert [each.key for each in kept.surplus(250)] == ["a"]
    using(kept, "a").close()
    assert [each.key for each in kept.surplus(250)] == ["b"]
    kept.trim(250)
    assert {each.key for each in kept.entries()} == {"a", "c"}


def test_the_last_used_one_stays_however_large_it_is(kept: EnvironmentCache) -> None:
    make(kept, "a", size=100, used_at=1000.0)
    make(kept, "b", size=1000, used_at=2000.0)
    kept.trim(10)
    assert [each.key for each in kept.entries()] == ["b"]


def test_environments_not_used_for_long_are_surplus(kept: EnvironmentCache) -> None:
    make(kept, "a", used_at=1000.0)
    make(kept, "b")
    assert [each.key for each in kept.surplus(1 << 30, unused_s=3600)] == ["a"]


def test_downloads_are_removed_only_when_nothing_uses_them(kept: EnvironmentCache) -> None:
    with using_cache(kept) as cache:
        (cache.folder / "wheel").write_bytes(b"x" * 100)
        assert kept.cache_size() == 100
        kept.trim(10)
        assert kept.cache_size() == 100
    assert kept.entries() == []
    kept.trim(10)
    assert kept.cache_size() == 0


def test_links_in_an_environment_lead_to_nothing_that_is_removed(kept: EnvironmentCache, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir(mode=0o500)
    with making_of(kept, "a") as making:
        (making.folder / "link").symlink_to(tmp_path / "precious")
        making.commit()
    assert kept.remove("a")
    assert (tmp_path / "precious").stat().st_mode & 0o777 == 0o500
