#!/usr/bin/env bash
# op.sh PROGRAM: single operations on given tensors: values and counters of known cases, gradients, refusals.
set -euo pipefail
program=$(realpath -- "$1")
if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP python3 is not there to write tensors'
    exit 0
fi
exec python3 - "$program" "${NH_TEST_DATA:-$(dirname -- "$(realpath -- "$0")")/../data}" <<'EOF'
import csv, io, json, math, os, struct, subprocess, sys

program, data = sys.argv[1:]
inf, nan = math.inf, math.nan
done, bad = 0, 0


def write(path, tensors, dtype='F32'):
    """tensors: name -> (shape, numbers) or (shape, numbers, dtype)"""
    codes = {'F32': 'f', 'F64': 'd', 'F16': 'e', 'I32': 'i', 'I64': 'q'}
    header, body = {}, b''
    for name, (shape, numbers, *own) in tensors.items():
        kind = own[0] if own else dtype
        raw = numbers if isinstance(numbers, bytes) else struct.pack(f'<{len(numbers)}{codes[kind]}', *numbers)
        header[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + body)


def read(path):
    raw = open(path, 'rb').read()
    n = struct.unpack('<Q', raw[:8])[0]
    assert n % 8 == 0, 'header is not padded'
    tensors = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        begin, end = (8 + n + o for o in t['data_offsets'])
        code, size = {'F32': ('f', 4), 'F64': ('d', 8)}[t['dtype']]
        tensors[name] = (t['shape'], list(struct.unpack(f'<{(end - begin) // size}{code}', raw[begin:end])), t['dtype'])
    return tensors


class Result:
    """y, all tensors, the rows of the CSV by site and direction"""


def start(*words):
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=60)


def op(words, tensors, dtype='F32'):
    write('a.safetensors', tensors, dtype)
    if os.path.exists('b.safetensors'):
        os.remove('b.safetensors')
    p = start('op', *words.split(), '--in', 'a.safetensors', '--out', 'b.safetensors')
    assert p.returncode == 0, p.stderr
    r = Result()
    r.tensors = read('b.safetensors')
    r.shape, r.y, r.dtype = r.tensors['y']
    r.note = p.stderr
    r.rows = {(row['site'], row['direction']): row for row in csv.DictReader(io.StringIO(p.stdout))}
    return r


def row(r, site, direction='fwd', **want):
    """The counters named are as wanted; of overflow, nan_made, propagated and zero_made those not named are 0."""
    got = r.rows[site, direction]
    for name in ('overflow', 'nan_made', 'propagated', 'zero_made'):
        want.setdefault(name, 0)
    for name, value in want.items():
        assert same(float(got[name]), value), f'{name} at {site} is {got[name]}, not {value}'


def same(a, b):
    return (math.isnan(a) and math.isnan(b)) or struct.pack('<d', a) == struct.pack('<d', float(b))


def equal(got, want):
    assert len(got) == len(want) and all(map(same, got, want)), f'{got[:8]}, not {want[:8]}'


def close(got, want, error=1e-6):
    assert len(got) == len(want), f'{len(got)} numbers, not {len(want)}'
    for a, b in zip(got, want):
        assert abs(a - b) <= error * max(1, abs(b)), f'{a}, not {b}'


def case(f):
    global done, bad
    done += 1
    try:
        f()
        print(f'ok {done} - {f.__doc__}')
    except Exception as e:
        bad += 1
        print(f'not ok {done} - {f.__doc__}: {type(e).__name__} {str(e)[:300]}')
    return f


def f16(x):
    return struct.unpack('<e', struct.pack('<e', x))[0]


# ---- products ----

def down(x, dtype, more=''):
    return op(f'linear --dtype {dtype} {more}', {'x': ([1, 32], [x] * 32), 'weight': ([1, 32], [x] * 32)})


@case
def ffn_out():
    """32 * 45.5^2 = 66248 leaves fp16: one overflow"""
    r = down(45.5, 'fp16')
    equal(r.y, [inf])
    assert r.shape == [1, 1] and r.dtype == 'F32' and len(r.rows) == 1
    row(r, 'ffn_out', overflow=1, total=1, max_abs=inf, headroom_bits=-inf)
    r = down(45.21875, 'fp16')
    equal(r.y, [65440])
    row(r, 'ffn_out', max_abs=65440, min_abs=65440, headroom_bits=math.log2(65504 / 65440))
    for dtype, y in ('fp32', 66248), ('bf16', 66048), ('fp64', 66248):
        r = down(45.5, dtype)
        equal(r.y, [y])
        row(r, 'ffn_out')


@case
def accumulators():
    """--accum dtype: a sum of ones stops at 2048 in fp16"""
    ones = {'x': ([1, 4096], [1] * 4096), 'weight': ([1, 4096], [1] * 4096)}
    equal(op('linear --dtype fp16', ones).y, [4096])
    equal(op('linear --dtype fp16 --accum dtype', ones).y, [2048])


@case
def bias_and_batch():
    """linear with a bias on [B, T, cols]; the shape stays"""
    r = op('linear', {'x': ([2, 2, 1], [1, 2, 3, 4]), 'weight': ([3, 1], [1, 10, 100]), 'bias': ([3], [.5, 0, 0])})
    assert r.shape == [2, 2, 3]
    equal(r.y, [1.5, 10, 100, 2.5, 20, 200, 3.5, 30, 300, 4.5, 40, 400])


@case
def brought_inf():
    """an inf of the input is propagated, not an overflow"""
    for x, y, counts in ([inf, 1], inf, {'propagated': 1}), ([nan, 1], nan, {'propagated': 1}), ([inf, -inf], nan, {'nan_made': 1}):
        r = op('linear --dtype fp16', {'x': ([1, 2], x), 'weight': ([1, 2], [1, 1])})
        equal(r.y, [y])
        row(r, 'ffn_out', **counts)
    r = op('linear --dtype fp16', {'x': ([1, 2], [1, 1]), 'weight': ([1, 2], [inf, 1])})
    row(r, 'ffn_out', propagated=1)
    for name in 'attention', 'add', 'mul':
        abc = 'qkv' if name == 'attention' else 'ab'
        r = op(f'{name} --dtype fp16', {k: ([1, 2], [inf, 1] if k == abc[-1] else [1, 1]) for k in abc})
        row(r, {'attention': 'attn_v', 'add': 'residual', 'mul': 'ffn_glu'}[name], propagated=1)


@case
def brought_large():
    """a number beyond the format goes in as inf, and that is told"""
    r = op('relu --dtype fp16', {'x': ([1, 2], [70000, 1])})
    equal(r.y, [inf, 1])
    row(r, 'ffn_act', propagated=1)
    assert '1 of 2 numbers' in r.note and 'fp16' in r.note, r.note
    assert op('relu --dtype fp16', {'x': ([1, 1], [inf])}).note == ''


# ---- norms ----

@case
def norm_of_inf():
    """norms of [inf, 1, 2, 3]: RMSNorm nan and zeros, LayerNorm nan"""
    x = {'x': ([1, 4], [inf, 1, 2, 3])}
    for dtype in 'fp16', 'fp32':
        r = op(f'norm --dtype {dtype}', x)
        equal(r.y, [nan, 0, 0, 0])
        row(r, 'norm_pre', nan_made=1, total=4)
        r = op(f'norm --dtype {dtype} --norm layer', x)
        equal(r.y, [nan] * 4)
        row(r, 'norm_pre', nan_made=4, total=4, max_abs=nan)


@case
def sum_of_squares():
    """1024 times 8.0 with statistics in fp16: a row of zeros, one overflow"""
    for width, stats, y, counts in ((1023, 'dtype', 1, {}), (1024, 'dtype', 0, {'overflow': 1, 'zero_made': 1}),
                                    (1024, 'fp32', 1, {})):
        r = op(f'norm --dtype fp16 --norm-stats {stats}', {'x': ([2, width], [8] * 2 * width)})
        equal(r.y, [y] * 2 * width)
        row(r, 'norm_pre', **{k: 2 * n for k, n in counts.items()})


@case
def eps():
    """a row of zeros: eps 1e-8 is zero in fp16"""
    x = {'x': ([1, 2], [0, 0])}
    equal(op('norm --dtype fp16 --eps 1e-8', x).y, [0, 0])
    r = op('norm --dtype fp16 --norm-stats dtype --eps 1e-8', x)
    equal(r.y, [nan, nan])
    row(r, 'norm_pre', nan_made=2)
    equal(op('norm --dtype fp16 --norm-stats dtype --eps 1e-7', x).y, [0, 0])


@case
def variance():
    """LayerNorm of 40000..40003 in fp32 has variance 1.25"""
    r = op('norm --norm layer', {'x': ([4], [40000, 40001, 40002, 40003])})
    assert r.shape == [4]
    close(r.y, [-1.34163542, -.44721181, .44721181, 1.34163542], 1e-7)


@case
def groups():
    """--group: one gain for all groups or one for all columns; a bias alone"""
    x = ([1, 4], [3, 3, 5, 5])
    close(op('norm --group 2 --eps 0', {'x': x}).y, [1, 1, 1, 1])
    close(op('norm --group 2 --eps 0', {'x': x, 'gain': ([2], [1, 2])}).y, [1, 2, 1, 2])
    close(op('norm --group 2 --eps 0', {'x': x, 'gain': ([4], [1, 2, 3, 4])}).y, [1, 2, 3, 4])
    close(op('norm --group 2 --eps 0', {'x': x, 'bias': ([2], [0, 9])}).y, [1, 10, 1, 10])


@case
def norm_cast():
    """--norm-cast before-gain rounds twice"""
    x, g = [f16(.1 * (k + 1)) for k in range(64)], [f16(1 + .013 * k) for k in range(64)]
    tensors = {'x': ([1, 64], x), 'gain': ([64], g)}
    root = math.sqrt(sum(v * v for v in x) / 64 + 1e-5)
    close(op('norm --dtype fp16 --norm-cast before-gain', tensors).y, [f16(f16(v / root) * w) for v, w in zip(x, g)], 0)
    close(op('norm --dtype fp16', tensors).y, [f16(v / root * w) for v, w in zip(x, g)], 0)


# ---- number by number ----

@case
def gelu():
    """GELU far out"""
    x = [10.5, 12, -12, 5, 0, -1]
    for dtype in 'fp32', 'fp64':
        r = op(f'gelu --dtype {dtype}', {'x': ([1, 6], x)}, 'F64')
        assert r.dtype == {'fp32': 'F32', 'fp64': 'F64'}[dtype]
        close(r.y, [10.5, 12, 0, 4.99999977, 0, -.158808009], 1.2e-7 if dtype == 'fp32' else 1e-8)
    r = op('gelu --dtype fp16', {'x': ([1, 3], [40.34375, -6, 60000])})
    equal(r.y, [40.34375, -0.0, 60000])
    row(r, 'ffn_act', underflow=1, max_abs=60000, min_abs=40.34375)


@case
def points():
    """relu, silu, mul, add, gain"""
    equal(op('relu', {'x': ([3], [-1, nan, 2])}).y, [0, nan, 2])
    close(op('silu', {'x': ([2], [0, 1])}).y, [0, 1 / (1 + math.exp(-1))])
    equal(op('mul', {'a': ([2], [3, 4]), 'b': ([2], [5, -6])}).y, [15, -24])
    equal(op('gain', {'x': ([1, 4], [1, 2, 3, 4]), 'gain': ([2], [10, 100])}).y, [10, 20, 300, 400])
    r = op('add --dtype fp16', {'a': ([2], [65504, 65504]), 'b': ([2], [16, 15])})
    equal(r.y, [inf, 65504])
    row(r, 'residual', overflow=1)


@case
def cast_patterns():
    """cast of known bit patterns to fp16 and bf16"""
    rows = list(csv.DictReader(open(f'{data}/conv/f32_to_half_bf16.csv')))
    assert len(rows) == 39
    x = b''.join(struct.pack('<I', int(r['f32_hex'], 16)) for r in rows)
    for dtype, code in ('fp16', 'e'), ('bf16', 'f'):
        r = op(f'cast --dtype {dtype}', {'x': ([39], x)})
        for line, y in zip(rows, r.y):
            want = line[f'{dtype}_hex']
            if want == 'NaN':
                assert math.isnan(y), line
                continue
            if code == 'e':
                got = struct.unpack('<H', struct.pack('<e', y))[0]
            else:
                got = struct.unpack('<I', struct.pack('<f', y))[0]
                assert got & 0xffff == 0, line
                got >>= 16
            assert got == int(want, 16), f'{line} gave {got:04x}'
        given = struct.unpack('<39f', x)
        row(r, 'cast', total=39, overflow=sum(math.isfinite(a) and not math.isfinite(b) for a, b in zip(given, r.y)),
            propagated=sum(not math.isfinite(a) for a in given), underflow=sum(a != 0 and b == 0 for a, b in zip(given, r.y)))


@case
def cast_once():
    """cast of a double rounds once"""
    r = op('cast --dtype fp16', {'x': ([3], [1 + 2**-11 + 2**-40, 1 + 2**-11, 1e300], 'F64')})
    equal(r.y, [1 + 2**-10, 1, inf])
    row(r, 'cast', overflow=1)
    assert r.dtype == 'F32' and op('cast --dtype e4m11', {'x': ([1], [1])}).dtype == 'F64'


@case
def cast_fp8():
    """fp8-e4m3 has no inf, e4m3 has"""
    r = op('cast --dtype fp8-e4m3', {'x': ([3], [464, 465, -1e9])})
    equal(r.y, [448, nan, nan])
    row(r, 'cast', overflow=2, max_abs=448)
    r = op('cast --dtype e4m3', {'x': ([3], [247.9, 248, -248])})
    equal(r.y, [240, inf, -inf])
    row(r, 'cast', overflow=2)
    equal(op('cast --dtype fp8-e5m2', {'x': ([2], [61439, 61440])}).y, [57344, inf])
    equal(op('cast --dtype tf32', {'x': ([1], [1 + 2**-11])}).y, [1])


@case
def rope():
    """rotation by position 15962: angles are not rounded"""
    n = 15963
    x = {'x': ([n, 2], [1, 0] * n)}
    close(op('rope', x).y[-2:], [math.cos(15962), math.sin(15962)], 1e-7)
    y = op('rope --dtype bf16', x).y
    close(y[-2:], [math.cos(15962), math.sin(15962)], 2**-8)
    close(y[2 * 257:2 * 257 + 1], [.81931], 2**-8)
    r = op('rope --head-dim 2 --theta 100', {'x': ([2, 2, 4], [1, 0, 0, 1] * 4)})
    close(r.y[4:8], [math.cos(1), math.sin(1), -math.sin(1), math.cos(1)])
    equal(r.y[8:12], [1, 0, 0, 1])


# ---- attention ----

@case
def scores():
    """q.k = 67712 leaves fp16 unless q is scaled before"""
    qkv = {name: ([2, 128], [value] * 256) for name, value in (('q', 23), ('k', 23), ('v', 2))}
    r = op('attention --dtype fp16 --score-scale after', qkv)
    row(r, 'qk', overflow=3, total=3)
    row(r, 'scores', propagated=3)
    row(r, 'probs', nan_made=3)
    row(r, 'attn_v', propagated=256)
    r = op('attention --dtype fp16', qkv)
    assert [site for site, _ in r.rows] == ['q_scale', 'scores', 'probs', 'attn_v'], list(r.rows)
    row(r, 'q_scale', max_abs=2.033203125)
    row(r, 'scores', max_abs=5984)
    equal(r.y, [2] * 256)
    r = op('attention --dtype fp32 --score-scale after', qkv)
    row(r, 'qk', max_abs=67712)
    close([float(r.rows['scores', 'fwd']['max_abs'])], [67712 / math.sqrt(128)])


@case
def relaxed_scores():
    """--pb-relax holds scores divided by alpha: 2.0e6 in fp16"""
    qkv = {name: ([2, 128], [value] * 256) for name, value in (('q', 420), ('k', 420), ('v', 2))}
    row(op('attention --dtype fp16', qkv), 'scores', overflow=3, total=3)
    for word in '--pb-relax', '--pb-relax=32':
        r = op(f'attention --dtype fp16 {word}', qkv)
        row(r, 'scores', max_abs=62368)
        equal(r.y, [2] * 256)


@case
def relaxed_input():
    """relax: x over c = max|x|/8 of the whole tensor, not of a row; zeros stay zeros"""
    r = op('relax --dtype fp16', {'x': ([2, 1, 2], [1, -2, 60000, 30000])})
    equal(r.y, [0.00013327598571777344, -0.00026655197143554688, 8, 4])
    row(r, 'norm_relax', max_abs=8, total=4)
    equal(op('relax --ln-relax 2', {'x': ([2], [4, -8])}).y, [1, -2])
    equal(op('relax', {'x': ([2], [0, 0])}).y, [0, 0])
    equal(op('relax --ln-relax 1e12 --dtype fp16', {'x': ([4], [0, 1, -2, 3])}).y, [0, inf, -inf, inf])  # the divisor is 0 in fp16
    row(op('relax', {'x': ([3], [1, nan, 2])}), 'norm_relax', propagated=3)


@case
def windows():
    """a window of 3 sees 1 2 3 3 3 3 keys; two heads share keys and values; sequences stay apart"""
    t = 6
    r = op('attention --window 3 --heads 2 --kv-heads 1',
           {'q': ([2, t, 4], [0] * 8 * t), 'k': ([2, t, 2], [0] * 4 * t), 'v': ([2, t, 2], [i for i in range(2 * t) for _ in '12'])})
    assert int(r.rows['probs', 'fwd']['total']) == 2 * 2 * 15
    close(r.y, [m for b in (0, t) for m in (b, b + .5, b + 1, b + 2, b + 3, b + 4) for _ in range(4)])


@case
def tf32():
    """with tf32 what goes into the product is cast, at a site of its own"""
    r = op('attention --dtype tf32', {k: ([1, 4], [1] * 4) for k in 'qkv'})
    assert ('cast', 'fwd') in r.rows


# ---- ends ----

@case
def embedding():
    """embed: rows of tokens, sqrt(3072) rounded as its format has it"""
    r = op('embed', {'tokens': ([2, 2], [1, 0, 0, 2], 'I64'), 'weight': ([3, 2], [1, 2, 3, 4, 5, 6])})
    assert r.shape == [2, 2, 2]
    equal(r.y, [3, 4, 1, 2, 1, 2, 5, 6])
    for dtype, one, more in ('bf16', 55.5, 56), ('fp16', 55.4375, 55.875): # unrounded sqrt(3072) gives 55.75 and 55.84375
        r = op(f'embed --dtype {dtype} --embed-scale sqrt',
               {'tokens': ([2], [0, 1], 'I32'), 'weight': ([2, 3072], [1] * 3072 + [1 + 2 ** -7] * 3072)})
        equal(r.y, [one] * 3072 + [more] * 3072)


@case
def soft_cap():
    """softcap: C tanh(x / C), inf included"""
    close(op('softcap', {'x': ([3], [30, -1000, 0])}).y, [30 * math.tanh(1), -30, 0])
    equal(op('softcap --softcap 50 --dtype fp16', {'x': ([2], [inf, -inf])}).y, [50, -50])


@case
def router():
    """route: the largest sigmoid(logits) + bias, ties to the lower; weights without the bias, over their sum"""
    logits = [math.log(3), 0, -math.log(3), 0]  # scores 0.75, 0.5, 0.25, 0.5
    r = op('route --experts-active 2', {'logits': ([4], logits), 'bias': ([4], [0] * 4)})
    close(r.y, [0.6, 0.4])
    row(r, 'route', total=2)
    close(op('route --experts-active 2 --route-scale 2.5', {'logits': ([4], logits), 'bias': ([4], [0, 0, 1, 0])}).y, [1.875, 0.625])
    r = op('route --dtype fp16 --grad', {'logits': ([1, 2], [nan, inf]), 'bias': ([2], [0, 0]), 'dy': ([1, 1], [1])})
    equal(r.y, [nan])
    equal(r.tensors['d_bias'][1], [0, 0])
    row(r, 'route', propagated=1)


@case
def loss():
    """cross-entropy of the next token; the last of a sequence has none"""
    r = op('cross-entropy --dtype fp16', {'logits': ([2, 3, 4], [0] * 16 + [9, 0, 0, 0] * 2), 'tokens': ([2, 3], [0, 1, 2] * 2, 'I64')})
    assert r.shape == [2, 3]
    close(r.y, [math.log(4), math.log(4), 0, math.log(4), math.log(math.exp(9) + 3), 0])
    row(r, 'loss', total=6)
    r = op('cross-entropy --z-loss 0.5', {'logits': ([2, 4], [1] * 8), 'tokens': ([2], [0, 1], 'I64')})
    close(r.y, [math.log(4) + (math.log(4) + 1)**2 / 2, 0])


# ---- gradients ----

@case
def gradients():
    """--grad: gradients of what was given, at sites of their names"""
    r = op('linear --grad', {'x': ([2, 2], [1, 2, 3, 4]), 'weight': ([1, 2], [5, 6]), 'bias': ([1], [0]), 'dy': ([2, 1], [1, 10])})
    equal(r.tensors['d_x'][1], [5, 6, 50, 60])
    equal(r.tensors['d_weight'][1], [31, 42])
    equal(r.tensors['d_bias'][1], [11])
    assert [r.tensors[f'd_{k}'][0] for k in ('x', 'weight', 'bias')] == [[2, 2], [1, 2], [1]]
    row(r, 'x', 'bwd', total=4)
    row(r, 'weight', 'wgrad', total=2)
    r = op('linear --grad --dtype fp16', {'x': ([1, 1], [256]), 'weight': ([1, 1], [256]), 'dy': ([1, 1], [256])})
    row(r, 'ffn_out', overflow=1)
    row(r, 'x', 'bwd', overflow=1)
    row(r, 'weight', 'wgrad', overflow=1)
    r = op('linear --grad --dtype fp16', {'x': ([1, 1], [1]), 'weight': ([1, 1], [1]), 'dy': ([1, 1], [inf])})
    row(r, 'x', 'bwd', propagated=1)
    row(r, 'weight', 'wgrad', propagated=1)


@case
def derivatives():
    """--grad of every operation against central differences in fp64"""
    def wave(n, k):
        return [math.sin(1 + 1.7 * i + k) for i in range(n)]
    tokens = ([2, 3], [1, 0, 2, 2, 1, 0], 'I64')
    shapes = {'linear': {'x': [2, 3, 4], 'weight': [5, 4], 'bias': [5]}, 'norm --norm layer --group 3': {'x': [2, 3, 6], 'gain': [6], 'bias': [6]},
              'rope --head-dim 2': {'x': [2, 3, 4]}, 'attention --heads 2 --kv-heads 1': {'q': [2, 3, 4], 'k': [2, 3, 2], 'v': [2, 3, 2]},
              'attention --score-scale after --window 2': {'q': [2, 3, 4], 'k': [2, 3, 4], 'v': [2, 3, 4]},
              'attention --pb-relax=3': {'q': [2, 3, 4], 'k': [2, 3, 4], 'v': [2, 3, 4]},
              'relax --ln-relax 3': {'x': [2, 3]}, 'softcap --softcap 2': {'x': [2, 3]},
              'gelu': {'x': [2, 3]}, 'relu': {'x': [2, 3]}, 'silu': {'x': [2, 3]}, 'mul': {'a': [2, 3], 'b': [2, 3]}, 'add': {'a': [2, 3], 'b': [2, 3]},
              'gain': {'x': [2, 4], 'gain': [2]}, 'cast': {'x': [2, 3]}, 'embed --embed-scale 3': {'tokens': tokens, 'weight': [3, 2]},
              'route --experts-active 3 --route-scale 2': {'logits': [2, 3, 5], 'bias': [5]},
              'cross-entropy': {'logits': [2, 3, 4], 'tokens': tokens},
              'cross-entropy --z-loss 0.3': {'logits': [2, 3, 4], 'tokens': tokens}}
    listed = [line.split()[0] for line in start('list', 'ops').stdout.splitlines()]
    assert sorted(listed) == sorted({words.split()[0] for words in shapes}), listed
    for words, given in shapes.items():
        tensors = {name: (s, wave(math.prod(s), k)) if isinstance(s, list) else s for k, (name, s) in enumerate(given.items())}
        first = op(f'{words} --dtype fp64', tensors, 'F64')
        dy = wave(len(first.y), 9)
        r = op(f'{words} --dtype fp64 --grad', {**tensors, 'dy': (first.shape, dy)}, 'F64')
        equal(r.y, first.y)
        for name in [name for name, s in given.items() if isinstance(s, list)]:
            shape, at = tensors[name]
            h, along, sums = 1e-5, wave(len(at), 4), []
            for sign in 1, -1:
                moved = {**tensors, name: (shape, [a + sign * h * d for a, d in zip(at, along)])}
                c = max(map(abs, moved[name][1])) / max(map(abs, at)) if words.startswith('relax') else 1  # held constant
                sums.append(c * sum(a * b for a, b in zip(op(f'{words} --dtype fp64', moved, 'F64').y, dy)))
            numeric = (sums[0] - sums[1]) / (2 * h)
            assert r.tensors[f'd_{name}'][0] == shape
            derived = sum(a * b for a, b in zip(r.tensors[f'd_{name}'][1], along))
            assert abs(numeric - derived) <= 1e-8 * max(1, abs(derived)), f'{words}, {name}: {derived}, not {numeric}'


# ---- refusals ----

def refused(status, words, said, tensors=None, path='a.safetensors'):
    if tensors is not None:
        write('a.safetensors', tensors)
    p = start('op', *words.split(), '--in', path, '--out', 'no.safetensors')
    assert p.returncode == status, f'{words}: exit code {p.returncode}, not {status}: {p.stderr}'
    assert p.stderr.count('\n') == 1 and p.stdout == '', f'{words}: {p.stdout}{p.stderr}'
    for word in said if isinstance(said, tuple) else (said,):
        assert word in p.stderr, f'{words}: no {word!r} in {p.stderr}'
    assert not os.path.exists('no.safetensors')


@case
def usage():
    """wrong words: exit code 2"""
    for words, said in (('', 'list ops'), ('norm', 'needs its tensors: --in'), ('norm --out b', 'needs its tensors: --in'), ('norm --in a --force', '--force has no effect'), ('--eps 1', 'name of an operation')):
        p = start('op', *words.split())
        assert p.returncode == 2 and said in p.stderr, p.stderr
    x = {'x': ([1, 6], [1] * 6)}
    for words, said in (('norn', ('norn', 'did you mean norm?', 'list ops')), ('norm --epz 1', 'did you mean --eps?'),
                        ('linear --eps 1', "linear has no option '--eps'"), ('norm --eps 1 --eps 1', 'twice'), ('norm --eps', 'needs a value'),
                        ('norm --eps x', '0..1'), ('norm x', "'x'"), ('norm --group 4', '--group 4'), ('rope --head-dim 3', '--head-dim'),
                        ('norm --dtype fp17', 'fp17'), ('norm --in=b', 'twice'), ('norm -', "'-'"), ('norm --policy nope', 'policy')):
        refused(2, words, said, x)
    qkv = {name: ([1, 6], [1] * 6) for name in 'qkv'}
    refused(2, 'attention --heads 4', '--heads 4', qkv)
    refused(2, 'attention --heads 3 --kv-heads 2', '--kv-heads 2', qkv)


@case
def gradients_in():
    """dy is rounded once, from the numbers of the file"""
    tie = 1 + 2.0 ** -11 + 2.0 ** -40  # a float would hold the tie itself, which goes to the even 1
    for words, want in (('cast --dtype fp16 --grad', 1 + 2.0 ** -10), ('cast --dtype bf16 --grad', 1.0), ('cast --dtype fp32 --grad', 1 + 2.0 ** -11)):
        r = op(words, {'x': ([1, 1], [1]), 'dy': ([1, 1], [tie])}, 'F64')
        assert r.tensors['d_x'][1] == [want], r.tensors['d_x']


@case
def counters_alone():
    """without --out: the same counters, and no file"""
    x, dy = ([1, 2], [3, 70000]), ([1, 2], [1, 1])
    for words, tensors in (('cast --dtype fp16', {'x': x}), ('norm --dtype fp16 --grad', {'x': x, 'dy': dy})):
        write('a.safetensors', tensors)
        before = set(os.listdir())
        p = start('op', *words.split(), '--in', 'a.safetensors')
        assert p.returncode == 0 and p.stdout.startswith('op,site,direction,overflow'), p.stderr
        assert set(os.listdir()) == before, os.listdir()
        q = start('op', *words.split(), '--in', 'a.safetensors', '--out', 'with.safetensors')
        assert p.stdout == q.stdout and os.path.exists('with.safetensors'), q.stderr
        os.remove('with.safetensors')


@case
def tensors():
    """tensors that do not fit: exit code 1, with file and tensor"""
    one = ([1, 2], [1, 2])
    for words, given, said in (
            ('linear', {'x': one}, ("'weight' is missing", 'x,weight,[bias]')), ('norm', {'x': one, 'wieght': one}, "'wieght'"),
            ('norm', {'x': one, 'dy': one}, "'dy'"), ('norm --grad', {'x': one}, "'dy' is missing"),
            ('norm --grad', {'x': one, 'dy': ([2], [1, 2])}, ("'dy'", '[2]', '[1, 2]')),
            ('linear', {'x': one, 'weight': ([1, 3], [1, 2, 3])}, ("'weight'", '[1, 3]', 'must be 2')),
            ('linear', {'x': one, 'weight': ([2], [1, 2])}, ("'weight'", '[2]', '[rows, cols]')),
            ('linear', {'x': one, 'weight': one, 'bias': ([2], [1, 2])}, ("'bias'", 'must be 1')),
            ('norm', {'x': one, 'gain': ([3], [1, 2, 3])}, ("'gain'", 'must be 2')),
            ('norm', {'x': one, 'gain': ([2], [1, 2]), 'bias': ([1], [1])}, "'bias'"),
            ('norm', {'x': ([1, 1, 1, 2], [1, 2])}, '[B, T, cols]'), ('norm', {'x': ([], [1])}, '[B, T, cols]'),
            ('norm', {'x': ([0, 2], [])}, '[0, 2]'), ('norm', {'x': ([2, 0], [])}, '[2, 0]'),
            ('add', {'a': one, 'b': ([2, 1], [1, 2])}, ("'b'", "as in 'a'")), ('mul', {'a': one, 'b': ([1, 1], [1])}, "'b'"),
            ('attention', {'q': one, 'k': one, 'v': ([1, 1], [1])}, "'v'"), ('gain', {'x': one, 'gain': ([3], [1, 1, 1])}, "'gain'"),
            ('embed', {'tokens': ([1], [2], 'I64'), 'weight': one}, ("'tokens'", '0..0')),
            ('embed', {'tokens': ([1], [-1], 'I64'), 'weight': one}, "'tokens'"), ('embed', {'tokens': ([1], [.5]), 'weight': one}, "'tokens'"),
            ('embed', {'tokens': ([1], [nan]), 'weight': one}, "'tokens'"), ('embed', {'tokens': ([1], [2**40], 'I64'), 'weight': one}, "'tokens'"),
            ('cross-entropy', {'logits': one, 'tokens': ([2], [0, 1], 'I64')}, "'tokens'")):
        refused(1, words, ("'a.safetensors'", *(said if isinstance(said, tuple) else (said,))), given)
    n = 1 << 20  # x and weight are small, y would take 4 TiB
    refused(1, 'linear', 'GiB', {'x': ([n, 1], bytes(4 * n)), 'weight': ([n, 1], bytes(4 * n))})


@case
def files():
    """broken files: exit code 1, with the file"""
    for name, said in (('bad_hdrlen_max', '18446744073709551615'), ('bad_hdrlen_past_eof', 'header of'), ('bad_short_7bytes', '7 bytes'),
                       ('bad_offset_past_eof', "'t'"), ('bad_shape_vs_offsets', "'t'")):
        refused(1, 'cast', (name, said), path=f'{data}/st/{name}.safetensors')
    refused(1, 'cast', 'No such file', path='nowhere.safetensors')
    for path in '/dev/null', '/':
        refused(1, 'cast', 'not a regular file', path=path)
    write('a.safetensors', {'x': ([1], [1])})
    p = start('op', 'cast', '--in', 'a.safetensors', '--out', 'nowhere/b.safetensors')
    assert p.returncode == 1 and 'nowhere' in p.stderr and p.stdout == '', p.stderr


print(f'1..{done}')
sys.exit(bad > 0)
EOF
