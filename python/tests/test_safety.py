"""What must never end the interpreter, copy weights, or hang: in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
import uuid

import pytest


def run(code: str, status: int = 0, **options) -> str:
    """Runs ``code`` in a process of its own; ``NAME`` in it is a group's name."""
    text = textwrap.dedent(code).replace("NAME", f"shm:test-{uuid.uuid4().hex}")
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


LAYOUT = """
    import numpy as np, syncline as sl
    one = sl.Layout.from_mesh("[mesh]\\naxes = [['tp', 1]]\\n", {"w": ("f32", (SIZE,))})
"""


def test_weights_are_not_copied() -> None:
    code = LAYOUT.replace("SIZE", str(64 << 20)) + """
    import resource
    source, target = np.ones(64 << 20, np.float32), np.zeros(64 << 20, np.float32)
    target[:] = 2
    with sl.join("NAME", 0, 1) as group:
        refit = group.prepare(one, one)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        refit.run({"w": source}, {"w": target})
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (target == 1).all()
    # 256 MiB each; a copy of one would show.
    assert grown < 64 << 10, grown
    """
    run(code)


@pytest.mark.parametrize("order", ["F", "gaps"])
def test_strided_weights_are_not_copied_either(order: str) -> None:
    code = """
    import resource, numpy as np, syncline as sl
    shape = (4096, 8192)
    one = sl.Layout.from_mesh("[mesh]\\naxes = [['tp', 1]]\\n", {"w": ("f32", shape)})
    if "ORDER" == "F":
        source, target = (np.full(shape, value, "f4", order="F") for value in (1, 2))
    else:
        source, target = (np.full((4096, 8193), value, "f4")[:, 1:] for value in (1, 2))
    with sl.join("NAME", 0, 1) as group:
        refit = group.prepare(one, one)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        refit.run({"w": source}, {"w": target})
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (target == 1).all()
    # 128 MiB each; a packed copy of one would show.
    assert grown < 32 << 10, grown
    """
    run(code.replace("ORDER", order))


#: Work that takes long, each in a statement that Ctrl-C must end; PATH is a folder of its own.
LONG = {
    "convert": """
        from safetensors.numpy import save_file
        save_file({f"t{at}": np.zeros(1 << 22, "f4") for at in range(16)}, "PATH/a.safetensors")
        layout = sl.Layout.from_checkpoint("PATH/a.safetensors")
        began, slow = threading.Event(), lambda done, total: (began.set(), time.sleep(0.2))
        body = lambda: sl.convert(
            "PATH/a.safetensors", "PATH/b", to=layout, pes=1, allow_unproven=True, progress=slow)
    """,
    "verify": """
        # 64 GiB of zeros, of which the disk holds nothing.
        tensor = lambda at: {
            "dtype": "F32", "shape": [1 << 30], "data_offsets": [at << 32, at + 1 << 32]}
        header = json.dumps({f"t{at}": tensor(at) for at in range(16)}).encode()
        with open("PATH/a.safetensors", "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(file.tell() + (16 << 32))
        began = threading.Event()
        began.set()
        body = lambda: sl.verify("PATH/a.safetensors", "PATH/a.safetensors")
    """,
    "copies.run": """
        other = "import sys, syncline as sl; g = sl.join(sys.argv[1], 1, 2); sys.stdin.read()"
        other = subprocess.Popen([sys.executable, "-c", other, "NAME"], stdin=subprocess.PIPE)
        copies = sl.join("NAME", 0, 2, timeout=100).copy_service()
        copies.submit_recv(np.zeros(4), 1)
        began = threading.Event()
        began.set()
        body = copies.run
    """,
    "run": """
        view = {"dtype": "f32", "shape": [1 << 20], "strides": [4], "buffer": 0, "offset": 0}
        task = {"kernel": "scale", "scalars": {"alpha": 1.0}, "args": [
            {"access": "input", **view}, {"access": "output_existing", **view}]}
        program = {"format": "syncline-trace", "version": 1,
            "buffers": [{"id": 0, "name": "x", "bytes": 4 << 20}],
            "tasks": [{"id": at, **task} for at in range(20)]}
        began = threading.Event()
        body = lambda: sl.run(
            program, mode=MODE, repeat=1 << 20, progress=lambda done, total: began.set())
    """,
    "plan.run": """
        def record(g):
            x = g.buffer("x", (4,))
            for at in range(10000):
                g.task(wait, [g.update(x)])
        began = threading.Event()
        def wait(x):
            began.set()
            time.sleep(0.01)
        plan = sl.Executor().record(record).compile()
        body = lambda: plan.run({"x": np.zeros(4, "f4")})
    """,
    "scope": """
        began = threading.Event()
        def wait(x):
            began.set()
            time.sleep(0.01)
        def body():
            x = np.zeros(4)
            with sl.Executor().scope() as s:
                for at in range(10000):
                    s.task(wait, [s.update(x)])
    """,
}


@pytest.mark.parametrize(
    ("what", "mode"),
    [(what, "plan") for what in LONG] + [("run", "stream")],
)
def test_ctrl_c_ends_long_work(tmp_path, what: str, mode: str) -> None:
    code = "import json, os, signal, subprocess, sys, threading, time\n"
    code += "import numpy as np, syncline as sl\n"
    code += textwrap.dedent(LONG[what]).replace("PATH", str(tmp_path)).replace("MODE", repr(mode))
    code += textwrap.dedent("""
    def interrupt():
        began.wait(60)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        body()
    except KeyboardInterrupt:
        print("interrupted")
    else:
        print("went on to the end")
    """)
    assert "interrupted" in run(code)


@pytest.mark.parametrize("with_refit", [False, True])
def test_ctrl_c_ends_a_call_that_waits_for_others(with_refit: bool) -> None:
    code = """
    import sys, threading, syncline as sl, os, signal
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        sl.join("NAME", 0, 2, timeout=100)
    except KeyboardInterrupt:
        print("interrupted")
    """
    if with_refit:
        code = """
    import os, signal, subprocess, sys, threading, numpy as np, syncline as sl
    other = "import sys, syncline as sl; g = sl.join(sys.argv[1], 1, 2); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", other, "NAME"], stdin=subprocess.PIPE)
    one = sl.Layout.from_mesh("[mesh]\\naxes = [['tp', 2]]\\n", {"w": ("f32", (4,))})
    group = sl.join("NAME", 0, 2, timeout=100)
    refit = group.prepare(one, one)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        refit.run({"w": np.zeros(4, "f4")}, {"w": np.zeros(4, "f4")})
    except KeyboardInterrupt:
        print("interrupted")
    other.communicate()
    """
    began = time.monotonic()
    assert "interrupted" in run(code)
    assert time.monotonic() - began < 60


def test_the_lock_is_released_while_a_call_waits() -> None:
    code = """
    import threading, syncline as sl
    def join():
        try:
            sl.join("NAME", 0, 2, timeout=1.0)
        except sl.GroupError:
            print("gave up")
    thread = threading.Thread(target=join)
    thread.start()
    count = 0
    while thread.is_alive():
        count += 1
    assert count > 1000
    """
    assert "gave up" in run(code)


def test_a_fork_after_import_works_and_is_no_member() -> None:
    code = LAYOUT.replace("SIZE", "8") + """
    import os
    ex = sl.Executor()
    array = np.zeros(4)
    with ex.scope() as s:
        s.task(lambda x: x.fill(1), [s.write(array)])
    group = sl.join("NAME", 0, 1)
    refit = group.prepare(one, one)
    child = os.fork()
    if child == 0:
        for call in [lambda: group.prepare(one, one), lambda: refit.run({}, {}), ex.scope]:
            try:
                call()
            except sl.SynclineError as error:
                assert "fork" in str(error)
            else:
                raise AssertionError("a fork is no member")
        # It makes its own.
        with sl.Executor().scope() as s:
            s.task(lambda x: x.fill(2), [s.write(array)])
        with sl.join("NAME-child", 0, 1) as own:
            own.prepare(one, one).run({"w": np.ones(8, "f4")}, {"w": np.zeros(8, "f4")})
        del group, refit, ex
        raise SystemExit(0)
    assert os.waitpid(child, 0)[1] == 0
    target = np.zeros(8, "f4")
    refit.run({"w": np.ones(8, "f4")}, {"w": target})
    assert (target == 1).all()
    """
    run(code)


def test_the_interpreter_ends_with_work_under_way() -> None:
    code = """
    import threading, numpy as np, syncline as sl
    ex = sl.Executor()
    array = np.zeros(1)
    started = threading.Event()
    def forever(x):
        started.set()
        while True:
            x += 1
    def work():
        with ex.scope() as s:
            s.task(forever, [s.update(array)])
    def wait():
        sl.join("NAME", 0, 2, timeout=1000)
    for body in (work, wait):
        threading.Thread(target=body, daemon=True).start()
    started.wait(20)
    print("ending")
    """
    assert "ending" in run(code)


def test_a_rank_that_dies_is_an_error_of_the_others() -> None:
    code = """
    import subprocess, sys, numpy as np, syncline as sl
    other = "import sys, syncline as sl; g = sl.join(sys.argv[1], 1, 2); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", other, "NAME"], stdin=subprocess.PIPE)
    def mesh(ranks, rules=()):
        form = {"mesh": {"axes": [["tp", ranks]]}, "tensor": list(rules)}
        return sl.Layout.from_mesh(form, {"w": ("f32", (4,))})
    halves = mesh(2, [{"match": "w", "shard": [{"dim": 0, "axis": "tp"}]}])
    group = sl.join("NAME", 0, 2)
    assert (group.members, group.epoch) == ([0, 1], 1)
    lost, left = group.prepare(halves, mesh(1)), group.prepare(mesh(2), mesh(1))
    other.kill()
    other.wait()
    for _ in range(2):
        try:
            lost.run({"w": np.zeros(2, "f4")}, {"w": np.zeros(4, "f4")})
        except sl.GroupError as error:
            print(error)
    # What others have too is not lost: the group goes on.
    target = np.zeros(4, "f4")
    left.run({"w": np.ones(4, "f4")}, {"w": target})
    assert (target == 1).all() and (group.members, group.epoch) == ([0], 2)
    """
    assert run(code).count("PE 1") >= 2


def test_progress_that_fails_surfaces_as_itself() -> None:
    code = LAYOUT.replace("SIZE", str(8 << 20)) + """
    class Mine(Exception):
        pass
    def fail(done, total):
        raise Mine(done)
    with sl.join("NAME", 0, 1) as group:
        refit = group.prepare(one, one)
        try:
            refit.run({"w": np.ones(8 << 20, "f4")}, {"w": np.zeros(8 << 20, "f4")}, progress=fail)
        except Mine:
            print("mine")
        shown = sl.join("NAME-other", 0, 1).prepare(one, one)
        shown.run({"w": np.ones(8 << 20, "f4")}, {"w": np.zeros(8 << 20, "f4")}, progress=True)
    """
    said = run(code)
    assert "mine" in said and "100%" in said
