"""Programs in real sandboxes: what they see, what they can do, and how they end; for root's yard and for a user's."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainyard.testing.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests/system/sandbox_driver.py"
TRIAL = ROOT / "src/trainyard/engines/namespace_probe.py"

JOB_UID = 54321  # of jobs that root launches
USER_UID = 54322  # of an ordinary user, when these tests run as root

MIB = 1024**2


@dataclass(frozen=True)
class Result:
    """What a driver told."""

    code: int | None = None
    signal: int | None = None
    is_oom: bool = False
    output: str = ""
    not_enforced: tuple[str, ...] = ()
    error: str | None = None
    message: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.output)


class Yard:
    """Somebody who launches sandboxes, with a folder for them that everybody on the machine could read."""

    def __init__(self, who: str, folder: Path, interpreter: str) -> None:
        self.is_root = who == "root"
        self.folder = folder
        self.interpreter = interpreter
        self.uid = os.getuid() if self.is_root or os.getuid() else USER_UID
        self.ml = self._make("ml")
        self.scratch = self._make("scratch")
        self.marker = f"sandbox-test-{uuid.uuid4().hex}"

    @property
    def job_uid(self) -> int:
        return JOB_UID if self.is_root else self.uid

    def make_folder(self, name: str, *, owner: int | None = None) -> Path:
        """A folder that everybody may read."""
        return self._make(name, owner=self.uid if owner is None else owner)

    def request(self, script: str, **values: Any) -> dict[str, Any]:
        """The request for a Python script; its marker is an argument, by which its processes can be found."""
        (self.ml / "script.py").write_text(textwrap.dedent(script))
        place = str(self.ml) if values.get("isolation") == "process group" else "/opt/ml"
        return {
            "name": self.marker,
            "argv": [self.interpreter, f"{place}/script.py", self.marker],
            "environment": {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
            "ml_folder": str(self.ml),
            "scratch_folder": str(self.scratch),
            "working_folder": place,
            "interpreter": self.interpreter,
            "uid": JOB_UID if self.is_root else None,
            **values,
        }

    def run(self, script: str, *actions: tuple[str, ...], **values: Any) -> Result:
        """Run a script to its end. Nothing of it may be left on the machine, neither process nor mount nor group."""
        plan = json.dumps({"request": self.request(script, **values), "actions": actions})
        done = subprocess.run(
            self.command(), input=plan, capture_output=True, text=True, timeout=120, **self.identity()
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["left"] == []
        assert self.processes() == []
        if "error" in told:
            return Result(error=told["error"], message=told["message"])
        return Result(output=told["output"], not_enforced=tuple(told["not_enforced"]), **told["ended"])

    def command(self) -> list[str]:
        return [self.interpreter, "-B", str(DRIVER)]

    def identity(self) -> dict[str, Any]:
        values: dict[str, Any] = {"env": {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}, "cwd": "/"}
        if os.getuid() == 0 and self.is_root:
            values |= {"extra_groups": [0, 4]}  # which a job must not inherit
        if self.uid != os.getuid():
            values |= {"user": self.uid, "group": self.uid, "extra_groups": []}
        return values

    def processes(self) -> list[int]:
        """Those of the last program that run, wherever they hid."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.marker in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
        return found

    def _make(self, name: str, *, owner: int | None = None) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        if os.getuid() == 0:
            owner = (JOB_UID if name == "ml" and self.is_root else self.uid) if owner is None else owner
            os.chown(folder, owner, owner)
        return folder


@pytest.fixture(params=["root", "user"])
def yard(request: pytest.FixtureRequest, open_folder: Path) -> Yard:
    if request.param == "root" and os.getuid() != 0:
        pytest.skip("sandboxes of root's yard need root")
    interpreter = sys.executable if request.param == "root" or os.getuid() else _interpreter_for_everybody()
    return Yard(request.param, open_folder, interpreter)


@pytest.fixture
def sandboxing_yard(yard: Yard) -> Yard:
    """A yard on a machine that allows namespaces, as a trial of another part of the project says."""
    for name in ("user", "mount", "pid"):
        trial = subprocess.run(
            [yard.interpreter, "-S", "-P", str(TRIAL), name, str(yard.scratch)],
            capture_output=True,
            text=True,
            check=False,
            **yard.identity(),
        )
        if trial.returncode:
            pytest.skip(f"this machine allows no {name} namespaces: {trial.stderr.strip()}")
    return yard


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user of the machine can get to, unlike pytest's own."""
    folder = Path("/tmp") / f"trainyard-sandbox-{uuid.uuid4().hex}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def _interpreter_for_everybody() -> str:
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        asked = "import sys; sys.exit(sys.version_info < (3, 11))"
        with contextlib.suppress(OSError):
            if subprocess.run([candidate, "-I", "-c", asked], user=USER_UID, check=False, cwd="/").returncode == 0:
                return candidate
    pytest.skip("this machine has no Python 3.11 that an ordinary user may start")


class TestView:
    @pytest.mark.flow
    def test_a_program_sees_a_system_an_environment_and_its_own_folders(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run("import json, os; print(json.dumps(sorted(os.listdir('/'))))")
        assert {"etc", "opt", "usr", "proc", "tmp", "dev"} <= set(result.json)
        assert not {"boot", "home", "mnt", "media", "srv", ".host", "lost+found"} & set(result.json)

    def test_readable_files_of_others_are_not_there(self, sandboxing_yard: Yard) -> None:
        places = [sandboxing_yard.make_folder(name) for name in ("yard-home", "other-job", "home-of-a-user")]
        for place in places:
            (place / "secret").write_text("secret")
        result = sandboxing_yard.run(
            f"""
            import json
            refused = []
            for path in {[str(place / "secret") for place in places]}:
                try:
                    open(path)
                except OSError as error:
                    refused.append(type(error).__name__)
            print(json.dumps(refused))
            """
        )
        assert result.json == ["FileNotFoundError"] * 3

    def test_what_is_hidden_stays_hidden_inside_a_folder_that_is_shown(self, sandboxing_yard: Yard) -> None:
        data = sandboxing_yard.make_folder("data")
        sandboxing_yard.make_folder("data/keys")
        (data / "keys/secret").write_text("secret")
        (data / "token").write_text("secret")
        (data / "open").write_text("for all")
        result = sandboxing_yard.run(
            "import json, os; print(json.dumps([sorted(os.listdir('/data')), os.listdir('/data/keys'), "
            "open('/data/token').read(), open('/data/open').read()]))",
            read_only=[[str(data), "/data"]],
            hidden=[str(data / "keys"), str(data / "token")],
        )
        assert result.json == [["keys", "open", "token"], [], "", "for all"]

    def test_an_interpreter_in_a_hidden_home_works_and_shows_nothing_else_of_it(self, sandboxing_yard: Yard) -> None:
        yard = sandboxing_yard
        home = yard.make_folder("home")
        (home / "secret").write_text("secret")
        subprocess.run([yard.interpreter, "-m", "venv", "--without-pip", str(home / "envs/one")], check=True)
        python = str(home / "envs/one/bin/python")
        request = yard.request(
            f"import json, os, sys, ctypes; print(json.dumps([sys.prefix, os.listdir({str(home)!r}), "
            f"os.listdir({str(home / 'envs')!r}), os.path.exists({str(home / 'secret')!r})]))"
        )
        result = yard.run(
            (yard.ml / "script.py").read_text(),
            argv=[python, *request["argv"][1:]],
            interpreter=python,
            hidden=[str(home)],
        )
        assert result.json == [str(home / "envs/one"), ["envs"], ["one"], False]

    def test_folders_that_were_given_can_be_written_and_others_not(self, sandboxing_yard: Yard) -> None:
        yard = sandboxing_yard
        state, shown = yard.make_folder("state", owner=yard.job_uid), yard.make_folder("shown", owner=yard.job_uid)
        result = yard.run(
            """
            import json
            written = []
            for folder in "opt/ml state tmp var/tmp dev/shm shown . etc usr opt sys".split():
                try:
                    open(f"/{folder}/probe", "w").close()
                    written.append(folder)
                except OSError:
                    pass
            print(json.dumps(written))
            """,
            writable=[[str(state), "/state"]],
            read_only=[[str(shown), "/shown"]],
        )
        assert result.json == ["opt/ml", "state", "tmp", "var/tmp", "dev/shm"]
        assert (state / "probe").exists()
        assert (yard.ml / "probe").stat().st_uid == yard.job_uid

    def test_a_folder_shown_copy_on_write_can_be_changed_in_every_way_and_is_not(self, sandboxing_yard: Yard) -> None:
        source = sandboxing_yard.make_folder("data")
        for name in ("one", "two", "three", "deep/er/four"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text("kept")
            (source / name).chmod(0o644)
        for path in (source, *source.rglob("*")):
            os.chown(path, sandboxing_yard.uid, sandboxing_yard.uid)
        changes = sandboxing_yard.scratch / "changes"
        done = sandboxing_yard.run(
            """
            import json, os, pathlib, shutil
            data = pathlib.Path("/opt/ml/data")
            before = {str(path.relative_to(data)): path.read_text() for path in data.rglob("*") if path.is_file()}
            (data / "one").write_text("over")
            with (data / "two").open("a") as file:
                file.write(" and more")
            (data / "three").chmod(0o600)
            os.setxattr(data / "three", "user.mine", b"1")
            shutil.rmtree(data / "deep")
            (data / "deep").mkdir()
            (data / "deep/new").write_text("new")
            after = {str(path.relative_to(data)): path.read_text() for path in data.rglob("*") if path.is_file()}
            owners = sorted({path.stat().st_uid for path in (data, *data.rglob("*"))})
            print(json.dumps([before, after, owners, oct((data / "three").stat().st_mode & 0o777)]))
            """,
            copy_on_write=[(str(source), "/opt/ml/data", str(changes))],
        )
        before, after, owners, mode = done.json
        assert before == {"one": "kept", "two": "kept", "three": "kept", "deep/er/four": "kept"}
        assert after == {"one": "over", "two": "kept and more", "three": "kept", "deep/new": "new"}
        assert (owners, mode) == ([sandboxing_yard.job_uid], "0o600")
        files = {path for path in source.rglob("*") if path.is_file()}
        assert {str(path.relative_to(source)) for path in files} == set(before)
        assert {(path.read_text(), path.stat().st_mode & 0o777, path.stat().st_uid) for path in files} == {
            ("kept", 0o644, sandboxing_yard.uid)
        }

    def test_what_a_program_changed_is_there_for_the_next_with_the_same_changes(self, sandboxing_yard: Yard) -> None:
        source, changes = sandboxing_yard.make_folder("data"), sandboxing_yard.scratch / "changes"
        shown = [(str(source), "/opt/ml/data", str(changes))]
        for expected in ("[]", "['mine']"):
            script = "import os; print(os.listdir('/opt/ml/data')); open('/opt/ml/data/mine', 'w').close()"
            assert sandboxing_yard.run(script, copy_on_write=shown).output.strip() == expected

    def test_where_a_folder_cannot_be_shown_copy_on_write_a_launch_says_so(self, sandboxing_yard: Yard) -> None:
        changes = sandboxing_yard.make_folder("changes")
        source = sandboxing_yard.make_folder("changes/upper/within")
        overlapping = [(str(source), "/opt/ml/data", str(changes))]  # of which no kernel makes layers
        refused = sandboxing_yard.run("print('never')", copy_on_write=overlapping)
        assert (refused.error, "copy-on-write" in refused.message) == ("CopyOnWriteUnavailable", True)

    def test_a_folder_that_need_not_be_changed_is_shown_read_only_then_and_a_note_says_so(
        self, sandboxing_yard: Yard
    ) -> None:
        changes = sandboxing_yard.make_folder("changes")
        source = sandboxing_yard.make_folder("changes/upper/within")
        (source / "file").write_text("kept")
        script = """
            try:
                open("/opt/ml/data/new", "w")
            except OSError as error:
                print(open("/opt/ml/data/file").read(), error.strerror)
            """
        done = sandboxing_yard.run(script, copy_on_write=[(str(source), "/opt/ml/data", str(changes), True)])
        assert done.output.strip() == "kept Read-only file system"
        assert any("copy-on-write" in note for note in done.not_enforced)

    def test_a_program_can_call_the_scripts_of_its_request_and_not_change_them(self, sandboxing_yard: Yard) -> None:
        done = sandboxing_yard.run(
            """
            import subprocess
            print(subprocess.run(["/run/trainyard/bin/greet", "you"], capture_output=True, text=True).stdout)
            try:
                open("/run/trainyard/bin/greet", "w")
            except OSError as error:
                print(error.strerror)
            """,
            files={"/run/trainyard/bin/greet": "#!/bin/sh\necho hello $1\n"},
        )
        assert done.output.split("\n")[0] == "hello you"
        assert done.output.split("\n")[2] in ("Permission denied", "Read-only file system")

    def test_a_path_below_a_folder_is_bound_and_never_leads_out_of_it(self, sandboxing_yard: Yard) -> None:
        shared, private = sandboxing_yard.make_folder("shared"), sandboxing_yard.make_folder("private")
        (shared / "sets").mkdir()
        (shared / "sets/file").write_text("3")
        (shared / "inside").symlink_to("sets")
        (shared / "outside").symlink_to("../private")
        (shared / "absolute").symlink_to(private)
        script = "print(open('/opt/ml/sets/file').read())"
        for below in ("sets", "inside"):
            shown = sandboxing_yard.run(script, read_only=[(str(shared), "/opt/ml/sets", below)])
            assert shown.output.strip() == "3", shown
        for below in ("outside", "absolute", "../private", "none"):
            refused = sandboxing_yard.run(script, read_only=[(str(shared), "/opt/ml/sets", below)])
            assert refused.error == "InvalidRequest", below

    @pytest.mark.parametrize(
        ("place", "leads_to"),
        [
            ("input/data/train", "/.host/{secret}"),
            ("input/data/train", "/.changes"),
            ("input/data/train", "/proc/1/root/tmp"),
            ("input/data", "/tmp"),
            ("input", "../../tmp"),
        ],
    )
    def test_a_link_that_a_program_left_decides_nothing_of_the_next_view(
        self, sandboxing_yard: Yard, place: str, leads_to: str
    ) -> None:
        source, secret = sandboxing_yard.make_folder("data"), sandboxing_yard.make_folder("secret")
        text, above = leads_to.format(secret=secret), Path(place).parent
        trap = f"import os; os.makedirs('{above}', exist_ok=True); os.symlink('{text}', '{place}')"
        assert sandboxing_yard.run(trap).code == 0
        target = "/opt/ml/input/data/train"
        for given in (
            {"copy_on_write": [(str(source), target, str(sandboxing_yard.scratch / "changes"))]},
            {"writable": [(str(source), target)]},
        ):
            refused = sandboxing_yard.run("print('started')", **given)
            assert (refused.error, refused.output) == ("InvalidRequest", ""), refused
            assert f"{target}: this folder, or one above it, is a symbolic link" in refused.message
        assert list(secret.iterdir()) == list(source.iterdir()) == []

    def test_a_folder_that_a_program_replaced_fails_the_next_view_by_its_name(self, sandboxing_yard: Yard) -> None:
        source = sandboxing_yard.make_folder("data")
        given = [[str(source), "/opt/ml/train"]]
        for trap in ("open('train', 'w')", "import os; os.mkfifo('train')"):
            assert sandboxing_yard.run(trap).code == 0
            refused = sandboxing_yard.run("", read_only=given)
            assert (refused.error, "/opt/ml/train: Not a directory" in refused.message) == ("InvalidRequest", True)
            (sandboxing_yard.ml / "train").unlink()

    def test_links_among_the_changes_of_a_channel_lead_nowhere_but_inside(self, sandboxing_yard: Yard) -> None:
        source, secret = sandboxing_yard.make_folder("data"), sandboxing_yard.make_folder("secret")
        (secret / "key").write_text("the key")
        shown = [(str(source), "/opt/ml/data", str(sandboxing_yard.scratch / "changes"))]
        leads = [f"/.host{secret}", f"/.lower/../..{secret}", f"/proc/1/root{secret}", str(secret), "/"]
        traps = f"import os; [os.symlink(lead, f'/opt/ml/data/{{n}}') for n, lead in enumerate({leads})]"
        assert sandboxing_yard.run(traps, copy_on_write=shown).code == 0
        looks = f"""
        import os
        print([os.path.exists(f'/opt/ml/data/{{n}}/key') for n in range({len(leads)})])
        print(os.path.exists('/opt/ml/data/4{secret}'))
        """
        assert sandboxing_yard.run(looks, copy_on_write=shown).output.splitlines() == [str([False] * 5), "False"]

    def test_a_program_sees_no_control_group_but_its_own(self, sandboxing_yard: Yard) -> None:
        script = """
        import json, os
        names = [line.rstrip().split(":", 2)[2] for line in open("/proc/self/cgroup")]
        found = [path for path, _, _ in os.walk("/sys/fs/cgroup")]
        print(json.dumps([names, found]))
        """
        names, found = sandboxing_yard.run(script, limits={"cpus": 1}).json
        assert [each for each in [*names, *found] if "trainyard-" in each or "/.." in each] == []
        if sandboxing_yard.is_root:
            assert len(found) > 1  # its own, of which it reads its limits as in a container

    def test_a_program_has_the_name_and_the_hosts_it_was_given(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(
            "import getpass, json, os, socket; print(json.dumps([socket.gethostname(), socket.gethostbyname('algo-2'), "
            "socket.gethostbyname('localhost'), getpass.getuser(), os.getcwd()]))",
            hostname="algo-1",
            hosts=["127.0.0.7 algo-2"],
        )
        assert result.json == ["algo-1", "127.0.0.7", "127.0.0.1", "job", "/opt/ml"]

    def test_a_program_starts_with_its_environment_and_three_descriptors(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(
            """
            import json, os, signal, sys
            descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
            kept = sorted(number for number in descriptors if os.path.exists(f"/proc/self/fd/{number}"))
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            ignored = next(line for line in open("/proc/self/status") if line.startswith("SigIgn"))
            leads = os.getsid(0) == os.getpgid(0) == os.getpid()
            print(json.dumps([kept, sys.stdin.read(), dict(os.environ), len(blocked), ignored.split()[1][-4:], leads]))
            """,
            environment={"ONLY": "this", "LC_CTYPE": "C.UTF-8"},
        )
        ours = "1000"  # SIGPIPE is ignored by Python itself
        assert result.json == [[0, 1, 2], "", {"ONLY": "this", "LC_CTYPE": "C.UTF-8"}, 0, ours, True]

    def test_output_and_errors_arrive_in_the_order_they_were_written(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run("import os; [os.write(1 + number % 2, b'%d ' % number) for number in range(50)]")
        assert result.output.split() == [str(number) for number in range(50)]

    def test_shared_memory_semaphores_and_terminals_work(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(
            """
            import multiprocessing, os, pty
            from multiprocessing.shared_memory import SharedMemory
            memory = SharedMemory(create=True, size=1 << 20)
            with multiprocessing.Lock():
                leader, follower = pty.openpty()
            memory.close(); memory.unlink()
            print(os.ttyname(follower), multiprocessing.Pool(2).map(abs, [-1, -2]))
            """
        )
        assert result.output == "/dev/pts/0 [1, 2]\n"


class TestPrivileges:
    @pytest.mark.flow
    def test_a_program_is_never_root_and_has_no_capability(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(
            """
            import json, os
            status = dict(line.strip().split(":", 1) for line in open("/proc/self/status"))
            status = {name: value.strip() for name, value in status.items()}
            sets = {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
            print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), sorted(sets), status["NoNewPrivs"]]))
            """
        )
        uids, gids, groups, sets, no_new_privileges = result.json
        assert groups == []
        assert uids == gids == [sandboxing_yard.job_uid] * 3
        assert sets == ["0" * 16]
        assert no_new_privileges == "1"

    def test_a_program_cannot_mount_change_root_or_make_namespaces(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(
            """
            import ctypes, json, os
            libc = ctypes.CDLL(None, use_errno=True)
            calls = {
                "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
                "remount": lambda: libc.mount(None, b"/usr", None, 0x20 | 0x1000, None),
                "unmount": lambda: libc.umount2(b"/etc/hosts", 2),
                "chroot": lambda: libc.chroot(b"/tmp"),
                "hostname": lambda: libc.sethostname(b"x", 1),
                "user namespace": lambda: libc.unshare(0x10000000),
                "mount namespace": lambda: libc.unshare(0x20000),
                "setuid": lambda: libc.setuid(0),
                "setgroups": lambda: libc.setgroups(0, None),
            }
            print(json.dumps([name for name, call in calls.items() if call() != -1]))
            """
        )
        assert result.json == []

    def test_programs_with_the_setuid_bit_do_not_gain_root(self, sandboxing_yard: Yard) -> None:
        yard = sandboxing_yard
        if os.getuid() != 0:
            pytest.skip("only root can make a file with the setuid bit of root")
        tools = yard.make_folder("tools")
        subprocess.run(["cp", "/usr/bin/id", str(tools / "id")], check=True)
        os.chown(tools / "id", 0, 0)
        (tools / "id").chmod(0o4755)
        result = yard.run(
            "import subprocess; print(subprocess.run(['/tools/id', '-u'], capture_output=True, text=True).stdout)",
            read_only=[[str(tools), "/tools"]],
        )
        assert result.output.split() == [str(yard.job_uid)]

    def test_a_program_sees_only_its_own_processes(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(
            f"""
            import json, os, sys
            pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
            reached = []
            for pid in ({os.getpid()}, os.getppid()):
                try:
                    os.kill(pid, 0) if pid != 1 else open("/proc/1/mem", "rb")
                    reached.append(pid)
                except OSError:
                    pass
            print(json.dumps([pids, os.getpid(), reached]))
            """
        )
        assert result.json == [[1, 2], 2, []]

    def test_a_program_cannot_trace_or_kill_its_init(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(
            """
            import ctypes, os, signal
            libc = ctypes.CDLL(None, use_errno=True)
            print(libc.ptrace(16, 1, None, None), os.stat("/proc/1/environ").st_uid == os.getuid())
            for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT):
                try:
                    os.kill(1, number)
                except PermissionError:
                    pass
            print("alive")
            """
        )
        assert result.output.split() == ["-1", "False", "alive"]
        assert result.code == 0

    def test_sockets_of_the_host_cannot_be_reached(self, sandboxing_yard: Yard) -> None:
        yard = sandboxing_yard
        name = f"\0{yard.marker}"
        path = str(yard.folder / "host.socket")
        with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
            abstract.bind(name)
            named.bind(path)
            Path(path).chmod(0o777)
            abstract.listen()
            named.listen()
            result = yard.run(
                f"""
                import json, socket
                reached = []
                for address in ({name!r}, {path!r}):
                    try:
                        socket.socket(socket.AF_UNIX).connect(address)
                        reached.append(address)
                    except OSError:
                        pass
                print(json.dumps(reached))
                """
            )
        admitted = any("Abstract unix sockets" in sentence for sentence in result.not_enforced)
        assert result.json == ([name] if admitted else [])


class TestEnd:
    def test_an_exit_code_is_reported(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run("raise SystemExit(7)")
        assert (result.code, result.signal, result.is_oom) == (7, None, False)

    def test_a_fatal_signal_is_reported(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        assert (result.code, result.signal) == (None, signal.SIGSEGV)

    def test_terminate_reaches_the_program_which_ends_as_it_likes(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(
            """
            import os, signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b" saved"), sys.exit(3)))
            os.write(1, b"ready")
            time.sleep(100)
            """,
            ("await", "ready"),
            ("terminate",),
        )
        assert (result.output.split(), result.code) == (["ready", "saved"], 3)

    def test_a_program_without_a_handler_ends_by_sigterm(self, sandboxing_yard: Yard) -> None:
        script = "import time; print('ready', flush=True); time.sleep(100)"
        result = sandboxing_yard.run(script, ("await", "ready"), ("terminate",))
        assert result.signal == signal.SIGTERM

    def test_a_program_that_is_stopped_learns_of_sigterm(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(STOPPED, ("await", "ready"), ("terminate",))
        assert result.signal == signal.SIGTERM

    @pytest.mark.parametrize("how", ["kill", "kill while waiting"])
    def test_a_tree_that_ignores_sigterm_is_dead_when_kill_returns(self, sandboxing_yard: Yard, how: str) -> None:
        result = sandboxing_yard.run(STUBBORN, ("await", "ready"), ("terminate",), (how,))
        assert result.signal == signal.SIGKILL

    def test_daemons_end_with_the_program(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(DAEMON)
        assert (result.output.split(), result.code) == (["ready"], 0)

    def test_the_tree_ends_with_the_process_that_launched_it(self, sandboxing_yard: Yard) -> None:
        yard = sandboxing_yard
        plan = json.dumps({"request": yard.request(STUBBORN), "actions": [["await", "ready"], ["announce"]]})
        with subprocess.Popen(
            yard.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **yard.identity()
        ) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            driver.stdin.write(plan)
            driver.stdin.close()
            assert "pid" in json.loads(driver.stdout.readline())
            assert len(yard.processes()) == 2
            driver.kill()
        eventually(lambda: yard.processes() == [], "the tree is gone")
        eventually(lambda: not _groups(yard.marker), "its control groups are removed")

    def test_the_tree_ends_with_its_supervisor(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(STUBBORN, ("await", "ready"), ("kill supervisor",))
        assert result.signal == signal.SIGKILL

    def test_a_failed_start_says_why(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run("", argv=["/opt/ml/missing"])
        assert (result.error, "/opt/ml/missing: No such file" in result.message) == ("InvalidRequest", True)
        result = sandboxing_yard.run("", working_folder="/nowhere")
        assert (result.error, "/nowhere" in result.message) == ("InvalidRequest", True)

    def test_a_target_in_the_read_only_system_says_why(self, sandboxing_yard: Yard) -> None:
        given = sandboxing_yard.make_folder("given")
        result = sandboxing_yard.run("", writable=[[str(given), "/usr/not-there"]])
        assert (result.error, "/usr/not-there: Read-only" in result.message) == ("InvalidRequest", True)
        assert not Path("/usr/not-there").exists()


class TestLimits:
    def test_a_fork_bomb_stops_at_the_limit(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(FORK_BOMB, ("await", "refused"), ("kill",), limits={"processes": 20})
        assert result.output.split() == ["19", "refused"]
        assert result.not_enforced == ()

    @pytest.mark.flow
    def test_a_memory_hog_is_ended_and_named_as_such(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(MEMORY_HOG, limits={"memory_bytes": 150 * MIB})
        assert (result.signal, result.is_oom) == (signal.SIGKILL, True)
        assert bool(result.not_enforced) is not sandboxing_yard.is_root

    def test_a_hog_among_the_children_is_named_when_the_program_fails(self, sandboxing_yard: Yard) -> None:
        script = f"""
        import subprocess, sys
        sys.exit(subprocess.run([sys.executable, "-c", {MEMORY_HOG!r}]).returncode != 0)
        """
        result = sandboxing_yard.run(script, limits={"memory_bytes": 150 * MIB})
        assert result.is_oom

    def test_forked_workers_share_their_memory_in_the_account(self, sandboxing_yard: Yard) -> None:
        result = sandboxing_yard.run(SHARED_MEMORY, limits={"memory_bytes": 300 * MIB})
        assert (result.code, result.is_oom, result.output.split()) == (0, False, ["done"])

    def test_a_share_of_the_cpu_is_held(self, sandboxing_yard: Yard) -> None:
        if not sandboxing_yard.is_root:
            result = sandboxing_yard.run("", limits={"cpus": 0.5})
            assert [sentence for sentence in result.not_enforced if "0.5 CPUs" in sentence]
            return
        result = sandboxing_yard.run(THROTTLED, limits={"cpus": 0.2})
        assert (result.output.split(), result.not_enforced) == (
            ["throttled", "20000"],
            (),
        )  # of 100 ms, and so much saved


class TestProcessGroup:
    @pytest.fixture
    def yard(self, yard: Yard) -> Yard:
        """Without a view of its own, a program needs an interpreter that its user can get to."""
        yard.interpreter = _interpreter_for_everybody() if os.getuid() == 0 else yard.interpreter
        return yard

    def test_a_program_runs_with_the_paths_of_the_host_and_says_what_is_lost(self, yard: Yard) -> None:
        result = yard.run("import os; print(os.getcwd(), os.getuid())", isolation="process group")
        assert result.output.split() == [str(yard.ml), str(yard.job_uid)]
        assert [sentence for sentence in result.not_enforced if "not sandboxed" in sentence]

    def test_a_program_has_no_privilege_to_gain(self, yard: Yard) -> None:
        result = yard.run(
            "wanted = 'CapPrm', 'CapEff', 'NoNewP'\n"
            "print([line.split()[1] for line in open('/proc/self/status') if line.startswith(wanted)])",
            isolation="process group",
        )
        assert result.output.strip() == str(["0" * 16, "0" * 16, "1"])

    def test_daemons_end_with_the_program(self, yard: Yard) -> None:
        assert yard.run(DAEMON, isolation="process group").code == 0

    def test_a_program_that_is_stopped_learns_of_sigterm(self, yard: Yard) -> None:
        result = yard.run(STOPPED, ("await", "ready"), ("terminate",), isolation="process group")
        assert result.signal == signal.SIGTERM

    def test_a_tree_that_ignores_sigterm_is_dead_when_kill_returns(self, yard: Yard) -> None:
        result = yard.run(STUBBORN, ("await", "ready"), ("terminate",), ("kill",), isolation="process group")
        assert result.signal == signal.SIGKILL

    def test_a_memory_hog_is_ended_and_named_as_such(self, yard: Yard) -> None:
        result = yard.run(MEMORY_HOG, limits={"memory_bytes": 150 * MIB}, isolation="process group")
        assert (result.signal, result.is_oom) == (signal.SIGKILL, True)

    def test_where_no_namespace_is_allowed_a_launch_says_so_and_a_process_group_works(
        self, sandboxing_yard: Yard
    ) -> None:
        """A sandbox is such a place: it allows no namespaces inside."""
        yard = sandboxing_yard
        inner: dict[str, Any] = {
            "name": "inner",
            "argv": ["/bin/echo", "hello"],
            "environment": {},
            "ml_folder": "/opt/ml",
            "scratch_folder": "/opt/ml/scratch",
            "interpreter": yard.interpreter,
            "uid": None,
        }
        result = yard.run(
            f"""
            import json, sys
            sys.path[:0] = ["/source/src", "/source/tests/system"]
            from sandbox_driver import drive
            inner = {inner!r}
            print(json.dumps([drive(inner, []), drive(inner | {{"isolation": "process group"}}, [])]))
            """,
            read_only=[[str(ROOT / name), f"/source/{name}"] for name in ("src", "tests")],
        )
        refused, ran = result.json
        assert (refused["error"], "does not allow isolation" in refused["message"]) == ("Unavailable", True)
        assert ran["output"] == "hello\n"


def _groups(marker: str) -> list[str]:
    command = ["find", "/sys/fs/cgroup", "-type", "d", "-name", f"*{marker}*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


# Says that it is ready once it is stopped, by a child that sees it.
STOPPED = """
import os, signal, time
if os.fork() == 0:
    while open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
    os.write(1, b"ready")
    os._exit(0)
os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(100)
"""
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
else:
    print("ready", flush=True)
time.sleep(100)
"""

DAEMON = """
import os, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writer, b"x")
        time.sleep(100)
    os._exit(0)
os.wait()
os.read(reader, 1)
print("ready")
"""

FORK_BOMB = """
import os, signal, time
children = 0
try:
    while children < 1000:
        if os.fork() == 0:
            time.sleep(100)
        children += 1
except OSError:
    print(children, "refused", flush=True)
time.sleep(100)
"""

MEMORY_HOG = """
import time
taken = []
for _ in range(200):
    taken.append(bytearray(b"x" * (10 << 20)))
    time.sleep(0.02)
"""

SHARED_MEMORY = """
import os, time
taken = bytearray(150 << 20)
for page in range(0, len(taken), 4096):
    taken[page] = 1
for _ in range(4):
    if os.fork() == 0:
        time.sleep(1)
        os._exit(0)
for _ in range(4):
    os.wait()
print("done")
"""

THROTTLED = """
import os, time
lines = [line.rstrip().split(":", 2) for line in open("/proc/self/cgroup")]
places = [f"/sys/fs/cgroup/{names}{path}" for _, names, path in lines if "cpu" in names.split(",")]
places += [f"/sys/fs/cgroup{path}" for _, names, path in lines if not names]
end = time.monotonic() + 30
while time.monotonic() < end:
    for place in places:
        try:
            counts = dict(line.split() for line in open(f"{place}/cpu.stat"))
        except OSError:
            continue
        if int(counts.get("nr_throttled", 0)) > 2:
            bursts = [f"{place}/{name}" for name in ("cpu.cfs_burst_us", "cpu.max.burst")]
            print("throttled", *(open(file).read().strip() for file in bursts if os.path.exists(file)))
            raise SystemExit
"""
