#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""read_errors.py HARNESS FAULT_LIBRARY DATA: each file that is given to the program fails once in the middle of its reading; the sentence
names the file and the error of the system, not what is wrong with a file that ends early."""
import errno, json, os, pathlib, shutil, subprocess, sys, tempfile

program, library, data = map(os.path.abspath, sys.argv[1:])
small = '--depth 1 --width 16 --heads 2 --batch 2 --threads 1 --probes none --dry-run'.split()
said = os.strerror(errno.EIO)


def run(words, fault=None):
    env = {**os.environ, 'LD_PRELOAD': library, 'NH_FAULT_COUNT': 'calls'}
    if fault:
        env['NH_FAULT'] = f'read:{fault}:{errno.EIO}'
    return subprocess.run([program, *words], env=env, capture_output=True, text=True, timeout=60)


def named(words):
    """The sentences of single failures, after a look at each."""
    first = run(words)
    if first.returncode:
        sys.exit(f'{words}: {first.stderr}')
    calls = int(dict(line.split() for line in open('calls'))['read'])
    sentences = []
    for k in sorted({*range(1, min(calls, 8) + 1), calls // 2, calls}):  # headers, in the middle, at the end
        p = run(words, k)
        if p.returncode == 0:  # what the system tells of its memory
            continue
        assert p.returncode == 1 and p.stderr.startswith('harness: ') and p.stderr.count('\n') == 1, f'read {k}: {p.returncode} {p.stderr}'
        assert said in p.stderr, f'read {k}: {p.stderr}'
        sentences.append(p.stderr)
    return sentences


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    shutil.copytree(pathlib.Path(data, 'golden/llama-tiny'), 'model')
    with open('model/model.safetensors', 'rb') as f:
        names = json.loads(f.read(int.from_bytes(f.read(8), 'little')))
    names.pop('__metadata__', None)
    pathlib.Path('model/model.safetensors.index.json').write_text(json.dumps({'weight_map': dict.fromkeys(names, 'model.safetensors')}))
    pathlib.Path('a.txt').write_text('some text for a model\n' * 20)
    cases = [('a checkpoint', '--model model --data tokens:model/tokens.txt --threads 1 --probes none --dry-run'.split(),
              ('config.json', 'model.safetensors.index.json', 'tokens.txt')),
             ('text', [*small, '--data', 'text:a.txt', '--seq', '8'], ('a.txt',)),
             ('images', [*small, '--data', 'fashion-mnist'], ('images-idx3-ubyte', 'labels-idx1-ubyte'))]
    print(f'1..{len(cases)}')
    bad = False
    for number, (title, words, files) in enumerate(cases, 1):
        try:
            sentences = named(words)
            for file in files:
                assert any(file + "'" in s or file + ".gz'" in s for s in sentences), f'no word of {file} in {sentences}'
            print(f'ok {number} - {title}')
        except AssertionError as e:
            bad = True
            print(f'not ok {number} - {title}: {e}')
sys.exit(bad)
