"""The default of the row cache follows the memory limit of the container."""

from pathlib import Path

import pytest

from millpond.runtime.config.memory_limit import container_limit, row_cache_bytes

MIB = 1024**2
V2 = "0::/\n"
V1 = "9:name=systemd:/pod\n4:memory:/pod/one\n3:cpu,cpuacct:/pod/one\n0::/\n"


def make_root(root: Path, groups: str, **limits: str) -> Path:
    """Return a file system with the control groups of a process, and limits by path below `/sys/fs/cgroup`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for path, limit in limits.items():
        file = root / "sys/fs/cgroup" / path.replace("__", "/").replace("--", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit + "\n")
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        (V2, {"memory--max": "536870912"}, 512 * MIB),
        (V2, {"memory--max": "max"}, None),
        ("0::/pod/one\n", {"pod__memory--max": "600", "pod__one__memory--max": "max"}, 600),
        ("0::/pod/one\n", {"pod__memory--max": "600", "pod__one__memory--max": "500"}, 500),
        ("0::/not/shown\n", {"memory--max": "700"}, 700),
        (V1, {"memory__memory--limit_in_bytes": "800"}, 800),
        (V1, {"memory__pod__one__memory--limit_in_bytes": "9", "memory__memory--limit_in_bytes": "800"}, 9),
        ("3:cpu:/pod\n", {"memory__memory--limit_in_bytes": "800"}, None),
        ("", {}, None),
    ],
)
def test_the_limit_is_the_smallest_of_the_groups(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    assert container_limit(make_root(tmp_path, groups, **limits)) == expected


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert container_limit(tmp_path) is None
    assert row_cache_bytes(-1, tmp_path) == 256 * MIB


@pytest.mark.parametrize(("limit", "expected"), [(256, 64), (512, 128), (1024, 256), (8192, 256)])
def test_the_default_is_a_quarter_of_the_limit_at_most(tmp_path: Path, limit: int, expected: int) -> None:
    root = make_root(tmp_path, V2, **{"memory--max": str(limit * MIB)})
    assert row_cache_bytes(-1, root) == expected * MIB


def test_a_given_size_is_used_whatever_the_limit(tmp_path: Path) -> None:
    root = make_root(tmp_path, V2, **{"memory--max": str(64 * MIB)})
    assert row_cache_bytes(300 * MIB, root) == 300 * MIB
    assert row_cache_bytes(0, root) == 0
