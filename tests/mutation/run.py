#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""run.py [-j N] [-k] [NAME...]: plants the faults of faults.txt one at a time in a copy of the source tree and runs the tests.

A fault is killed when a test fails or does not end, survived when all tests pass. The named tests run first; the rest of the
suite runs only where these pass (-k leaves the rest out, for a quick look). NAME: only these faults, or those of files whose
path begins so. -j N: N copies of the tree side by side. Exit 1: a fault survived, is stale (its text is not found exactly
once) or does not build; 2: usage.

faults.txt holds blocks of lines `word: value`, separated by blank lines:
  fault: name     what is wrong, in kebab-case
  file: path      from the top of the source tree
  in: text        optional, found exactly once in the file: old is looked for from there on
  old: text       what stands there; without `in` it is found exactly once in the file
  new: text       what takes its place; empty = nothing
  tests: names    optional: meson tests that should see it, the likeliest first
  equivalent: why optional: no test can see it; not counted
Lines that begin with # are comments."""
import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
WORDS = ('fault', 'file', 'in', 'old', 'new', 'tests', 'equivalent')
LIMIT = 1800  # seconds of one call of the build or of the tests


def read_faults(path):
    faults, block = [], {}
    with open(path, encoding='utf-8') as lines:
        for number, line in enumerate([*lines, ''], 1):
            line = line.rstrip('\n')
            if line.startswith('#'):
                continue
            if not line.strip():
                if block:
                    faults.append(block)
                block = {}
                continue
            word, colon, value = line.partition(':')
            if not colon or word not in WORDS or word in block:
                sys.exit(f'{path}:{number}: not a line of a fault: {line}')
            block[word] = value[1:] if value.startswith(' ') else value
    names = [f.get('fault', '') for f in faults]
    for f in faults:
        if not all(word in f for word in ('fault', 'file', 'old', 'new')) or names.count(f['fault']) != 1:
            sys.exit(f'{path}: the fault {f.get("fault", f)} has no name of its own, no file, no old or no new text')
    return faults


def planted(fault, text):
    """The text of the file with the fault in it; None where the fault is stale."""
    start = 0
    if 'in' in fault:
        if text.count(fault['in']) != 1:
            return None
        start = text.index(fault['in'])
    elif text.count(fault['old']) != 1:
        return None
    at = text.find(fault['old'], start)
    if at < 0:
        return None
    return text[:at] + fault['new'] + text[at + len(fault['old']):]


def tree_files():
    """What git knows or would add, so that no build folder is copied."""
    out = subprocess.run(['git', '-C', TOP, 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], check=True,
                         stdout=subprocess.PIPE).stdout
    return [name for name in out.decode().split('\0') if name and os.path.lexists(os.path.join(TOP, name))]


class Copy:
    """A copy of the tree with a build folder of its own."""

    def __init__(self, folder):
        self.tree = os.path.join(folder, 'tree')
        self.build = os.path.join(folder, 'build')
        for name in tree_files():
            to = os.path.join(self.tree, name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy2(os.path.join(TOP, name), to, follow_symlinks=False)
        if self.call('meson', 'setup', '-Dtests=enabled', self.build, self.tree) or self.call('ninja', '-C', self.build):
            sys.exit('the tree does not build without a fault')
        tests = json.loads(subprocess.run(('meson', 'introspect', '--tests', self.build), check=True, stdout=subprocess.PIPE).stdout)
        self.commands = {test['name']: test['cmd'] for test in tests}

    def call(self, *words):
        """The exit code; 124 where the time is over. What is started ends with it."""
        with open(os.path.join(self.tree, '..', 'log'), 'wb') as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            try:
                return process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return 124

    def make(self, *names):
        """True where what these tests run is built; all of it without names."""
        inside = self.build + os.sep
        words = {os.path.normpath(word) for name in names for word in self.commands[name]}
        targets = {word[len(inside):] for word in words if word.startswith(inside)}
        return self.call('ninja', '-C', self.build, *sorted(targets)) == 0

    def test(self, *names):
        return self.call('meson', 'test', '-C', self.build, '--no-rebuild', '--maxfail', '1', *names) == 0

    def judge(self, fault, only_named):
        path = os.path.join(self.tree, fault['file'])
        if not os.path.exists(path):
            return 'stale'
        with open(path, encoding='utf-8') as file:
            text = file.read()
        wrong = planted(fault, text)
        if wrong is None:
            return 'stale'
        try:
            with open(path, 'w', encoding='utf-8') as file:
                file.write(wrong)
            for name in fault.get('tests', '').split():
                if not self.make(name):
                    return 'does not build'
                if not self.test(name):
                    return 'killed'
            if only_named or not self.make():
                return 'survived' if only_named else 'does not build'
            return 'survived' if self.test() else 'killed by others'
        finally:
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text)


def main():
    parser = argparse.ArgumentParser(usage='run.py [-j N] [-k] [NAME...]')
    parser.add_argument('-j', type=int, default=1)
    parser.add_argument('-k', action='store_true')
    parser.add_argument('name', nargs='*')
    options = parser.parse_args()
    faults = [f for f in read_faults(os.path.join(HERE, 'faults.txt'))
              if not options.name or any(f['fault'] == n or f['file'].startswith(n) for n in options.name)]
    if not faults:
        parser.error('there is no such fault')
    verdicts, todo = {}, queue.Queue()
    for fault in faults:
        if 'equivalent' in fault:
            verdicts[fault['fault']] = 'equivalent'
        else:
            todo.put(fault)

    def work(folder):
        copy = Copy(folder)
        while True:
            try:
                fault = todo.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            verdict = verdicts[fault['fault']] = copy.judge(fault, options.k)
            print(f'{verdict:16} {fault["fault"]:40} {fault["file"]:32} {time.monotonic() - start:5.0f} s', flush=True)

    with tempfile.TemporaryDirectory(prefix='mutation-') as folder:
        workers = [threading.Thread(target=work, args=(os.path.join(folder, str(i)),)) for i in range(max(options.j, 1))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if len(verdicts) < len(faults):
        sys.exit('not all faults were tried')

    counts = {v: list(verdicts.values()).count(v) for v in
              ('killed', 'killed by others', 'survived', 'equivalent', 'stale', 'does not build')}
    killed = counts['killed'] + counts['killed by others']
    tried = killed + counts['survived']
    print(', '.join(f'{n} {v}' for v, n in counts.items() if n))
    print(f'{killed} of {tried} faults killed ({100 * killed / tried if tried else 0:.1f} %)')
    sys.exit(counts['survived'] + counts['stale'] + counts['does not build'] > 0)


if __name__ == '__main__':
    main()
