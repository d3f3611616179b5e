"""What runs on a board: looks at its state, proves an artefact by its golden pairs, and times it.

    python3 run_policy.py state FOLDER               what a timing depends on, as JSON
    python3 run_policy.py take REQUEST               lease the board and make a folder on it
    python3 run_policy.py release LEASE TOKEN        remove both
    python3 run_policy.py check ARTEFACT [RUNTIME]   re-run the golden pairs, in this process
    python3 run_policy.py measure REQUEST            check and time artefacts in turns; one JSON object a line
    python3 run_policy.py block REQUEST              one fresh process of `measure`

Python 3.9 or later, NumPy, and tflite-runtime or ai-edge-litert; nothing else. Exit code 2 and one line on stderr for
what a user can mend. Everything but `measure` may be read from stdin (`python3 - state`), so that nothing has to be
written before the lease is taken.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import hashlib
import importlib.metadata
import json
import os
import platform
import pwd
import secrets
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNTIMES = ("ai-edge-litert", "tflite-runtime")  # the first that is installed, unless one is named
FEATURES = {  # what an emulator's /proc/cpuinfo says is about its host, and of the other kind
    "arm": ("neon", "asimd", "asimddp", "i8mm", "sve"),
    "x86": ("avx2", "avx512f", "avx512_vnni", "avx_vnni"),
}
TENSOR_TYPES = {"I8": "int8", "U8": "uint8", "I32": "int32", "I64": "int64", "F32": "float32", "F64": "float64"}
OPTIMIZE = ("-O3", "-march=native")
KERNELS = {  # of C artefacts
    "u8xs8": ("-DQUARL_U8",),
    "u8xs8-float": ("-DQUARL_U8", "-DQUARL_FLOAT"),
    "s8xs8": ("-DQUARL_S8",),
    "s8xs8-float": ("-DQUARL_S8", "-DQUARL_FLOAT"),
    "strict": (),
    # Not -ffast-math: linking with it turns off subnormal numbers in the whole process.
    "fast-math": (
        "-fassociative-math",
        "-freciprocal-math",
        "-fno-signed-zeros",
        "-fno-trapping-math",
        "-fno-math-errno",
        "-ffinite-math-only",
    ),
}
TOLERANCE = 1e-5  # of float32 outputs, relative to the largest: libraries differ in the order of their sums
SAMPLES = 1 << 16  # kept of the calls of one block; when they are full, every second is dropped
PERIOD = 0.05  # seconds between two looks at a running process
WINDOW = 0.4  # seconds over which the load from others is watched before and after
GO = b"go\n"  # what a watched process waits for
PREFIX = "quarl-"  # of the folder; nothing else is ever removed
LIBRARY = "quarl-policy.so"  # of a C artefact; not the name that its Makefile has


class Unusable(Exception):
    """What a user can mend; one line."""


# --- the state of the board -----------------------------------------------------------------------------------------


def read_state(folder: str) -> dict[str, Any]:
    """What a timing depends on. Values that this board does not tell are None."""
    busy, start = read_busy(), time.monotonic()
    own = sum(os.times()[:4])
    time.sleep(WINDOW)
    others = (read_busy() - busy - (sum(os.times()[:4]) - own)) / (time.monotonic() - start)
    memory = read_table("/proc/meminfo")
    return {
        "architecture": platform.machine(),
        "processor": read_processor(),
        "features": read_features(),
        "cores": os.cpu_count(),
        "system": platform.release(),
        "python": platform.python_version(),
        "runtimes": {name: version for name in (*RUNTIMES, "numpy") if (version := find_version(name))},
        "compiler": shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
        "load": os.getloadavg()[0],
        "others": max(0.0, others),
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "khz": read_frequency(),
        "celsius": read_temperature(),
        "throttled": read_throttled(),
        "memory": memory.get("MemTotal", 0) * 1024,
        "memory_free": memory.get("MemAvailable", 0) * 1024,
        "swap": memory.get("SwapTotal", 0) * 1024,
        "disk_free": shutil.disk_usage(folder).free,
    }


def read_text(path: str) -> str | None:
    """The file's text without blanks at its ends; None where it cannot be read."""
    try:
        return Path(path).read_bytes().decode(errors="replace").strip("\0 \n")
    except OSError:
        return None


def read_table(path: str) -> dict[str, int]:
    """`name: number unit` or `name number` per line."""
    table = {}
    for line in (read_text(path) or "").splitlines():
        name, *rest = line.replace(":", " ").split()
        if rest and rest[0].isdigit():
            table[name] = int(rest[0])
    return table


def read_busy() -> float:
    """Seconds of processor time that anything on this machine has used, stolen time included."""
    fields = [int(field) for field in (read_text("/proc/stat") or "cpu 0 0 0 0 0 0 0 0").split()[1:9]]
    user, nice, system, _idle, _iowait, *rest = fields
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def read_processor() -> str:
    """The board's own name where it has one, else the processor's."""
    model = read_text("/proc/device-tree/model")
    lines = (read_text("/proc/cpuinfo") or "").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return model or (names[0] if names else platform.processor() or platform.machine())


def read_features() -> list[str]:
    """Instruction set extensions that decide how int8 is multiplied."""
    wanted = FEATURES["arm" if platform.machine().startswith(("arm", "aarch64")) else "x86"]
    for line in (read_text("/proc/cpuinfo") or "").splitlines():
        if line.startswith(("flags", "Features")):
            return [name for name in wanted if name in line.partition(":")[2].split()]
    return []


def read_frequency() -> int | None:
    """Of the first core, in kHz."""
    text = read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    return int(text) if text and text.isdigit() else None


def read_temperature() -> float | None:
    """Of the first thermal zone, in degrees Celsius."""
    text = read_text("/sys/class/thermal/thermal_zone0/temp")
    return int(text) / 1000 if text and text.isdigit() else None


def read_throttled() -> int | None:
    """A Raspberry Pi's flags: bits 0-3 under-voltage, capped, throttled, hot now; bits 16-19 the same since boot."""
    text = read_text("/sys/devices/platform/soc/soc:firmware/get_throttled")
    if text is None:
        try:
            command = subprocess.run(["vcgencmd", "get_throttled"], capture_output=True, timeout=5, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        text = command.stdout.decode().strip().partition("=")[2]
    try:
        return int(text, 16)
    except ValueError:
        return None


def find_version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# --- the lease ------------------------------------------------------------------------------------------------------


def take_lease(folder: str, owner: str, run: str, seconds: float) -> dict[str, Any]:
    """Lease this board and make a folder on it, or say who has it. What an expired lease left is removed."""
    path = Path(folder) / f"{PREFIX}board.lease"
    with lock_file(path) as file:
        held = read_lease(file)
        if held is not None and held["expires"] > time.time():
            left = held["expires"] - time.time()
            return {"held": {"owner": held["owner"], "run": held["run"], "seconds": left}}
        if held is not None:
            remove_folder(Path(held["folder"]), path.parent)
        made = Path(folder) / f"{PREFIX}{secrets.token_hex(8)}"
        lease = {"owner": owner, "run": run, "folder": str(made), "token": secrets.token_hex(8)}
        try:
            made.mkdir(mode=0o700)
            write_lease(file, {**lease, "expires": time.time() + seconds})
        except BaseException:
            remove_folder(made, path.parent)
            path.unlink()
            raise
        return {**lease, "lease": str(path)}


def renew_lease(path: Path, token: str, seconds: float) -> None:
    """Refuse to work under a lease that is someone else's by now."""
    with lock_file(path) as file:
        held = read_lease(file)
        if held is None or held["token"] != token:
            raise Unusable("the lease has expired and the board was given to another run; run again")
        write_lease(file, {**held, "expires": time.time() + seconds})


def release_lease(path: Path, token: str) -> None:
    """Remove the lease and its folder, if they are still ours."""
    with lock_file(path) as file:
        held = read_lease(file)
        if held is None:
            path.unlink()  # made by opening it
        elif held["token"] == token:
            remove_folder(Path(held["folder"]), path.parent)
            path.unlink()


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[Any]:
    """`path` open and locked; it may be unlinked while we wait, then the next one counts."""
    while True:
        descriptor = open_lease(path)
        with os.fdopen(descriptor, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == path.stat().st_ino:
                    yield file
                    return


def open_lease(path: Path) -> int:
    """A descriptor of `path`, which is made where there is none; Unusable for another user's."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError as error:
        remedy = "set `folder` of this board to one of your own"
        if not os.path.exists(path):  # noqa: PTH110  (before Python 3.12, Path.exists raises in a closed folder)
            raise Unusable(f"{path.parent}: not writable for this user; {remedy}") from error
        raise Unusable(
            f"{path}: the lease of {name_owner(path)}, another user; where it outlives their run, they or root remove "
            f"it, or {remedy}"
        ) from error


def name_owner(path: Path) -> str:
    """Whose lease this is that we may not write: a user of this board, and who that is by the lease, if readable."""
    number = path.stat().st_uid
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = f"user {number}"
    try:
        with path.open() as file:
            held = read_lease(file)
    except OSError:
        held = None
    return f"{name} ({held['owner']})" if held else name


def read_lease(file: Any) -> dict[str, Any] | None:
    """None for an empty or damaged one: whoever wrote it was killed meanwhile."""
    file.seek(0)
    try:
        held = json.loads(file.read())
        return held if {"owner", "run", "folder", "token", "expires"} <= set(held) else None
    except (ValueError, TypeError):
        return None


def write_lease(file: Any, lease: dict[str, Any]) -> None:
    """Replace the content."""
    file.seek(0)
    file.truncate()
    file.write(json.dumps(lease))
    file.flush()


def remove_folder(folder: Path, parent: Path) -> None:
    """Only what `take_lease` made in `parent`: in a shared folder, anyone may write anything into a lease."""
    if folder.name.startswith(PREFIX) and os.path.realpath(folder.parent) == os.path.realpath(parent):
        shutil.rmtree(folder, ignore_errors=True)


# --- an artefact and its golden pairs -------------------------------------------------------------------------------


def read_tensors(path: Path) -> dict[str, Any]:
    """The arrays of a safetensors file."""
    import numpy as np

    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], dtype=TENSOR_TYPES[entry["dtype"]]).reshape(
            entry["shape"]
        )
        for name, entry in header.items()
    }


def read_artefact(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and golden tensors; the files must be the manifest's."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        files = {manifest[part]["file"]: manifest[part]["sha256"] for part in ("model", "golden")}
        for name, sha256 in {**files, **manifest.get("others", {})}.items():
            check_file(folder / name, sha256)
        return manifest, read_tensors(folder / manifest["golden"]["file"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise Unusable(f"{folder}: no artefact ({error!r}); export again") from error


def check_file(file: Path, sha256: str) -> None:
    """Refuse a file that is damaged or another one."""
    if hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
        raise Unusable(f"{file}: not the manifest's; copy the artefact again")


class TfliteModel:
    """A .tflite file in the TFLite runtime of this board."""

    def __init__(self, path: Path, runtime: str, threads: int) -> None:
        name = runtime or next((name for name in RUNTIMES if find_version(name)), "")
        try:
            if name == "ai-edge-litert":
                from ai_edge_litert.interpreter import Interpreter
            elif name == "tflite-runtime":
                from tflite_runtime.interpreter import Interpreter
            else:
                raise Unusable(f"no TFLite runtime here; install {' or '.join(RUNTIMES)} for {sys.executable}")
        except ImportError as error:
            raise Unusable(f"{name} cannot be loaded: {error}; install it for {sys.executable}") from error
        self.loaded = time.monotonic()  # from here on it is the policy, not the runtime
        self.interpreter = Interpreter(model_path=str(path), num_threads=threads)
        self.interpreter.allocate_tensors()
        self.input = self.interpreter.get_input_details()[0]["index"]
        self.output = self.interpreter.get_output_details()[0]["index"]
        operators = [node["op_name"] for node in self.interpreter._get_ops_details()]  # noqa: SLF001
        self.runtime = f"{name} {find_version(name)}"
        self.kernel = "xnnpack" if "DELEGATE" in operators else "builtin"

    def run(self, x: Any) -> Any:
        """Outputs (1, ...) for inputs (1, ...)."""
        self.interpreter.set_tensor(self.input, x)
        self.interpreter.invoke()
        return self.interpreter.get_tensor(self.output)


class CModel:
    """The C source of an artefact, compiled once for this machine and called through ctypes."""

    def __init__(self, path: Path, _runtime: str, _threads: int) -> None:
        manifest = json.loads((path.parent / "manifest.json").read_text())
        self.kernel = choose_kernel(manifest)
        compiler = find_compiler()
        library = path.absolute().parent / LIBRARY
        if not library.exists():
            names = (manifest["model"]["file"], *manifest.get("others", {}))
            sources = [name for name in names if name.endswith((".c", ".S")) and name != "harness.c"]
            compile_policy(compiler, KERNELS[self.kernel], sources, library)
        self.runtime = " ".join((Path(compiler).name, *OPTIMIZE))
        self.loaded = time.monotonic()
        self.call = ctypes.CDLL(str(library)).policy_run
        self.call.restype, self.call.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
        self.shape, self.type = (1, *manifest["output"]["shape"]), manifest["output"]["dtype"]

    def run(self, x: Any) -> Any:
        """Outputs (1, ...) for inputs (1, ...)."""
        import numpy as np

        y = np.empty(self.shape, dtype=self.type)
        self.call(x.ctypes.data, y.ctypes.data)
        return y


def choose_kernel(manifest: dict[str, Any]) -> str:
    """The integer kernel that suits this processor; a float policy keeps the one that it was proven in."""
    if manifest["input"]["dtype"] == "float32":
        return str(manifest["runtime"]["kernel"])
    return "s8xs8" if platform.machine().startswith(("arm", "aarch64")) else "u8xs8"


def find_compiler() -> str:
    """The board's C compiler."""
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return path
    raise Unusable("no C compiler here; install gcc, or deploy a .tflite file")


def compile_policy(compiler: str, defines: tuple[str, ...], sources: list[str], library: Path) -> None:
    """Make a shared library of the sources beside it, whole or not at all."""
    part = library.with_suffix(".part")
    flags = ["-std=c99", *OPTIMIZE, *defines, "-fPIC", "-shared", "-o", str(part)]
    command = [compiler, *flags, *sources, "-lm"]
    done = subprocess.run(command, capture_output=True, check=False, cwd=library.parent)
    if done.returncode:
        complaint = [line for line in done.stderr.decode(errors="replace").splitlines() if "error" in line]
        raise Unusable(f"{compiler} refuses the policy: {(complaint or ['no word'])[0]}")
    part.rename(library)


MODELS = {"litert": TfliteModel, "litert-dynamic": TfliteModel, "c": CModel}  # by the manifest's backend


def open_model(folder: Path, manifest: dict[str, Any], runtime: str, threads: int) -> Any:
    """The model of an artefact, ready to run."""
    backend = manifest["backend"]
    if backend not in MODELS:
        raise Unusable(f"{folder.name}: backend {backend!r} does not run here; known are {', '.join(MODELS)}")
    try:
        return MODELS[backend](folder / manifest["model"]["file"], runtime, threads)
    except (ValueError, RuntimeError, OSError, AttributeError) as error:
        raise Unusable(f"{folder.name}: the runtime refuses the model: {first_line(error)}") from error


def check(folder: Path, runtime: str = "", threads: int = 1) -> dict[str, Any]:
    """Run every golden input alone and compare: integers exactly, floats within TOLERANCE of the largest output."""
    import numpy as np

    manifest, golden = read_artefact(folder)
    (folder / LIBRARY).unlink(missing_ok=True)  # it may be another source's; the blocks share what is made here
    model = open_model(folder, manifest, runtime, threads)
    expected = golden["outputs"]
    got = np.concatenate([model.run(golden["inputs"][i : i + 1]) for i in range(len(expected))])
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    exact = expected.dtype.kind != "f"
    got = got.astype(expected.dtype)  # a .tflite file has sums of 32 bits as whole numbers of float32
    limit = 0.0 if exact else TOLERANCE * max(1.0, float(np.abs(expected).max()))
    wrong = ~(difference <= limit)
    report = {
        "scheme": manifest["scheme"],
        "backend": manifest["backend"],
        "bytes": manifest["model"]["bytes"],
        "parameters": manifest["parameters"],
        "runtime": model.runtime,
        "kernel": model.kernel,
        "pairs": len(expected),
        "elements": int(expected.size),
        "exact": exact,
        "wrong": int(wrong.sum()),
        "largest": float(difference.max()),
        "golden_sha256": hashlib.sha256(expected.tobytes()).hexdigest(),
        "output_sha256": hashlib.sha256(np.ascontiguousarray(got).tobytes()).hexdigest(),
        "first": None,
    }
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        values = {"expected": expected[first].item(), "got": got[first].item()}
        report["first"] = {"pair": first[0], "element": list(first[1:]), **values}
    return report


# --- timing ---------------------------------------------------------------------------------------------------------


def run_block(request: dict[str, Any]) -> dict[str, Any]:
    """This fresh process: load, first inference, warm-up, then single calls for so long and so many at least.

    A call is the policy's step behind the input quantization: set the input, invoke, get the output. `phases` are on
    the system's monotonic clock, which the watching process shares.
    """
    import numpy as np

    begin, clock = time.monotonic(), time.perf_counter_ns
    folder = Path(request["artefact"])
    manifest, golden = read_artefact(folder)
    inputs = [golden["inputs"][i : i + 1] for i in range(len(golden["inputs"]))]
    samples = np.zeros(SAMPLES, dtype=np.int64)
    model = open_model(folder, manifest, request["runtime"], request["threads"])
    ready = time.monotonic()
    model.run(inputs[0])
    first = time.monotonic()
    warm = 0
    while time.monotonic() - first < request["warmup"]:
        model.run(inputs[warm % len(inputs)])
        warm += 1
    gc.disable()
    run, pairs, longest = model.run, len(inputs), 0
    calls = kept = 0
    stride = 1
    steady = time.monotonic()
    while calls < request["calls"] or time.monotonic() - steady < request["seconds"]:
        x = inputs[calls % pairs]
        start = clock()
        run(x)
        spent = clock() - start
        calls += 1
        longest = max(longest, spent)
        if calls % stride:
            continue
        if kept == SAMPLES:
            kept //= 2
            samples[:kept] = samples[1::2]
            stride *= 2
            if calls % stride:
                continue
        samples[kept] = spent
        kept += 1
    end = time.monotonic()
    p50, p90, p99 = (float(value) for value in np.percentile(samples[:kept], [50, 90, 99]))
    return {
        "init_ms": 1e3 * (ready - model.loaded),
        "first_ms": 1e3 * (first - ready),
        "warmup_calls": warm,
        "calls": calls,
        "seconds": end - steady,
        "ns": {"p50": p50, "p90": p90, "p99": p99, "max": float(longest)},
        "phases": {
            "begin": begin,
            "runtime": model.loaded,
            "ready": ready,
            "first": first,
            "steady": steady,
            "end": end,
        },
        "runtime": model.runtime,
        "kernel": model.kernel,
    }


def measure(request: dict[str, Any]) -> None:
    """Artefacts in turns (A B A B ...), a fresh process each time, between two looks at the state of the board.

    Ends, and leaves nothing behind, when stdin does: then nobody is there to read the result.
    """
    lease = Path(request["lease"])
    with ended_with_stdin(lease, request["token"]):
        renew_lease(lease, request["token"], request["lease_seconds"])
        before = read_state(str(lease.parent))
        say({"event": "state", **before})
        for index, artefact in enumerate(request["artefacts"]):
            report, _ = watch({"command": "check", "artefact": artefact, **request["how"]}, "")
            say({"event": "check", "artefact": index, **report})
        busy = before["others"] > request["quiet"] and not request["insist"]  # void before it has begun
        for block in range(0 if busy else request["blocks"]):
            for index, artefact in enumerate(request["artefacts"]):
                command = {"command": "block", "artefact": artefact, **request["how"]}
                report, watched = watch(command, request["power"], request.get("cgroup", ""))
                say({"event": "block", "artefact": index, "block": block, **report, **watched})
        say({"event": "state", **read_state(str(lease.parent))})


class Cut(Exception):
    """Whoever asked is gone."""


@contextlib.contextmanager
def ended_with_stdin(lease: Path, token: str) -> Iterator[None]:
    """Leave nothing behind when the connection is cut."""
    try:
        yield
    except (Cut, BrokenPipeError):
        release_lease(lease, token)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes it once more
        sys.exit(2)


def stop_if_cut() -> None:
    """Raise Cut when stdin has ended."""
    ready, _, _ = select.select([0], [], [], 0)
    if ready and os.read(0, 1) == b"":
        raise Cut


def watch(request: dict[str, Any], power: str, cgroup: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """What a fresh process reports, and what the system says about it meanwhile.

    The trace has seconds since the start, resident and swapped bytes, and begins at the empty interpreter, which waits
    for it; `others` is the processor time that everything else used, in cores; `watts` are the meter's readings.
    """
    busy, own, swaps, begin = read_busy(), sum(os.times()[:2]), read_table("/proc/vmstat"), time.monotonic()
    trace: list[tuple[float, int, int]] = []
    watts: list[tuple[float, float]] = []
    command = [sys.executable, str(Path(__file__).resolve()), "child", json.dumps(request)]
    if cgroup:  # joined before it begins: what is allocated earlier would count elsewhere
        command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', cgroup, *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:

        def look() -> None:
            now = time.monotonic() - begin
            status = read_table(f"/proc/{process.pid}/status")
            trace.append((now, status.get("VmRSS", 0) * 1024, status.get("VmSwap", 0) * 1024))
            reading = read_text(power) if power else None
            if reading and reading.isdigit():
                watts.append((now, int(reading) * 1e-6))

        try:
            assert process.stdout is not None  # noqa: S101  (for the type checker)
            look()
            release_child(process)
            while not select.select([process.stdout], [], [], PERIOD)[0]:
                stop_if_cut()
                look()
            output = process.stdout.read()
            _, status_word, used = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = os.waitstatus_to_exitcode(status_word)
    if process.returncode < 0:
        raise Unusable(f"{Path(request['artefact']).name}: the process was ended by signal {-process.returncode}")
    report = json.loads(output)
    if "error" in report:
        raise Unusable(report["error"])
    span = time.monotonic() - begin
    ours = used.ru_utime + used.ru_stime + sum(os.times()[:2]) - own
    after = read_table("/proc/vmstat")
    return report, {
        "start": begin,
        "span": span,
        "others": max(0.0, (read_busy() - busy - ours) / span),
        "peak_rss": used.ru_maxrss * 1024,
        "major_faults": used.ru_majflt,
        "pages_swapped": sum(after.get(name, 0) - swaps.get(name, 0) for name in ("pswpin", "pswpout")),
        "khz": read_frequency(),
        "trace": trace,
        "watts": watts,
    }


def release_child(process: subprocess.Popen[bytes]) -> None:
    """Let the process that `watch` started begin; one that is dead by now says so by its exit code."""
    assert process.stdin is not None  # noqa: S101  (for the type checker)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(GO)
        process.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def run_child(request: dict[str, Any]) -> dict[str, Any]:
    """What `watch` started; errors travel as JSON, because the runtime talks on stderr."""
    if sys.stdin.buffer.readline() != GO:  # nothing big is imported before
        fail("nobody watches; use `measure`")
    try:
        if request["command"] == "check":
            return check(Path(request["artefact"]), request["runtime"], request["threads"])
        return run_block(request)
    except Unusable as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": f"{Path(request['artefact']).name}: out of memory"}


# --- the command line -----------------------------------------------------------------------------------------------


def say(report: dict[str, Any]) -> None:
    """One JSON object, one line, now."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def first_line(error: BaseException) -> str:
    """Of its message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def main(command: str, *arguments: str) -> None:
    """Run one command; see the top of this file."""
    if command == "state":
        say(read_state(*arguments))
    elif command == "take":
        say(take_lease(**json.loads(arguments[0])))
    elif command == "release":
        release_lease(Path(arguments[0]), arguments[1])
    elif command == "check":
        say(check(Path(arguments[0]), runtime=arguments[1] if len(arguments) > 1 else ""))
    elif command == "measure":
        measure(json.loads(arguments[0]))
    elif command == "child":
        say(run_child(json.loads(arguments[0])))
    else:
        fail(f"unknown command {command!r}; read the top of {__file__}")


def fail(line: str) -> NoReturn:
    """One line, exit code 2."""
    sys.stderr.write(f"{line}\n")
    sys.exit(2)


if __name__ == "__main__":
    try:
        main(*(sys.argv[1:] or [""]))
    except (Unusable, OSError) as problem:
        fail(first_line(problem))
