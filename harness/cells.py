#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What harness/sweep.sh asks about all cells of a sweep at once.

cells.py check DIR: reads names of cells, one a line, and writes a line for each: "whole", or what is wrong with its files.
cells.py join DIR: reads names of whole cells, writes their tables as one into DIR/TABLE.csv, all tables or none, and tells
their paths.

A cell is whole where its run.json is complete, tells that the run ended, and every file that it tells has the size that it
tells.
"""
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile

TABLES = ('layers', 'sites', 'steps', 'spectrum', 'config')
ENDED = ('ok', 'overflowed', 'diverged')
PLOTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), '..', 'plots')


class Damaged(Exception):
    pass


def read_record(folder):
    """run.json of a whole cell; Damaged otherwise."""
    path = os.path.join(folder, 'run.json')
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        raise Damaged('run.json is not a regular file')
    try:
        with open(path, encoding='utf-8') as f:
            record = json.load(f)
        status, files = record['status'], record['files']
        sizes = [(name, int(size)) for name, size in files.items()]
    except FileNotFoundError:
        raise Damaged('run.json is missing') from None
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise Damaged('run.json is not the complete record of a run') from None
    if status not in ENDED:
        raise Damaged(f'run.json has the status {status!r}')
    if 'config.csv' not in files:
        raise Damaged('run.json does not list config.csv')
    for name, size in sizes:
        try:
            about = os.stat(os.path.join(folder, name))
        except (OSError, ValueError):
            raise Damaged(f'{name} is missing') from None
        if not stat.S_ISREG(about.st_mode):
            raise Damaged(f'{name} is not a regular file')
        found = about.st_size
        if found != size:
            raise Damaged(f'{name} has {found} bytes instead of {size}')
    return record


def check(out, names):
    for name in names:
        try:
            read_record(os.path.join(out, name))
            print('whole')
        except Damaged as damage:
            print(str(damage).replace('\n', ' '))


def append(target, paths):
    """Writes the files to target, the header once; False where headers differ."""
    first = None
    for path in paths:
        with open(path, 'rb') as f:
            header = f.readline()
            if first is None:
                first = header
                target.write(header)
            if header != first:
                return False
            shutil.copyfileobj(f, target, 1 << 20)
            f.seek(-1, os.SEEK_END)
            if f.read() != b'\n':
                raise Damaged(f'{path}: the last line is not complete; remove its folder and start the sweep again')
    return True


def join_table(target, paths):
    if append(target, paths):
        return
    # Columns of an older program differ: the rows are matched by the names of columns.
    target.seek(0)
    target.truncate()
    awk = ['awk', '-f', os.path.join(PLOTS, 'csv.awk'), '-f', os.path.join(PLOTS, 'concat.awk')]
    done = subprocess.run(awk + paths, stdout=target, stderr=subprocess.PIPE, check=False,
                          env=dict(os.environ, LC_ALL='C'))
    if done.returncode:
        raise Damaged(done.stderr.decode(errors='replace').strip().replace('\n', '; '))


def join(out, names):
    files = {table: [] for table in TABLES}
    runs = {}
    for name in names:
        folder = os.path.join(out, name)
        record = read_record(folder)
        run = record.get('run')
        if run is not None and run in runs:
            raise Damaged(f'{runs[run]} and {name} are the same run ({run}): a value is named twice, under two names; leave one out')
        runs[run] = name
        for table in TABLES:
            if table + '.csv' in record['files']:
                # "./": awk takes NAME=VALUE for a variable
                files[table].append(os.path.join('./' if not os.path.isabs(folder) else '', folder, table + '.csv'))
    umask = os.umask(0)
    os.umask(umask)
    parts = {}
    try:
        for table, paths in files.items():
            if paths:
                fd, parts[table] = tempfile.mkstemp('.part', table + '.csv.', out)
                with open(fd, 'wb') as target:
                    os.fchmod(fd, 0o666 & ~umask)
                    join_table(target, paths)
        for table in TABLES:
            path = os.path.join(out, table + '.csv')
            if table in parts:
                os.rename(parts.pop(table), path)
                print(path)
            elif os.path.lexists(path):
                os.unlink(path)
    finally:
        for part in parts.values():
            os.unlink(part)


def main():
    action, out = sys.argv[1:]
    names = sys.stdin.read().splitlines()
    try:
        (check if action == 'check' else join)(out, names)
    except Damaged as damage:
        return f'sweep.sh: {damage}'
    except OSError as error:
        return f'sweep.sh: cannot write the joined tables into {out}: {error.strerror}; the finished cells are kept'
    return 0


if __name__ == '__main__':
    sys.exit(main())
