#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets calls of the system and of the allocator fail, one after the other, and says what the program makes of it.

usage: run.py HARNESS FAULT_LIBRARY [--every N] [--commands a,b] [--kinds x,y] [--jobs N] [-v]

For each command and kind of call: the k-th call fails, and all calls from the k-th on, for k = 1, 1 + N, 1 + 2 N, ... (N = 1: every
one). What may happen: exit 0 with the files and the output of the undisturbed run, or exit 1 with one sentence "harness: ..." and files
from which the same command, undisturbed, comes to the undisturbed result. The sentence may be libgomp's own, which ends the program
by itself where it has no memory. Anything else is counted and makes this script exit 1.
"""
import argparse, collections, concurrent.futures, errno, hashlib, os, pathlib, re, shutil, signal, subprocess, sys, tempfile

KINDS = {"memory": errno.ENOMEM, "open": errno.EMFILE, "read": errno.EIO, "write": errno.ENOSPC, "sync": errno.EIO, "rename": errno.EIO,
         "close": errno.EIO, "mmap": errno.ENOMEM, "stat": errno.EACCES, "unlink": errno.EACCES, "mkdir": errno.ENOSPC,
         "truncate": errno.EIO}
SMALL = "--depth 1 --width 16 --heads 2 --data zipf --vocab 32 --seq 8 --batch 2 --threads 1".split()
TRAIN = SMALL + "--layout pre --steps 4 --checkpoint-every 2 --lr 1e-3 --probes rms".split()
TIMEOUT = 60

# name: (commands that make what is there before, the command under test)
COMMANDS = {
    "run": ([], ["run", *SMALL, "--out", "out"]),
    "run-all": ([], ["run", *SMALL, "--dtype", "fp16", "--probes", "rms,grad,overflow,jacobian,error", "--spectrum", "--out", "out"]),
    "run-again": ([["run", *SMALL, "--out", "out"]], ["run", *SMALL, "--out", "out"]),
    "run-force": ([["run", *SMALL, "--out", "out"]], ["run", *SMALL, "--out", "out", "--force"]),
    "overflow": ([], ["run", *SMALL, "--dtype", "e3m4", "--embed-rms", "40", "--out", "out"]),
    "dump": ([["run", *SMALL, "--out", "old", "--dump", "d.safetensors"]],
             ["run", *SMALL, "--out", "out", "--dump", "d.safetensors", "--force"]),
    "train": ([], ["run", *TRAIN, "--out", "out"]),
    "muon": ([], ["run", *TRAIN, "--optimizer", "muon", "--dtype", "bf16", "--val-every", "2", "--out", "out"]),
    "resume": ("stopped", ["run", *TRAIN, "--out", "out", "--resume"]),
    "model": ([["export", "model", "--arch", "llama", *SMALL]],
              ["run", "--model", "model", "--data", "uniform", "--seq", "8", "--batch", "2", "--threads", "1", "--out", "out"]),
    "export": ([], ["export", "model", "--arch", "llama", *SMALL]),
    "export-force": ([["export", "model", "--arch", "llama", *SMALL]], ["export", "model", "--arch", "llama", *SMALL, "--seed", "1",
                                                                        "--force"]),
    "export-run": ([["run", *TRAIN, "--out", "out", "--arch", "llama"]], ["export", "model", "--run", "out"]),
    "compare": ([["run", *SMALL, "--layout", l, "--seed", s, "--out", "r/" + l + s] for l in ("pre", "post") for s in "01"],
                ["compare", "r"]),
    "report": ([["run", *SMALL, "--dtype", "fp16", "--out", "out"]], ["report", "out"]),
    "op": ("tensors", ["op", "linear", "--dtype", "fp16", "--in", "in.safetensors", "--out", "o.safetensors"]),
    "list": ([], ["list", "layouts"]),
    "describe": ([], ["describe", "sandwich"]),
    "check": ([], ["check", "pre"]),
    "dry-run": ([], ["run", *SMALL, "--dry-run"]),
}


def tensors(folder):
    """Two matrices as a safetensors file."""
    import json, struct
    data = struct.pack("<18f", *[i / 8 for i in range(18)])
    header = json.dumps({"x": {"dtype": "F32", "shape": [3, 3], "data_offsets": [0, 36]},
                         "weight": {"dtype": "F32", "shape": [3, 3], "data_offsets": [36, 72]}}).encode()
    (folder / "in.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)


def call(args, folder, extra=None):
    """(exit code or None for a hang, stdout, stderr)"""
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TERM": "dumb", **(extra or {})}
    try:
        p = subprocess.run([harness, *args], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT,
                           preexec_fn=lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_CORE, (0, 0)))
        return p.returncode, plain(p.stdout), p.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None, b"", ""


def plain(text):
    """Without what differs from run to run (times, memory), and the name of the CPU, which may be unknown."""
    text = re.sub(rb"[0-9.e+-]+ (s|ms|MiB|GiB|GFLOP/s)\b", rb"T \1", text)
    return re.sub(rb'"(wall_s|peak_rss_mib|cpu)": [^,\n]*', rb'"\1": T', text)


def state(folder):
    """Path -> digest of every file."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            files[str(path.relative_to(folder))] = hashlib.sha1(plain(data) if path.name == "run.json" else data).hexdigest()
    return files


class Command:
    def __init__(self, name, room):
        before, self.args = COMMANDS[name]
        self.name, self.template = name, room / name
        self.template.mkdir()
        if before == "tensors":
            tensors(self.template)
        elif before == "stopped":
            self.stop()
        else:
            for args in before:
                code, _, err = call(args, self.template)
                if code != 0:
                    sys.exit(f"{name}: {' '.join(args)}: {code}: {err}")
        self.before = state(self.template)
        good = room / (name + ".good")
        shutil.copytree(self.template, good)
        count = room / (name + ".count")
        code, self.out, err = call(self.args, good, {"LD_PRELOAD": library, "NH_FAULT_COUNT": str(count)})
        if code != 0:
            sys.exit(f"{name}: {' '.join(self.args)}: {code}: {err}")
        self.after = state(good)
        self.counts = {k: int(n) for k, n in (line.split() for line in count.read_text().splitlines())}
        self.known = {}  # state -> what the undisturbed command made of it

    def stop(self):
        """A training that was killed between two checkpoints: its third fdatasync and all after it failed."""
        for k in range(1, 40):
            shutil.rmtree(self.template)
            self.template.mkdir()
            call(COMMANDS["train"][1], self.template, {"LD_PRELOAD": library, "NH_FAULT": f"rename:{k}:{errno.EIO}:all"})
            if any(p.name.startswith("checkpoint") and "part" not in p.name for p in (self.template / "out").rglob("*")):
                return
        sys.exit("no training could be stopped behind a checkpoint")

    def recover(self, folder, files, err):
        """What is wrong with the files left, or ''."""
        for path, digest in self.before.items():
            aside = "end in .old" in err and any(re.fullmatch(re.escape(path) + r"\.[0-9a-f]{8}\.old", p) and files[p] == digest for p in files)
            if files.get(path) not in (digest, self.after.get(path)) and not aside and not path.startswith("out/"):
                return "an old file is damaged: " + path
        key = tuple(sorted(files.items()))
        if key not in self.known:
            args = self.args
            code, out, err = call(args, folder)
            left = state(folder)
            if code == 2 or code == 1:
                code, out, err = call([*args, "--force"], folder) if args[0] in ("run", "export") else (code, out, err)
                left = state(folder)
            wrong = [p for p in {*self.after, *left} if self.after.get(p) != left.get(p) and not p.endswith((".part", ".old")) and "/." not in "/" + p]
            self.known[key] = f"the same command then: {code} {err.strip()}" if code else f"the same command then differs: {wrong}" if wrong else ""
        return self.known[key]

    def verdict(self, folder, kind, k, every):
        """(kind of fault or None, words)"""
        code, out, err = call(self.args, folder, {"LD_PRELOAD": library, "NH_FAULT": f"{kind}:{k}:{KINDS[kind]}" + every})
        if code is None:
            return "hangs", ""
        if code < 0:
            return ("aborts" if code == -signal.SIGABRT else "crashes"), signal.Signals(-code).name
        files = state(folder)
        if code == 0:
            # what cannot be removed may stay: the lock, a temporary file of a run that was killed
            wrong = [p for p in {*self.after, *files} if self.after.get(p) != files.get(p)
                     and not p.endswith("/.lock") and not (p.endswith(".part") and self.before.get(p) == files.get(p))]
            if wrong:
                return "wrong", f"exit 0, differs: {wrong}"
            return ("wrong", "exit 0, other output") if out != self.out else (None, "0")
        lines = err.splitlines()
        own_words = len(lines) == 1 and lines[0].startswith("harness: ")
        if code != 1 or not (own_words or re.fullmatch(r"\nlibgomp: Out of memory allocating [0-9]+ bytes\n", err)):
            return "words", f"exit {code}: {err!r}"
        if files == self.before:
            return None, err
        damage = self.recover(folder, files, err)
        return ("wrong", damage + " after " + err) if damage else (None, err)


def one(job):
    name, kind, k, every = job
    folder = pathlib.Path(tempfile.mkdtemp(dir=room_path))
    try:
        shutil.copytree(commands[name].template, folder / "w")
        return job, commands[name].verdict(folder / "w", kind, k, every)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("harness")
parser.add_argument("library")
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--first", type=int, default=1)
parser.add_argument("--commands", default=",".join(COMMANDS))
parser.add_argument("--kinds", default=",".join(KINDS))
parser.add_argument("--jobs", type=int, default=os.cpu_count())
parser.add_argument("-v", action="store_true")
options = parser.parse_args()
harness, library = os.path.abspath(options.harness), os.path.abspath(options.library)
names, kinds = options.commands.split(","), options.kinds.split(",")
shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
faults = ("crashes", "aborts", "hangs", "wrong", "words")
with tempfile.TemporaryDirectory(dir=shm, prefix="fault.") as room_path:
    commands = {name: Command(name, pathlib.Path(room_path)) for name in names}
    jobs = [(name, kind, k, every) for name in names for kind in kinds for every in ("", ":all")
            for k in range(options.first, commands[name].counts[kind] + 1, options.every)]
    table = collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (name, kind, k, every), (fault, words) in pool.map(one, jobs):
            table[name, kind]["cases"] += 1
            table[name, kind][fault] += 1
            if fault or options.v:
                print(f"{fault or 'good'}: {name} {kind}:{k}{every}: {words.strip()}", flush=True)
print(f"{'command':14}{'call':10}{'cases':>8}" + "".join(f"{f:>9}" for f in faults))
total = collections.Counter()
for (name, kind), row in table.items():
    total.update(row)
    print(f"{name:14}{kind:10}{row['cases']:8}" + "".join(f"{row[f]:9}" for f in faults))
print(f"{'all':24}{total['cases']:8}" + "".join(f"{total[f]:9}" for f in faults))
sys.exit(any(total[f] for f in faults))
