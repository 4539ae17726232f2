#!/usr/bin/env bash
# report.sh PROGRAM: what the probe headroom and `harness report` tell of overflows, here and in other formats.
set -euo pipefail
program=$(realpath -- "$1")
if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP python3 is not there to judge'
    exit 0
fi
exec python3 - "$program" <<'EOF'
import csv, glob, json, math, os, re, subprocess, sys, time

program = sys.argv[1]
done, bad = 0, 0
LIMIT = {'fp16': 65504, 'bf16': 3.3895313892515355e38, 'fp8-e4m3': 448, 'fp8-e5m2': 57344}


def check(what, right, told=''):
    global done, bad
    done += 1
    bad += not right
    print(('ok' if right else 'not ok'), done, '-', what)
    if not right and told:
        print('# ' + told.replace('\n', '\n# '))


def start(*words):
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=120)


def sites(folder):
    return [r for r in csv.DictReader(open(folder + '/sites.csv')) if r['direction'] == 'fwd']


model = '--layout sandwich --depth 5 --width 16 --heads 2 --data uniform --seq 8 --batch 2 --post-gain 20000'.split()
half = start(*model, '--dtype', 'fp16', '--probes', 'rms,overflow,headroom', '--out', 'half')
wide = start(*model, '--dtype', 'fp32', '--probes', 'rms,overflow', '--out', 'wide')
check('a run with the probe headroom', half.returncode == 0, half.stderr)
rows, twin = sites('half'), sites('wide')
key = lambda r: (r['layer'], r['sublayer'], r['site'])
largest = {key(r): r['max_abs'] for r in twin}
check('the largest values are those of an fp32 run', all(r['max_abs_fp32'] == largest[key(r)] for r in rows) and len(rows) == len(twin))
check('without the probe there are none', all(r['max_abs_fp32'] == '' for r in twin))

deep = start(*'--layout sandwich --depth 3 --width 16 --heads 2 --data uniform --seq 8 --batch 2 --post-gain 3e38 --dtype fp32'.split(),
             '--probes', 'rms,overflow,headroom', '--out', 'deep')
again = start('report', 'deep').stdout
check('an overflow in fp32 has no safe scale', re.search(r'^residual .* none$', again, re.M) and
      again.count('; safe with no scale, as fp32 has an inf too') == 4, again + deep.stderr)
nans = sum(r['max_abs'] == 'nan' for r in sites('deep'))
check('sites that hold nan alone are told', nans and f'in fp32     {nans} of {len(sites("deep"))} sites hold nothing but nan' in again, again)
text = start('report', 'half').stdout
check('the report of a folder is what the run has printed', text == half.stdout, text)
counts = {}
for r in rows:
    if int(r['overflow']):
        n, layers, first = counts.get(r['site'], (0, 0, r['layer']))
        counts[r['site']] = (n + int(r['overflow']), layers + 1, first)
told = {m[1]: (int(m[2]), int(m[3]), m[4]) for m in re.finditer(r'^(\w+) +(\d+) +(\d+) +(\d+)$', text, re.M)}
check('sites by overflow count', told == counts and counts, f'{told} {counts}')

worst = {}
for r in rows:
    x = float(r['max_abs_fp32'])
    if x > worst.get(r['site'], (-1,))[0]:
        worst[r['site']] = (x, r['layer'])
table = {m[1]: m for m in re.finditer(r'^(\w+) +(\d+) +(\S+) +(\S+) +(\S+) +(\S+) +(\S+) +2\^(-?\d+)$', text, re.M)}
check('headroom of every site', set(table) == set(worst))
for site, m in table.items():
    x, layer = worst[site]
    bits = [math.log2(limit / x) for limit in LIMIT.values()]
    near = all(abs(float(m[4 + i]) - b) <= 0.0501 for i, b in enumerate(bits))
    scale = int(m[8])
    safe = x * 2.0**scale < 65520 <= x * 2.0**(scale + 1)
    check(f'headroom at {site}', m[2] == layer and near and safe, m[0])
order = [worst[m[1]][0] for m in table.values()]
check('least headroom first', order == sorted(order, reverse=True))

for name, limit in LIMIT.items():
    line = re.search(rf'^in {name} +(.*); safe with all values times 2\^(-?\d+)$', text, re.M)
    # half of the last step above the maximum rounds to it
    edge = {'fp16': 65520, 'bf16': 3.3961775292304957e38, 'fp8-e4m3': 464, 'fp8-e5m2': 61440}[name]
    over = [r for r in rows if float(r['max_abs_fp32']) >= edge]
    top = max(float(r['max_abs_fp32']) for r in rows)
    if over:
        right = line[1].startswith(f'{len(over)} of {len(rows)} sites would overflow, the first {over[0]["site"]} of layer {over[0]["layer"]}')
    else:
        right = line[1] == 'nothing would overflow'
    scale = int(line[2])
    check(f'what would overflow in {name}', right and top * 2.0**scale < edge <= top * 2.0**(scale + 1), line[0])

text = start('report', 'wide').stdout
check('an fp32 run is its own twin', table and all(m[0] in text for m in table.values()), text)
start(*model, '--dtype', 'fp16', '--probes', 'overflow', '--out', 'bare')
text = start('report', 'bare').stdout
check('headroom that is not known', 'is not known' in text and 'safe' not in text, text)


# ---- the table of layers ----

def layers(folder, overflows, **more):
    """A run of 40 layers with these counts of overflow by row, 0 = the embedding."""
    os.mkdir(folder)
    with open(folder + '/layers.csv', 'w') as f:
        f.write('run,layout,depth,dtype,step,layer,sublayer,stream,rms,overflow\n')
        for k in range(82):
            place = f'{(k + 1) // 2},{"embed" if k == 0 else "final" if k == 81 else "attn" if k % 2 else "ffn"}'
            f.write(f'r00000001,pre,40,fp16,0,{place},0,{k}.5,{overflows.get(k, 0)}\n')
    json.dump({'run': 'r00000001', 'status': 'overflowed', 'loss': 1.5, 'wall_s': 2, 'title': ['a title'], 'summary': ['a summary'], **more},
              open(folder + '/run.json', 'w'))


def table_of(folder):
    p = start('report', folder)
    rows = {(int(m[1]), m[2]): int(m[4]) for m in re.finditer(r'^ +(\d+) (\w+) +(\S+) +(\d+)$', p.stdout, re.M)}
    lost = re.search(r'^(\d+) more overflows are in (\d+) of the rows not shown$', p.stdout, re.M)
    return p.stdout, rows, (int(lost[1]), int(lost[2])) if lost else (0, 0)


layers('rare', {7: 15, 50: 2})
text, rows, lost = table_of('rare')
check('rows with overflow are always among those shown', rows.get((4, 'attn')) == 15 and rows.get((25, 'ffn')) == 2 and 9 <= len(rows) <= 11 and
      lost == (0, 0), text)
check('both ends are shown, in order', list(rows)[0] == (0, 'embed') and list(rows)[-1] == (41, 'final') and list(rows) == sorted(rows), text)
check('title, summary and status of the record', text.startswith('a title\n') and '\na summary\n' in text and
      text.endswith('status    overflowed, loss 1.5, 2.00 s\nresults   rare\n'), text)
layers('many', {k: k for k in range(10, 70)}, first_forward={'layer': 34, 'sublayer': 'ffn'})
text, rows, lost = table_of('many')
check('the sum of many overflows stays true', sum(rows.values()) + lost[0] == sum(range(10, 70)) and lost[1] == 60 - sum(n > 0 for n in rows.values())
      and len(rows) <= 19, text)
check('the row of the first offender is shown', rows.get((34, 'ffn')) == 68, text)
layers('odd', {}, loss='nan')
check('a loss that is nan', 'status    overflowed, loss nan, 2.00 s' in table_of('odd')[0])
layers('unmeasured', {}, loss=None)
check('a loss that was not measured', 'status    overflowed, 2.00 s' in table_of('unmeasured')[0])

small = '--depth 2 --width 16 --heads 2 --data uniform --vocab 32 --seq 8 --batch 2 --threads 1'.split()
trained = start(*small, '--steps', '7', '--probe-every', '2', '--out', 'trained')
text = start('report', 'trained').stdout
check('the report of a training', text.startswith(trained.stdout[:trained.stdout.index('status')]) and re.search(r'^training  7 of 7 steps', text, re.M) and
      re.search(r'^ +2 ffn', text, re.M), text)
start(*small, '--steps', '3', '--probes', 'none', '--out', 'bare_training')
text = start('report', 'bare_training').stdout
check('the report of a training without probes', re.search(r'^training  3 of 3 steps', text, re.M) and 'layer  ' not in text, text)
under_way = subprocess.Popen([program, *small, '--steps', '100000000', '--probe-every', '5', '--out', 'long'], stderr=subprocess.DEVNULL)
while len(glob.glob('long/steps.csv.*.part')) == 0 or open(glob.glob('long/steps.csv.*.part')[0]).read().count('\n') < 20:
    assert under_way.poll() is None
    time.sleep(0.02)
alive = start('report', 'long')
under_way.kill()
under_way.wait()
dead = start('report', 'long')
for name, p in (('under way', alive), ('broken off', dead)):
    check('the report of a run ' + name, p.returncode == 0 and 'status    broken off or under way' in p.stdout and
          re.search(r'^at step [1-9]', p.stdout, re.M) and len(re.findall(r'^ +\d+ (?:attn|ffn|embed|final) ', p.stdout, re.M)) == 6 and
          re.search(r'^training  \d+ steps so far, loss \d', p.stdout, re.M), p.stdout + p.stderr)

os.mkdir('foreign')
open('foreign/run.json', 'w').write('{"version": 1}')
os.mkdir('empty')
os.mkdir('broken')
open('broken/sites.csv', 'w').write('run,step,layer,site,direction,overflow,dtype,max_abs\na,0,x,qkv,fwd,0,fp16,1\n')
os.mkdir('short')
open('short/sites.csv', 'w').write('run,step,layer\na,0,1\n')
os.mkdir('none')
open('none/sites.csv', 'w').write('run,step,layer,site,direction,overflow,dtype,max_abs\n')
os.mkdir('strange')
open('strange/sites.csv', 'w').write('run,step,layer,site,direction,overflow,dtype,max_abs\n00000001,0,1,elsewhere,fwd,0,fp16,1\n')
os.mkdir('two')
open('two/sites.csv', 'w').write(open('half/sites.csv').read() + ''.join(open('bare/sites.csv').readlines()[1:]))
for words, code, says in ((['report'], 2, 'folders'), (['report', '--top', '3'], 2, 'no option'), (['report', 'empty'], 1, "'empty' holds no run"),
                          (['report', 'two'], 1, 'is of another run'), (['report', 'foreign'], 1, 'foreign/run.json is not the record of a run'),
                          (['report', 'broken'], 1, 'line 2'), (['report', 'short'], 1, 'site'), (['report', 'none'], 1, 'no forward'), (['report', 'strange'], 1, "no site 'elsewhere'"),
                          ([*model, '--probes', 'headroom', '--steps', '2'], 2, 'headroom')):
    p = start(*words)
    check('refused: ' + ' '.join(words[-3:]), p.returncode == code and says in p.stderr and p.stderr.count('\n') == 1, p.stderr)
print(f'1..{done}')
sys.exit(bad != 0)
EOF
