#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""commands.py PROGRAM SOURCE [--all] [DOCUMENT...]: the commands of Markdown documents (paths below SOURCE) do what the text says.

Every command in an indented block is run, each document in a scratch folder of its own, in the order of the text. What a block shows
below a command, or below the comment <!-- output of COMMAND -->, must be lines of that command's output, in that order; "..." stands
for anything. Whole numbers up to 1000 are compared exactly, other numbers to 3 %, errors of rounding (below 1e-7) to a factor of 4, times
not at all. Single commands in `backticks` are run where nothing is to be put in. Commands that take longer than a minute are in LONG and
run with --all alone; those in SMALLER, and those of the document in SMALLER_IN, are run with fewer layers, steps or cells; those in
NOT_RUN cannot be run here.
"""
import os
import re
import subprocess
import sys
import tempfile

NOT_RUN = [  # a pattern and the reason
    (r'^\./test\.sh', 'runs this test'),
    (r'study (cogview-divergence|gemma-fp16)', 'writes into the folder of the study; cli/study runs a small one'),
    (r'^plots/plot FIGURE', 'a synopsis'),
    (r'~/gemma-2-2b', 'needs a checkpoint that is not in the tree'),
    (r'results/ablation', 'the folder is an example; cli/compare has its runs'),
    (r'any\.csv', 'the file is an example; plots/figures draws such a file'),
    (r'^meson ', 'builds'),
    (r'tests/fault/run\.py|^ninja ', 'takes minutes'),
    (r'^\./run\.sh study NAME|^harness list TOPIC|NAME|LAYOUT', 'a name is to be put in'),
    (r'^source ', 'cli/completion tests it'),
]
LONG = [r'check (all|laws|gradients)$']
SMALLER = [  # a pattern, and what stands there when the command is run; results that are shown are not of these
    (r'--depth 60 --width 256', '--depth 4 --width 64'),
    (r'--arch trinity --depth 60', '--arch trinity --depth 4'),
    (r'--steps (1000|2000)', '--steps 4'),
    (r'--checkpoint-every (100|200)', '--checkpoint-every 2'),
    (r'depth=6,12,24,48,96', 'depth=1,2,3'),
    (r'--seeds 0\.\.4', '--seeds 0,1'),
    (r'--seeds 0\.\.2', '--seeds 0'),
    (r'lr=0\.001,0\.003,0\.01,0\.03,0\.1,0\.3,1', 'lr=0.01,0.1'),
    (r'--depth 6 --width 32 --heads 2 --batch 4', '--depth 2 --width 16 --heads 2 --batch 2'),
    (r'--steps 80 --warmup 10', '--steps 4 --warmup 2'),
    (r'^(\./run\.sh --layout reordered) --depth 60', r'\1 --depth 2'),
]
SMALLER_IN = {  # the runs that figures are made of: which figure can be drawn of which run does not depend on their size
    'figures.md': [(r'--depth (60|48)', '--depth 3'), (r'--steps 40', '--steps 4'), (r'--warmup 10', '--warmup 2')],
    'README.md': [(r'--depth 60 --dtype fp16 --probes rms --out', '--depth 3 --dtype fp16 --probes rms --out'),
                  (r'--steps 40 --lr 0\.2', '--steps 24 --lr 0.2')],  # the overflow comes at step 11 to 14, on few processors later
}
PUT_IN = [  # words in capitals
    (r'--model DIR --data tokens:FILE', '--model tests/data/golden/llama-tiny --data tokens:tests/data/golden/llama-tiny/tokens.txt'),
    (r'(\./run.sh) export DIR --run RUN',
     r'\1 --arch llama --depth 1 --steps 2 --checkpoint-every 1 --out trained && \1 export exported-run --run trained'),
    (r'export DIR', 'export exported'),
    (r'results/runs/RUN|\bRUN\b', '"$last"'),  # the run before
]
SAYS = {  # what a comment behind a command says of it, and a line of its output
    'overflows at the residual add': r'^first +overflow at step 1[1-4], layer (3[4-9]|4[0-8]), \w+, residual, fwd',
}
RUN_INLINE = re.compile(r'^(?!.*[A-Z]{3}).* (list|describe|check|--help|--layout)')  # in backticks, with nothing to be put in
START = re.compile(r'\$? ?((?:\./run\.sh|\./test\.sh|plots/plot|harness/sweep\.sh|harness |meson |python3 |for |source <).*)')


def blocks(text):
    """Items of each indented block: ('command', text), ('output', line); and commands in backticks."""
    items, open_command = [], None
    for line in text.split('\n'):
        marker = re.match(r'<!-- output of (.*) -->$', line)
        if marker:
            items.append(('recall', marker[1]))
            continue
        if line.strip() == '':
            continue
        depth = len(line) - len(line.lstrip())
        if depth < 4:
            items += [('inline', c) for c in re.findall(r'`((?:\./run\.sh|harness|plots/plot|harness/sweep\.sh|meson|source) [^`]+)`', line)]
            items.append(('text', line))
            continue
        body = line.strip()
        if open_command is not None:
            items[open_command] = ('command', items[open_command][1] + '\n' + body)
        elif START.match(body):
            items.append(('command', START.match(body)[1]))
            open_command = len(items) - 1
        else:
            items.append(('output', body))
            continue
        command = re.sub(r'\s+#.*', '', items[open_command][1])
        unfinished = command.endswith('\\') or (command.startswith('for ') and body != 'done') or command.count("'") % 2
        if not unfinished:
            open_command = None
    return items


def number(word):
    try:
        return float(word)
    except ValueError:
        return None


def same_word(want, got, after):
    if want == got:
        return True
    if after == 's':  # a time
        return number(want) is not None and number(got) is not None
    want, got = want.strip('(),;'), got.strip('(),;')
    a, b = number(want), number(got)
    if a is None or b is None:
        return want == got
    if want.isdigit() and got.isdigit() and a <= 1000:
        return a == b
    if max(abs(a), abs(b)) < 1e-7:
        return max(abs(a), abs(b)) <= 4 * min(abs(a), abs(b))
    return abs(a - b) <= 0.03 * max(abs(a), abs(b))


def same_line(want, got):
    if '...' in want:
        want, cut = want.split('...')[0], True
    else:
        cut = False
    want, got = re.split(r'[ ,]+', want.strip(' ,')), re.split(r'[ ,]+', got.strip(' ,'))
    if not cut and len(want) != len(got) or len(want) > len(got):
        return False
    return all(same_word(w, g, (want[i + 1:] + [''])[0].strip(',')) for i, (w, g) in enumerate(zip(want, got)))


class Folder:
    """A scratch folder in which the commands of one document find what they name."""

    def __init__(self, top, program, source):
        self.top, self.outputs, self.last = top, {}, None
        os.makedirs(os.path.join(top, 'results'))
        for name in ('plots', 'tests', 'layouts', 'harness'):
            os.symlink(os.path.join(source, name), os.path.join(top, name))
        with open(os.path.join(top, 'run.sh'), 'w') as f:
            f.write(f'#!/bin/sh\nexec {program} "$@"\n')
        os.chmod(os.path.join(top, 'run.sh'), 0o755)
        self.program = program

    def run(self, command):
        text = re.sub(r'\s#.*', '', command) if not command.startswith('for ') else command
        text = re.sub(r'^harness ', './run.sh ', text).replace('harness/sweep.sh', f'harness/sweep.sh --harness {self.program}')
        done = subprocess.run(['bash', '-c', 'set -e\nlast=$1\n' + text, 'bash', self.last or ''], cwd=self.top, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for found in re.findall(r'^results +(\S+)$', done.stdout, re.M):
            self.last = found
        return done


def adapt(document, command):
    for pattern, put in PUT_IN:
        command = re.sub(pattern, put, command)
    for pattern, put in SMALLER_IN.get(document, []) + SMALLER:
        command = re.sub(pattern, put, command)
    return command


def check(document, text, folder, everything, report):
    last, at, seen = None, 0, set()
    for kind, item in blocks(text):
        if kind == 'text':
            last = None
            continue
        if kind in ('command', 'inline'):
            reason = next((why for pattern, why in NOT_RUN if re.search(pattern, re.sub(r'\s#.*', '', item))), None)
            long = any(re.search(p, re.sub(r'\s+#.*', '', item)) for p in LONG)
            if kind == 'inline' and (reason or item in seen or not RUN_INLINE.search(item)):
                continue
            seen.add(item)
            last = None
            name = f'{document}: {" ".join(item.split())[:90]}'
            if reason or (long and not everything):
                report(name, None, reason or 'takes minutes')
                continue
            command = adapt(document, item)
            done = folder.run(command)
            folder.outputs[item.split('  #')[0].strip()] = done.stdout
            report(name, done.returncode == 0 and 'Traceback' not in done.stderr, f'exit code {done.returncode}: {done.stderr[-300:]}')
            for comment, line in SAYS.items():
                if re.search(r'\s#.*' + comment, item):
                    report(f'{name}: {comment}', bool(re.search(line, done.stdout, re.M)), done.stdout[-900:])
            last, at = {'output': done.stdout.split('\n'), 'name': name}, 0
        elif kind == 'recall':
            last, at = {'output': folder.outputs[item].split('\n'), 'name': f'{document}: output of {item[:60]}'}, 0
        elif kind == 'output' and last is not None:
            if item == '...':
                continue
            found = next((i for i in range(at, len(last['output'])) if same_line(item, last['output'][i])), None)
            report(f'{last["name"]}: {item[:60]}', found is not None, 'not in the output: ' + ' | '.join(last['output'])[:900])
            at = found + 1 if found is not None else at


def main():
    program, source = (os.path.realpath(a) for a in sys.argv[1:3])
    everything = '--all' in sys.argv
    n, failed = 0, 0

    def report(name, good, why):
        nonlocal n, failed
        n += 1
        name = name.replace('#', '')
        why = ' '.join(why.split())
        if good is None:
            print(f'ok {n} - {name} # SKIP {why}')
        elif good:
            print(f'ok {n} - {name}')
        else:
            print(f'not ok {n} - {name} ({why})'.replace('#', ''))
            failed += 1
        sys.stdout.flush()

    documents = [a for a in sys.argv[3:] if a != '--all']
    for path in documents:
        with open(os.path.join(source, path)) as f:
            text = f.read()
        with tempfile.TemporaryDirectory() as top:
            check(os.path.basename(path), text, Folder(top, program, source), everything, report)
    print(f'1..{n}' if n else '1..0 # SKIP no commands')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
