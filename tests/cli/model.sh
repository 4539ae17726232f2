#!/usr/bin/env bash
# model.sh PROGRAM: folders of checkpoints: known values, shards, dtypes, keys of config.json, refusals; export and back, of what
# is trained too.
set -euo pipefail
program=$(realpath -- "$1")
if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP python3 is not there to write checkpoints'
    exit 0
fi
here=$(dirname -- "$(realpath -- "$0")")
PYTHONDONTWRITEBYTECODE=1 exec python3 - "$program" "$here" "${NH_TEST_DATA:-$here/../data}" <<'EOF'
import csv, json, math, os, shutil, struct, subprocess, sys, time

program, here, data = sys.argv[1:]
sys.path.append(here)
from decoder import Decoder
done, bad = 0, 0


def read(path):
    """name -> [dtype, shape, bytes]"""
    raw = open(path, 'rb').read()
    n = struct.unpack('<Q', raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    header.pop('__metadata__', None)
    return {k: [t['dtype'], t['shape'], raw[8 + n + t['data_offsets'][0]:8 + n + t['data_offsets'][1]]] for k, t in header.items()}


def write(path, tensors):
    header, body = {}, b''
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + body)


def floats(raw):
    return list(struct.unpack(f'<{len(raw) // 4}f', raw))


def folder(name, config, tensors):
    os.makedirs(name, exist_ok=True)
    with open(name + '/config.json', 'w') as f:
        json.dump(config, f)
    write(name + '/model.safetensors', tensors)
    return name


def golden(name):
    f = f'{data}/golden/{name}-tiny'
    return json.load(open(f + '/config.json')), read(f + '/model.safetensors'), f'tokens:{f}/tokens.txt'


def start(*words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=100)


def run(*words):
    p = start(*words)
    assert p.returncode == 0, f'{words}: {p.stderr}'
    return p


def refused(status, pattern, *words):
    p = start(*words)
    assert p.returncode == status, f'exit code {p.returncode}: {p.stderr} {p.stdout}'
    assert p.stderr.count('\n') == 1 and pattern in p.stderr, f"no '{pattern}' in: {p.stderr}"
    assert not p.stdout, p.stdout


def rows(path):
    return list(csv.DictReader(open(path)))


def option(out, name):
    return next(r['value'] for r in rows(out + '/config.csv') if r['option'] == name)


def check(test):
    global done, bad
    done += 1
    try:
        test()
        print(f'ok {done} - {test.__name__}')
    except Exception as e:
        bad += 1
        print(f'not ok {done} - {test.__name__}: {type(e).__name__} {str(e)[:600]}'.replace('\n', ' '))


llama_config, llama, llama_tokens = golden('llama')
open('eight.txt', 'w').write('0 1 2 3 4 5 6 7\n')


def dump(name, tokens=llama_tokens, *more):
    out = f'{name}.dump'
    run('--model', name, '--data', tokens, '--dtype', 'fp64', '--probes', 'none', '--dump', out, '--out', name + '.out', '--force', *more)
    return read(out)


# ---- values ----

def tiny_models_have_the_known_values():
    # tests/data/st: an independent program in fp64
    for name, config, rms, nll in (
            ('tiny_pre_f32', 'untied', (1.072865715, 1.204394602, 1.430147036, 1.547409406, 1.556818849), 2.353107140),
            ('tiny_pre_tied_nohead', 'tied', (1.072865715, 1.204394602, 1.430147036, 1.547409406, 1.556818849), 7.406460067),
            ('tiny_pre_f32', 'tied', (1.072865715, 1.204394602, 1.430147036, 1.547409406, 1.556818849), 7.406460067),
            ('tiny_sandwich_f32', 'untied', (1.072865715, 1.229006914, 1.466543552, 1.632278610, 1.793817121), 2.484296633)):
        f = folder(f'{name}-{config}', json.load(open(f'{data}/st/config_{config}.json')), read(f'{data}/st/{name}.safetensors'))
        p = run('--model', f, '--data', 'tokens:eight.txt', '--dtype', 'fp64', '--probes', 'rms', '--out', f + '.out')
        got = [float(r['rms']) for r in rows(f + '.out/layers.csv')][:5]
        loss = json.load(open(f + '.out/run.json'))['loss']
        assert all(abs(a - b) < 2e-9 for a, b in zip(got, rms)), got
        assert abs(loss - nll) < 2e-9, loss
        assert ('lm_head.weight is left unread' in p.stderr) == (config == 'tied' and 'nohead' not in name), p.stderr
        assert f'\nmodel     {f} (llama' in p.stdout, p.stdout
        assert option(f + '.out', 'model') == f and rows(f + '.out/layers.csv')[0]['init'] == 'checkpoint'


def gains_of_the_other_form_are_told():
    t = read(f'{data}/st/tiny_sandwich_f32.safetensors')
    for name in t:
        if 'norm' in name:
            t[name][2] = struct.pack('<8f', *[x - 1 for x in floats(t[name][2])])
    f = folder('zero', json.load(open(f'{data}/st/config_untied.json')), t)
    p = run('--model', f, '--data', 'tokens:eight.txt', '--probes', 'rms', '--out', 'zero1')
    assert 'the mean gain of all norms' in p.stderr and '--gain-form 1+w' in p.stderr, p.stderr
    assert abs(json.load(open('zero1/run.json'))['loss'] - math.log(8)) < 1e-6
    p = run('--model', f, '--data', 'tokens:eight.txt', '--probes', 'rms', '--gain-form', '1+w', '--out', 'zero2')
    assert not p.stderr, p.stderr
    assert abs(json.load(open('zero2/run.json'))['loss'] - 2.484296633) < 1e-6


def constant(shape, x):
    return ['F32', shape, struct.pack('<f', x) * math.prod(shape)]


def rows_that_add_up_leave_fp16_at_the_last_add():
    # every branch adds a row of 1024 to a stream that starts at 0: 63 adds give 64512, 64 give 65536
    for depth, overflows in ((31, 0), (32, 64)):
        t = {'word_embeddings.weight': constant([8, 8], 0), 'transformer.position_embeddings.weight': constant([8, 8], 0),
             'transformer.final_layernorm.weight': constant([8], 1), 'transformer.final_layernorm.bias': constant([8], 0)}
        for at in [f'transformer.layers.{i}.' for i in range(depth)]:
            for name, gain, bias in (('input', 1, 0), ('post_attention', 1, 0), ('third', 0, 1024), ('fourth', 0, 1024)):
                t[f'{at}{name}_layernorm.weight'], t[f'{at}{name}_layernorm.bias'] = constant([8], gain), constant([8], bias)
            for name, n, m in (('attention.query_key_value', 24, 8), ('attention.dense', 8, 8), ('mlp.dense_h_to_4h', 32, 8),
                               ('mlp.dense_4h_to_h', 8, 32)):
                t[f'{at}{name}.weight'], t[f'{at}{name}.bias'] = constant([n, m], 0.1), constant([n], 0)
        f = folder(f'rows{depth}', {'model_type': 'cogview', 'num_layers': depth, 'hidden_size': 8, 'num_attention_heads': 2,
                                    'vocab_size': 8, 'max_sequence_length': 8}, t)
        for dtype, n in (('fp16', overflows), ('bf16', 0)):
            run('--model', f, '--ln-relax=off', '--data', 'tokens:eight.txt', '--dtype', dtype, '--probes', 'rms,overflow', '--out', 'add', '--force')
            first = json.load(open('add/run.json'))['first_forward']
            assert sum(int(r['overflow']) for r in rows('add/layers.csv')) == n
            assert (first and (first['layer'], first['sublayer'], first['site'], first['value'])) == (n and (32, 'ffn', 'residual', 65536) or None)


def the_factor_of_the_embedding_is_rounded():
    d = 3072  # sqrt is 55.42562584
    at = 'model.layers.0.'
    t = {'model.embed_tokens.weight': constant([8, d], 1), 'model.norm.weight': constant([d], 1),
         at + 'input_layernorm.weight': constant([d], 1), at + 'post_attention_layernorm.weight': constant([d], 1),
         at + 'self_attn.o_proj.weight': constant([d, 2], 0.01), at + 'mlp.down_proj.weight': constant([d, 2], 0.01)}
    for name in ('self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj', 'mlp.gate_proj', 'mlp.up_proj'):
        t[f'{at}{name}.weight'] = constant([2, d], 0.01)
    f = folder('factor', {'vocab_size': 8, 'hidden_size': d, 'intermediate_size': 2, 'num_hidden_layers': 1, 'num_attention_heads': 1,
                          'head_dim': 2}, t)
    for dtype, want in (('bf16', 55.5), ('fp16', 55.4375), ('fp32', 55.42562484741211)):
        run('--model', f, '--embed-scale', 'sqrt', '--data', 'tokens:eight.txt', '--dtype', dtype, '--probes', 'rms', '--out', 'scaled', '--force')
        assert abs(float(rows('scaled/layers.csv')[0]['rms']) - want) < 1e-6


def shards_are_one_checkpoint():
    f = folder('whole', llama_config, llama)
    os.makedirs('shards', exist_ok=True)
    shutil.copy(f + '/config.json', 'shards')
    names, index = sorted(llama), {}
    for i in range(3):
        part = {n: llama[n] for n in names[i::3]}
        write(f'shards/model-{i}.safetensors', part)
        index.update({n: f'model-{i}.safetensors' for n in part})
    json.dump({'metadata': {}, 'weight_map': index}, open('shards/model.safetensors.index.json', 'w'))
    assert dump('shards') == dump(f)


def the_index_decides():
    names = sorted(llama)
    half = names[::2]
    def case(index, wanted=None, **files):
        shutil.rmtree('indexed', ignore_errors=True)
        folder('indexed', llama_config, llama)
        os.remove('indexed/model.safetensors')
        for name, tensors in files.items():
            write(f'indexed/{name}.safetensors', tensors)
        if index is not None:
            json.dump({'weight_map': index}, open('indexed/model.safetensors.index.json', 'w'))
        if wanted:
            refused(1, wanted, '--model', 'indexed', '--data', llama_tokens, '--out', 'never')
        else:
            assert dump('indexed') == dump(folder('whole', llama_config, llama))

    split = {n: 'a.safetensors' if n in half else 'b.safetensors' for n in names}
    other = {n: [d, s, bytes(len(r))] for n, (d, s, r) in llama.items()}
    mine = {n: t for n, t in llama.items() if n in half}
    # copies that the index does not name, in its files and in others
    case(split, a=llama, b={**llama, half[0]: other[half[0]]}, consolidated=other, model=other)
    case(split, a={**mine, 'extra': ['I32', [1], bytes(4)]}, b=llama)
    case({n: f for n, f in split.items() if n != names[3]}, f"the tensor '{names[3]}' is missing", a=llama, b=llama, model=llama)
    case({**split, names[1]: 'a.safetensors'}, f"the tensor '{names[1]}' is not in a.safetensors, where the index has it", a=mine, b=llama)
    case({**split, 'model.layers.0.mlp.extra': 'a.safetensors'}, "'model.layers.0.mlp.extra' is no part",
         a={**llama, 'model.layers.0.mlp.extra': ['F32', [1], bytes(4)]}, b=llama)
    # no index: the single file, else all shards
    case(None, model=llama, **{'model-00001-of-00001': other})
    shards = {f'model-0000{i + 1}-of-00003': {n: llama[n] for n in names[i::3]} for i in range(3)}
    case(None, **shards, consolidated=other)


def the_prefix_is_that_of_the_embedding():
    gpt2, gpt2_tensors, gpt2_tokens = golden('gpt2')
    tied = {**llama_config, 'tie_word_embeddings': True}
    untied = [n for n in llama if n != 'lm_head.weight']
    bare = lambda n: n.removeprefix('model.').removeprefix('transformer.')
    for prefix in ('', 'model.language_model.', 'language_model.model.', 'module.model.', '_orig_mod.transformer.'):
        for head in ('', 'language_model.', 'module.', '_orig_mod.', prefix):
            if not prefix.startswith(head):
                continue
            named = {prefix + bare(n): llama[n] for n in untied} | {head + 'lm_head.weight': llama['lm_head.weight']}
            got = dump(folder('prefix', llama_config, named))
            want = dump(folder('whole', llama_config, llama))
            assert {bare(n.replace(prefix, '', 1) if n.startswith('grad.' + prefix) else n) for n in got if 'lm_head' not in n} == \
                   {bare(n).replace('grad.model.', 'grad.') for n in want if 'lm_head' not in n}
            assert got['nll'] == want['nll'] and got[f'grad.{head}lm_head.weight'] == want['grad.lm_head.weight']
        assert dump(folder('prefix', tied, {prefix + bare(n): llama[n] for n in untied}))['nll'] == \
               dump(folder('whole-tied', tied, {n: llama[n] for n in untied}))['nll']
        assert dump(folder('prefix', gpt2, {prefix + bare(n): t for n, t in gpt2_tensors.items()}), gpt2_tokens)['nll'] == \
               dump(folder('gpt2', gpt2, gpt2_tensors), gpt2_tokens)['nll']
        # without a model_type, told by the tensors
        untyped = {k: v for k, v in tied.items() if k != 'model_type'}
        run('--model', folder('prefix', untyped, {prefix + bare(n): llama[n] for n in untied}), '--data', llama_tokens, '--dry-run')
    both = llama | {'draft.' + n: t for n, t in llama.items()}
    refused(1, 'holds two models', '--model', folder('two', llama_config, both), '--data', llama_tokens)
    # an embedding of some other part is none of a model
    dump(folder('two', llama_config, llama))
    refused(1, "'audio.embed_tokens.weight' is no part", '--model',
            folder('two', llama_config, llama | {'audio.embed_tokens.weight': ['F32', [1], bytes(4)]}), '--data', llama_tokens)


def every_dtype_is_read():
    half = {n: [d, s, struct.pack(f'<{len(r) // 4}e', *floats(r))] for n, (d, s, r) in llama.items()}
    exact = {n: ['F32', s, struct.pack(f'<{len(r) // 2}f', *struct.unpack(f'<{len(r) // 2}e', r))] for n, (d, s, r) in half.items()}
    wide = {n: ['F64', s, struct.pack(f'<{len(r) // 4}d', *floats(r))] for n, (d, s, r) in exact.items()}
    cut = {n: ['BF16', s, b''.join(r[i + 2:i + 4] for i in range(0, len(r), 4))] for n, (d, s, r) in llama.items()}
    filled = {n: ['F32', s, b''.join(b'\0\0' + r[i:i + 2] for i in range(0, len(r), 2))] for n, (d, s, r) in cut.items()}
    want = dump(folder('f32', llama_config, exact))
    assert dump(folder('f16', llama_config, {n: ['F16', s, r] for n, (d, s, r) in half.items()})) == want
    assert dump(folder('f64', llama_config, wide)) == want
    assert dump(folder('bf16', llama_config, cut)) == dump(folder('bf16-f32', llama_config, filled)) != want


def weights_that_come_and_go_are_the_same():
    run('--model', folder('whole', llama_config, llama), '--data', llama_tokens, '--probes', 'rms,overflow', '--out', 'come')
    run('--model', 'whole', '--data', llama_tokens, '--probes', 'rms,overflow', '--dump', 'stay.dump', '--out', 'stay')
    for name in ('layers.csv', 'sites.csv'):
        come, stay = ([r for r in rows(f'{d}/{name}') if r.get('direction', 'fwd') == 'fwd'] for d in ('come', 'stay'))
        for r in come + stay:
            r.pop('overflow_bwd', None)
        assert len(come) > 0 and come == stay, name


def a_checkpoint_is_part_of_the_name():
    other = {n: list(t) for n, t in llama.items()}
    other['model.norm.weight'][2] = struct.pack('<32f', *[2.0] * 32)
    ids = []
    for tensors in (llama, other):
        folder('same', llama_config, tensors)
        run('--model', 'same', '--data', llama_tokens, '--probes', 'none', '--out', 'named', '--force')
        ids.append(rows('named/config.csv')[0]['run'])
    assert ids[0] != ids[1]


def training_goes_on_from_a_checkpoint():
    folder('whole', llama_config, llama)
    run('--model', 'whole', '--data', llama_tokens, '--probes', 'rms', '--out', 'trained', '--steps', 3, '--lr', 0.01)
    losses = [float(r['loss']) for r in rows('trained/steps.csv')]
    assert losses[2] < losses[0], losses


def doubles_are_rounded_once():
    """The table holds what a rounding to float on the way would change; every path reads it."""
    table = [65520 - 2.0 ** -20, 1 + 2.0 ** -11 + 2.0 ** -30, 1e-60, -(1 + 3 * 2.0 ** -11 - 2.0 ** -30)]
    once = [65504.0, 1 + 2.0 ** -10, 0.0, -(1 + 2.0 ** -10)]
    def doubles(x):
        return struct.pack(f'<{len(x)}d', *x)
    gpt2, tensors, _ = golden('gpt2')
    ids = 'tokens:eight.txt'
    for name, config, base in (('llama', llama_config, llama), ('gpt2', gpt2, tensors)):
        t = {n: ['F64', s, doubles([table[i % 4] for i in range(math.prod(s))])] for n, (d, s, r) in base.items()}
        f = folder(name + '-doubles', config, t)
        n = sum(math.prod(s) for d, s, r in t.values())
        for words in ((), ('--dump', 'd'), ('--roles', 'master=dtype'), ('--roles', 'master=fp32'), ('--steps', 1)):
            run('--model', f, '--data', ids, '--dtype', 'fp16', '--probes', 'rms,overflow', '--out', 'doubles', '--force', *words)
            weights = [r for r in rows('doubles/sites.csv') if r['site'] == 'weight' and r['direction'] == 'fwd']
            count = lambda c: sum(int(r[c]) for r in weights)
            assert count('overflow') == 0 and count('propagated') == 0 and max(float(r['max_abs']) for r in weights) == 65504, words
            assert count('total') > n / 2 and abs(count('underflow') * 4 - count('total')) <= 4 * len(weights), (words, count('underflow'))
            embed = next(r for r in rows('doubles/sites.csv') if r['site'] == 'embed')
            assert name == 'gpt2' or embed['overflow'] == '0'  # gpt2 adds positions to it
        # what is exported is as wide
        run('export', f + '.again', '--model', f, '--data', ids, '--dtype', 'fp16')
        again = read(f + '.again/model.safetensors')
        for n, (d, s, raw) in again.items():  # of learned positions those of the sequence
            assert d == 'F64' and raw and t[n][2].startswith(raw), n
    # values: rows of the table go into the stream as they are stored
    for dtype, want in (('fp16', once), ('fp32', [65520.0, 1 + 2.0 ** -11, 0.0, -(1 + 3 * 2.0 ** -11)]), ('fp64', table)):
        run('--model', 'llama-doubles', '--data', ids, '--dtype', dtype, '--probes', 'none', '--dump', 'd', '--out', 'doubles', '--force')
        kind, shape, raw = read('d')['hidden.0']
        got = struct.unpack(f'<{math.prod(shape)}{"d" if kind == "F64" else "f"}', raw)
        assert got == tuple(want[i % 4] for i in range(len(got))), (dtype, got[:4])


def tied_checkpoints_run_under_every_policy():
    """The head of a tied model is the table, cast to the format of weights: as a head of its own with the same numbers."""
    policies = [line.split()[0] for line in run('list', 'policies').stdout.splitlines() if line and line[0] != ' ']
    assert len(policies) >= 8 and 'amp-o1' in policies, policies
    gpt2, tensors, _ = golden('gpt2')
    gpt2 = {**gpt2, 'tie_word_embeddings': True}
    tensors = {n: t for n, t in tensors.items() if 'lm_head' not in n}
    table = next(t for n, t in tensors.items() if n.endswith('wte.weight'))
    big = floats(table[2])
    big[7] = 70000.0
    tensors[next(n for n in tensors if n.endswith('wte.weight'))] = [table[0], table[1], struct.pack(f'<{len(big)}f', *big)]
    tied = folder('tied', gpt2, tensors)
    own = folder('own', {**gpt2, 'tie_word_embeddings': False},
                 {**tensors, 'lm_head.weight': [table[0], table[1], struct.pack(f'<{len(big)}f', *big)]})
    open('eight4.txt', 'w').write('1 2 3 4 5 6 7 1\n')
    for policy in policies:
        got = []
        for f in (tied, own):
            common = ('--model', f, '--data', 'tokens:eight4.txt', '--dtype', 'bf16' if 'bf16' in policy else 'fp16', '--policy', policy, '--force')
            run(*common, '--probes', 'rms,overflow', '--out', f + '.out')
            run(*common, '--probes', 'rms,overflow', '--dump', f + '.dump', '--out', f + '.whole')
            run(*common, '--probes', 'none', '--steps', 2, '--lr', 1e-3, '--out', f + '.trained')
            logits = [r for r in rows(f + '.out/sites.csv') if r['site'] in ('logits', 'weight') and r['sublayer'] == 'final' and r['direction'] == 'fwd']
            got.append((read(f + '.dump')['nll'], read(f + '.dump')['logits'], [r['overflow'] for r in logits if r['site'] == 'logits']))
            for other in (f + '.whole',):
                assert [r['overflow'] for r in rows(other + '/sites.csv') if r['direction'] == 'fwd'] == \
                       [r['overflow'] for r in rows(f + '.out/sites.csv') if r['direction'] == 'fwd'], policy
        assert got[0] == got[1], policy


# ---- config.json ----

sizes = {'vocab_size': 16, 'hidden_size': 8, 'intermediate_size': 12, 'num_hidden_layers': 6, 'num_attention_heads': 2,
         'num_key_value_heads': 1, 'head_dim': 4}
state = 1


def tensors_of(config, shapes):
    global state
    out = {}
    for name, shape in shapes.items():
        for layer in range(config['num_hidden_layers']) if '%d' in name else [0]:
            n, x = math.prod(shape), []
            for _ in range(n):
                state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
                x.append((state >> 40) / (1 << 24) - 0.5 + ('norm' in name))
            out[name % layer if '%d' in name else name] = ['F32', shape, struct.pack(f'<{n}f', *x)]
    return out


shapes = {'model.embed_tokens.weight': [16, 8], 'model.norm.weight': [8],
          'model.layers.%d.self_attn.q_proj.weight': [8, 8], 'model.layers.%d.self_attn.k_proj.weight': [4, 8],
          'model.layers.%d.self_attn.v_proj.weight': [4, 8], 'model.layers.%d.self_attn.o_proj.weight': [8, 8],
          'model.layers.%d.mlp.gate_proj.weight': [12, 8], 'model.layers.%d.mlp.up_proj.weight': [12, 8],
          'model.layers.%d.mlp.down_proj.weight': [8, 12], 'model.layers.%d.input_layernorm.weight': [8],
          'model.layers.%d.post_attention_layernorm.weight': [8]}
head = {'lm_head.weight': [16, 8]}
qk = {'model.layers.%d.self_attn.q_norm.weight': [4], 'model.layers.%d.self_attn.k_norm.weight': [4]}
gemma = {'model.layers.%d.pre_feedforward_layernorm.weight': [8], 'model.layers.%d.post_feedforward_layernorm.weight': [8]}
biases = {'model.layers.%d.self_attn.q_proj.bias': [8], 'model.layers.%d.self_attn.k_proj.bias': [4],
          'model.layers.%d.self_attn.v_proj.bias': [4]}
afmoe = {'model.layers.%d.self_attn.gate_proj.weight': [8, 8], 'model.layers.%d.pre_mlp_layernorm.weight': [8],
         'model.layers.%d.post_mlp_layernorm.weight': [8]}
lines = [[3, 7, 1, 15, 7, 7, 0, 9, 12, 4, 3, 7], [5, 5, 2, 14, 11, 3, 7, 1, 15, 6, 8, 10]]
open('lines.txt', 'w').write('\n'.join(' '.join(map(str, line)) for line in lines) + '\n')
short = ('--data', 'tokens:lines.txt')


def experts_of(layers, n, shared):
    """names of the tensors of layers with n experts of width 4"""
    out = {}
    for at in [f'model.layers.{i}.mlp.' for i in layers]:
        out.update({at + 'router.gate.weight': [n, 8], at + 'expert_bias': [n]})
        for who, m in [(f'experts.{e}.', 4) for e in range(n)] + ([('shared_experts.', 4 * shared)] if shared else []):
            out.update({at + who + 'gate_proj.weight': [m, 8], at + who + 'up_proj.weight': [m, 8], at + who + 'down_proj.weight': [8, m]})
    return out


def dense_of(layers):
    mlp = {n: s for n, s in shapes.items() if '.mlp.' in n}
    return {n % i: s for i in layers for n, s in mlp.items()}


def keys_become_options_and_the_function_is_theirs():
    cases = [
        ({'model_type': 'llama'}, {**shapes, **head},
         {'layout': 'pre', 'pattern': '', 'theta': '10000', 'tie': 'off', 'eps': '1e-06', 'ffn': 'swiglu', 'ffn-mult': '1.5',
          'bias': 'off', 'norm-cast': 'before-gain', 'score-scale': 'after', 'vocab': '16', 'head-dim': '4', 'kv-heads': '1'}),
        ({'model_type': 'llama', 'rope_parameters': {'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 8.0,
                                                      'low_freq_factor': 1.0, 'high_freq_factor': 4.0,
                                                      'original_max_position_embeddings': 8192}}, shapes,
         {'theta': '500000', 'rope-scaling': 'llama3:8,1,4,8192', 'tie': 'on'}),
        ({'model_type': 'llama', 'rope_scaling': {'type': 'linear', 'factor': 2.0}, 'attention_bias': True},
         {**shapes, **head, **biases, 'model.layers.%d.self_attn.o_proj.bias': [8]}, {'rope-scaling': 'linear:2', 'bias': 'attn'}),
        ({'model_type': 'qwen2', 'rope_theta': 1e6, 'sliding_window': 4, 'use_sliding_window': False}, {**shapes, **head, **biases},
         {'bias': 'qkv', 'window': 'all', 'pattern': '', 'theta': '1000000'}),
        ({'model_type': 'qwen2', 'sliding_window': 4, 'use_sliding_window': True, 'max_window_layers': 2}, {**shapes, **head, **biases},
         {'window': '4', 'pattern': 'ggllll'}),
        # the flag stands above the list; what the key leaves out is the class's
        ({'model_type': 'qwen2', 'sliding_window': 4, 'use_sliding_window': False, 'layer_types': ['sliding_attention'] * 6},
         {**shapes, **head, **biases}, {'window': 'all', 'pattern': ''}),
        ({'model_type': 'qwen3', 'sliding_window': 4, 'layer_types': ['sliding_attention'] * 6}, {**shapes, **head, **qk},
         {'window': 'all', 'pattern': ''}),
        ({'model_type': 'qwen2', 'sliding_window': None, 'use_sliding_window': True, 'max_window_layers': 0, 'layer_types': ['sliding_attention'] * 6},
         {**shapes, **head, **biases}, {'window': 'all', 'pattern': ''}),
        ({'model_type': 'qwen2', 'use_sliding_window': True, 'max_window_layers': 3}, {**shapes, **head, **biases},
         {'window': '4096', 'pattern': 'ggglll'}),
        ({'model_type': 'qwen3', 'use_sliding_window': True, 'layer_types': ['full_attention', 'sliding_attention'] * 3},
         {**shapes, **head, **qk}, {'window': '4096', 'pattern': 'gl'}),
        ({'model_type': 'qwen3', 'use_sliding_window': True, 'sliding_window': 4, 'layer_types': ['full_attention', 'sliding_attention'] * 3},
         {**shapes, **head, **qk}, {'window': '4', 'pattern': 'gl'}),
        ({'model_type': 'gemma2', 'layer_types': ['full_attention'] * 6}, {**shapes, **gemma}, {'window': 'all', 'pattern': ''}),
        ({'model_type': 'gemma2', 'sliding_window': None}, {**shapes, **gemma}, {'window': 'all', 'pattern': 'lg'}),
        ({'model_type': 'gemma2'}, {**shapes, **gemma}, {'window': '4096', 'pattern': 'lg'}),
        ({'model_type': 'gemma3_text'}, {**shapes, **qk, **gemma}, {'window': '4096', 'pattern': 'lllllg'}),
        ({'model_type': 'llama', 'sliding_window': 4}, {**shapes, **head}, {'window': 'all', 'pattern': ''}),
        ({'model_type': 'qwen3', 'tie_word_embeddings': True}, {**shapes, **qk}, {'qk-norm': 'on', 'bias': 'off', 'tie': 'on'}),
        ({'model_type': 'gemma3_text', 'rope_local_base_freq': 10000.0, 'rope_theta': 1e6, 'sliding_window': 4,
          'query_pre_attn_scalar': 4, 'rope_scaling': {'rope_type': 'linear', 'factor': 8.0}}, {**shapes, **qk, **gemma},
         {'layout': 'sandwich', 'pattern': 'lllllg', 'window': '4', 'theta': '1000000', 'theta-local': '10000', 'gain-form': '1+w',
          'rope-scaling': 'linear:8', 'tie': 'on', 'ffn': 'geglu', 'softcap': 'off', 'query-scalar': '4', 'qk-norm': 'on'}),
        ({'model_type': 'gemma3_text', 'sliding_window': 4, 'layer_types': ['sliding_attention', 'full_attention'] * 3,
          'rope_parameters': {'full_attention': {'rope_type': 'default', 'rope_theta': 5e5},
                              'sliding_attention': {'rope_type': 'default', 'rope_theta': 7000.0}}}, {**shapes, **qk, **gemma},
         {'pattern': 'lg', 'theta': '500000', 'theta-local': '7000', 'rope-scaling': 'none'}),
        ({'model_type': 'gemma2', 'sliding_window': 4, 'attn_logit_softcapping': None}, {**shapes, **gemma},
         {'pattern': 'lg', 'window': '4', 'score-softcap': 'off', 'softcap': '30', 'query-scalar': '256'}),
        ({'model_type': 'gemma2', 'sliding_window': 3, 'query_pre_attn_scalar': 3, 'final_logit_softcapping': 2.0,
          'attn_logit_softcapping': 1.0}, {**shapes, **gemma},
         {'pattern': 'lg', 'window': '3', 'score-softcap': '1', 'softcap': '2', 'query-scalar': '3'}),
        ({'model_type': 'afmoe', 'global_attn_every_n_layers': 3, 'sliding_window': 5, 'num_dense_layers': 2, 'num_experts': 5,
          'num_experts_per_tok': 2, 'num_shared_experts': 2, 'moe_intermediate_size': 4, 'route_scale': 2.5, 'mup_enabled': True,
          'score_func': 'sigmoid', 'route_norm': True, 'n_group': 1, 'topk_group': 1},
         {**{n: s for n, s in shapes.items() if '.mlp.' not in n}, **head, **qk, **afmoe, **dense_of(range(2)),
          **experts_of(range(2, 6), 5, 2)},
         {'layout': 'sandwich-depth', 'pos': 'interleaved', 'pattern': 'llg', 'window': '5', 'experts': '5', 'experts-active': '2',
          'experts-shared': '2', 'expert-mult': '0.5', 'dense-layers': '2', 'route-scale': '2.5', 'attn-gate': 'on', 'qk-norm': 'on'}),
        ({'model_type': 'afmoe', 'global_attn_every_n_layers': 4, 'sliding_window': 5, 'num_dense_layers': 0, 'num_experts': 3,
          'num_experts_per_tok': 1, 'num_shared_experts': 0, 'moe_intermediate_size': 4, 'route_scale': 1.0, 'mup_enabled': False},
         {**{n: s for n, s in shapes.items() if '.mlp.' not in n}, **head, **qk, **afmoe, **experts_of(range(6), 3, 0)},
         {'experts': '3', 'experts-shared': '0', 'dense-layers': '0', 'embed-scale': '1', 'pattern': 'lllg'}),
        ({'model_type': 'afmoe', 'num_dense_layers': 6}, {**shapes, **head, **qk, **afmoe}, {'window': '1024', 'pattern': 'lllg'}),
        ({'model_type': 'afmoe', 'num_dense_layers': 6, 'sliding_window': None}, {**shapes, **head, **qk, **afmoe},
         {'window': 'all', 'pattern': 'lllg'}),
    ]
    for i, (keys, wanted, options) in enumerate(cases):
        config = {**sizes, **keys}
        f = folder(f'keys{i}', config, tensors_of(config, wanted))
        p = run('--model', f, *short, '--dtype', 'fp64', '--probes', 'rms', '--dump', f + '.dump', '--out', f + '.out')
        got = {o: option(f + '.out', o) for o in options}
        assert got == options, f'{keys}: {got}'
        plain = Decoder(config, {n: (s, floats(r)) for n, (d, s, r) in read(f + '/model.safetensors').items()})
        want = [x for line in lines for x in plain.loss(line)]
        nll = struct.unpack(f'<{len(want)}d', read(f + '.dump')['nll'][2])
        assert max(abs(a - b) for a, b in zip(nll, want)) < 1e-11, f'{keys}: {nll} {want}'


def stacked_experts_are_the_same():
    """Newer files hold all experts of a matrix in one tensor of three dimensions."""
    config = {**sizes, 'model_type': 'afmoe', 'num_dense_layers': 4, 'num_experts': 3, 'num_experts_per_tok': 2, 'num_shared_experts': 1,
              'moe_intermediate_size': 4, 'sliding_window': 5}
    t = tensors_of(config, {**{n: s for n, s in shapes.items() if '.mlp.' not in n}, **head, **qk, **afmoe, **dense_of(range(4)),
                            **experts_of(range(4, 6), 3, 1)})
    want = dump(folder('apart', config, t), short[1])
    def stack(x, grad=''):
        out = {n: v for n, v in x.items() if '.mlp.experts.' not in n}
        for at in [f'{grad}model.layers.{i}.mlp.experts.' for i in (4, 5)]:
            one = lambda e, who: x[f'{at}{e}.{who}_proj.weight']
            kind = one(0, 'up')[0]
            out[at + 'gate_up_proj'] = [kind, [3, 8, 8], b''.join(one(e, w)[2] for e in range(3) for w in ('gate', 'up'))]
            out[at + 'down_proj'] = [kind, [3, 8, 4], b''.join(one(e, 'down')[2] for e in range(3))]
        return out
    got = dump(folder('stacked', config, stack(t)), short[1])
    assert got == stack(want, 'grad.')
    # In F64 a number just above a tie of the format rounds up; by way of a float it would be the tie, which goes to the even one.
    wide = {n: ['F64', s, struct.pack(f'<{math.prod(s)}d', *[1 + 2.0 ** -11 + 2.0 ** -40] * math.prod(s))] for n, (d, s, r) in stack(t).items()}
    once = {n: ['F64', s, struct.pack(f'<{math.prod(s)}d', *[1 + 2.0 ** -10] * math.prod(s))] for n, (d, s, r) in wide.items()}
    for name, x in (('wide', wide), ('once', once)):
        run('--model', folder(name, config, x), *short, '--dtype', 'fp16', '--probes', 'none', '--dump', name + '.dump', '--out', name + '.out')
    assert read('wide.dump') == read('once.dump')
    t = stack(t)
    t['model.layers.5.mlp.experts.down_proj'][1] = [3, 4, 8]
    refused(1, 'shape [3, 4, 8], but config.json makes it [3, 8, 4]', '--model', folder('turned', config, t), *short, '--out', 'never')


def nested_gemma_is_read():
    config = {**sizes, 'model_type': 'gemma3_text', 'sliding_window': 4}
    t = tensors_of(config, {**shapes, **qk, **gemma})
    want = dump(folder('flat', config, t), short[1])
    for i, body in enumerate(('language_model.model.', 'model.language_model.')):
        named = {n.replace('model.', body, 1): x for n, x in t.items()}
        named['vision_tower.patch.weight'] = ['F32', [1], bytes(4)]
        got = dump(folder(f'nested{i}', {'model_type': 'gemma3', 'text_config': config}, named), short[1])
        assert {n.replace(body, 'model.', 1): x for n, x in got.items()} == want
    # with images, and with the keys alone that the published 4B has
    sparse = {k: config[k] for k in ('hidden_size', 'intermediate_size', 'num_hidden_layers', 'sliding_window', 'head_dim')}
    sparse['model_type'] = 'gemma3_text'
    at = 'model.layers.%d.self_attn.'
    t = tensors_of(config, {**shapes, **qk, **gemma, at + 'q_proj.weight': [32, 8], at + 'k_proj.weight': [16, 8],
                            at + 'v_proj.weight': [16, 8], at + 'o_proj.weight': [8, 32]})
    t['model.embed_tokens.weight'] = ['BF16', [262208, 8], bytes(2 * 8 * 262208)]
    t = {n.replace('model.', 'language_model.model.', 1): x for n, x in t.items()}
    t['vision_tower.vision_model.head.weight'] = t['multi_modal_projector.mm_input_projection_weight'] = ['BF16', [2], bytes(4)]
    f = folder('images', {'model_type': 'gemma3', 'text_config': sparse, 'vision_config': {}}, t)
    p = run('--model', f, *short, '--probes', 'rms', '--out', f + '.out')
    assert not p.stderr, p.stderr
    assert (option(f + '.out', 'heads'), option(f + '.out', 'kv-heads'), option(f + '.out', 'vocab')) == ('8', '4', '262208')
    p = run('--model', f, '--data', 'text:lines.txt', '--seq', 8, '--probes', 'rms', '--out', f + '.text')
    assert '--data text gives bytes as ids, not the tokens that this checkpoint knows' in p.stderr, p.stderr
    refused(1, "'language_model.model.extra' is no part", '--model',
            folder('more', {'model_type': 'gemma3', 'text_config': sparse}, {**t, 'language_model.model.extra': ['F32', [1], bytes(4)]}), *short)


def keys_outside_text_config():
    """The tie of the head is the whole model's; any other key that stands in both places is the same in both."""
    config = {**sizes, 'model_type': 'gemma3_text', 'sliding_window': 4, 'rope_theta': 1e6, 'layer_types': ['sliding_attention'] * 6,
              'rope_scaling': {'rope_type': 'linear', 'factor': 2.0}}
    t = tensors_of(config, {**shapes, **qk, **gemma, **head})
    def losses(outer, **inner):
        text = {**config, **inner}
        f = folder('outer', {'model_type': 'gemma3', 'text_config': text, **outer}, t)
        p = run('--model', f, *short, '--dtype', 'fp64', '--probes', 'none', '--out', 'outer.out', '--force')
        got = json.load(open('outer.out/run.json'))['loss']
        return got, option('outer.out', 'tie')
    off, on = losses({}, tie_word_embeddings=False), losses({}, tie_word_embeddings=True)
    assert off[0] != on[0] and (off[1], on[1]) == ('off', 'on')
    assert losses({'tie_word_embeddings': False}) == losses({'tie_word_embeddings': False}, tie_word_embeddings=None) == off
    assert losses({'tie_word_embeddings': False}, tie_word_embeddings=False) == off
    assert losses({'tie_word_embeddings': True}) == losses({}) == on
    assert losses({'rope_theta': 1000000, 'hidden_size': 8.0, 'rope_scaling': {'factor': 2, 'rope_type': 'linear'}, 'torch_dtype': 'float16',
                   'layer_types': ['sliding_attention'] * 6}, tie_word_embeddings=False) == off
    def different(pattern, outer, **inner):
        f = folder('outer', {'model_type': 'gemma3', 'text_config': {**config, **inner}, **outer}, t)
        refused(1, pattern, '--model', f, *short, '--out', 'never')
    for outer in (False, True):
        different('tie_word_embeddings is one thing in text_config and another outside it; keep the right one',
                  {'tie_word_embeddings': outer}, tie_word_embeddings=not outer)
    for key, value in (('rope_theta', 1e5), ('hidden_size', 16), ('sliding_window', 5), ('layer_types', ['full_attention'] * 6),
                       ('rope_scaling', {'rope_type': 'linear', 'factor': 4.0}), ('num_hidden_layers', 5), ('head_dim', 8)):
        different(f'{key} is one thing in text_config and another', {key: value})
    different('rms_norm_eps stands outside text_config alone; write it into text_config', {'rms_norm_eps': 1e-5})


# ---- refusals ----

def changed_config(pattern, **keys):
    base = {k: v for k, v in llama_config.items() if not (k in keys and keys[k] is KeyError)}
    base.update({k: v for k, v in keys.items() if v is not KeyError})
    refused(1, pattern, '--model', folder('config', base, llama), '--data', llama_tokens, '--out', 'never')


def what_config_says_is_refused():
    changed_config("the model_type 'mamba' is not known here; these are: llama", model_type='mamba')
    changed_config("num_hidden_layers is missing", num_hidden_layers=KeyError)
    changed_config("hidden_size must be a whole number", hidden_size='32')
    changed_config("hidden_act 'gelu' is not among", hidden_act='gelu')
    changed_config("rope_type 'yarn' of rope_scaling", rope_scaling={'rope_type': 'yarn', 'factor': 4.0})
    changed_config("rope_scaling of type linear needs factor", rope_scaling={'rope_type': 'linear'})
    changed_config("partial_rotary_factor", partial_rotary_factor=0.5)
    changed_config("tie_word_embeddings must be true or false", tie_word_embeddings='yes')
    changed_config("has sliding_window and no model_type", model_type=KeyError, sliding_window=4)
    changed_config("quantization_config", quantization_config={'bits': 4})
    changed_config("quantization_config", text_config={**llama_config, 'quantization_config': {'bits': 4}})
    changed_config("its text_config is of the model_type 'gemma2'", text_config={**llama_config, 'model_type': 'gemma2'})
    changed_config("rope_theta of rope_parameters are not the same", rope_parameters={'rope_theta': 20000.0})
    changed_config("rope_parameters must be an object or null", rope_parameters=[])
    run('--model', folder('config', {**llama_config, 'quantization_config': None}, llama), '--data', llama_tokens, '--dry-run')
    changed_config("'config/config.json' is no model of the program's, as options: --depth '5000'", num_hidden_layers=5000)
    changed_config("--kv-heads 3 does not divide --heads 4", num_key_value_heads=3)
    changed_config("the tensor 'model.layers.4.input_layernorm.weight' is missing", num_hidden_layers=5)
    changed_config("model.layers.3.input_layernorm.weight' is no part of the model", num_hidden_layers=3)
    changed_config("has the shape [128, 32], but config.json makes it [127, 32]", vocab_size=127)
    changed_config("self_attn.q_proj.bias' is missing", attention_bias=True)


def changed_tensors(pattern, change):
    t = {n: list(x) for n, x in llama.items()}
    change(t)
    refused(1, pattern, '--model', folder('tensors', llama_config, t), '--data', llama_tokens, '--out', 'never')


def what_tensors_say_is_refused():
    name = 'model.layers.1.mlp.up_proj.weight'
    changed_tensors(f"'{name}' is missing", lambda t: t.pop(name))
    changed_tensors(f"'{name}' has the shape [32, 48]", lambda t: t[name].__setitem__(1, [32, 48]))
    changed_tensors(f"'{name}' has the shape [1536]", lambda t: t[name].__setitem__(1, [1536]))
    changed_tensors(f"'{name}' holds whole numbers", lambda t: t[name].__setitem__(0, 'I32'))
    changed_tensors("'model.layers.1.mlp.extra' is no part", lambda t: t.update({'model.layers.1.mlp.extra': ['F32', [1], bytes(4)]}))
    changed_tensors("'lm_head.weight' is missing", lambda t: t.pop('lm_head.weight'))
    changed_tensors("no tensor 'model.embed_tokens.weight'", lambda t: t.pop('model.embed_tokens.weight'))


def weights_that_are_not_finite_are_told():
    for bits, word in ((0x7fc00000, 'nan'), (0x7f800000, 'inf')):
        t = {n: list(x) for n, x in llama.items()}
        raw = t['model.layers.1.self_attn.q_proj.weight'][2]
        t['model.layers.1.self_attn.q_proj.weight'][2] = raw[:8] + struct.pack('<I', bits) + raw[12:]
        out = f'broken-{word}.out'
        p = run('--model', folder('broken-' + word, llama_config, t), '--data', llama_tokens, '--dtype', 'fp16', '--out', out)
        assert 'weights   1 are inf or nan by themselves, the first in layer 2\n' in p.stdout, p.stdout
        assert 'sites hold nothing but nan' in p.stdout and 'status    diverged' in p.stdout, p.stdout
        assert (' none\n' in p.stdout) == (word == 'inf'), p.stdout
        run('report', out)


def buffers_are_left():
    t = {**llama, 'model.layers.0.self_attn.rotary_emb.inv_freq': ['F32', [4], bytes(16)]}
    assert dump(folder('buffers', llama_config, t)) == dump(folder('whole', llama_config, llama))


def broken_folders_are_refused():
    def case(pattern, **files):
        shutil.rmtree('broken', ignore_errors=True)
        os.makedirs('broken')
        for name, content in files.items():
            with open('broken/' + name.replace('__', '.'), 'wb') as f:
                f.write(content)
        refused(1, pattern, '--model', 'broken', '--data', llama_tokens, '--out', 'never')

    config = json.dumps(llama_config).encode()
    index = 'model__safetensors__index__json'
    whole = open(folder('whole', llama_config, llama) + '/model.safetensors', 'rb').read()
    refused(1, "cannot open 'nowhere/config.json'", '--model', 'nowhere', '--out', 'never')
    case('is no JSON object', config__json=b'{"a": 1} x')
    case('is no JSON object', config__json=b'[]')
    shutil.rmtree('broken')
    os.makedirs('broken/config.json')
    refused(1, "'broken/config.json' is a folder, not a regular file", '--model', 'broken', '--out', 'never')
    case('has neither model.safetensors, model', config__json=config)
    case('too few for a safetensors file', config__json=config, model__safetensors=b'\0' * 7)
    case('get the whole file', config__json=config, model__safetensors=whole[:-4])
    case('has no weight_map', config__json=config, **{index: b'{}'})
    for name in ('../whole/model.safetensors', '/etc/passwd', '..', ''):
        case('must be a plain name', config__json=config, **{index: json.dumps({'weight_map': {'a': name}}).encode()})
    case('cannot open', config__json=config, **{index: json.dumps({'weight_map': {'a': 'gone.safetensors'}}).encode()})
    case("'a' is not in b.safetensors", config__json=config, b__safetensors=whole,
         **{index: json.dumps({'weight_map': {'a': 'b.safetensors'}}).encode()})
    shards = {f'model-0000{i}-of-00002__safetensors': whole for i in (1, 2)}
    case('is in two files', config__json=config, **shards)
    case("cannot open 'broken/model-00002-of-00003.safetensors'", config__json=config, **{'model-00003-of-00003__safetensors': whole,
                                                                                     'model-00001-of-00003__safetensors': whole})
    case('has shards of', config__json=config, **{'model-00001-of-00001__safetensors': whole}, **shards)
    for wrong in ('model-00002-of-00001', 'model-1-of-2x', 'consolidated', 'model-00000-of-00001'):
        case('has neither model.safetensors, model', config__json=config, **{wrong + '__safetensors': whole})
    pointer = b'version https://git-lfs.github.com/spec/v1\noid sha256:4665ce\nsize 135\n'
    for file in ('config__json', 'model__safetensors', index):
        case('is a Git LFS pointer, not the file itself', **{'config__json': config, 'model__safetensors': whole, file: pointer})
    case('is a web page', config__json=b'<!DOCTYPE html>', model__safetensors=whole)


def options_of_the_user():
    folder('whole', llama_config, llama)
    for words in ('--depth 4', '--layout pre', '--vocab 200', '--qk-norm', '--set a=1', '--tie', '--window 5'):
        refused(2, f'{words.split()[0]} is what the checkpoint says; leave it out', '--model', 'whole', *words.split())
    for words in ('--init gpt2', '--branch-init 1', '--embed-rms 1', '--qk-init 0', '--post-gain 2'):
        refused(2, f'{words.split()[0]} has no effect with --model', '--model', 'whole', *words.split())
    refused(2, 'leave one out', '--model', 'whole', '--arch', 'llama')
    refused(2, '--dump shows one batch before any training', '--steps', 2, '--dump', 'd')
    refused(2, '--dump has the gradients of the loss', '--cotangent', 'random', '--dump', 'd')
    open('large.txt', 'w').write('1 2 128\n')
    refused(1, 'id 128 is outside the vocabulary of 128', '--model', 'whole', '--data', 'tokens:large.txt', '--out', 'never')
    for words in ('--score-scale before', '--pb-relax --score-scale before', '--ln-relax', '--norm-cast after-gain', '--dtype fp16'):
        run('--model', 'whole', '--data', llama_tokens, '--probes', 'none', '--out', 'taken', '--force', *words.split())
    config, tensors, _ = golden('gpt2')
    refused(2, 'longer than the 24 positions', '--model', folder('gpt2', config, tensors), '--data', 'zipf', '--seq', 25, '--out', 'never')


# ---- export ----

def same_numbers(a, b):
    for name in ('layers.csv', 'sites.csv'):
        x, y = rows(f'{a}/{name}'), rows(f'{b}/{name}')
        for r in x + y:
            for k in ('run', 'init', 'rms_theory'):
                r.pop(k, None)
        assert x == y, name


def round_trip(name, *words, again=()):
    size = ('--data', 'zipf', '--vocab', 24, '--seq', 10, '--batch', 2)
    for dtype in ('fp64', 'fp16'):
        f = f'{name}-{dtype}'
        p = run('export', f, *words, *size, '--dtype', dtype, '--seed', 5)
        assert bool(p.stderr) == bool(again) and all(w in p.stderr for w in again), p.stderr
        common = ('--dtype', dtype, '--seed', 5, '--probes', 'rms,grad,overflow')
        run(*words, *size, *common, '--out', f + '.a', '--dump', f + '.a.dump')
        run('--model', f, *size[:2], *size[4:], *common, '--out', f + '.b', '--dump', f + '.b.dump', *again)
        same_numbers(f + '.a', f + '.b')
        a, b = read(f + '.a.dump'), read(f + '.b.dump')
        if '--arch' in words:
            assert open(f + '.a.dump', 'rb').read() == open(f + '.b.dump', 'rb').read()
        else:  # a model without an architecture has our own names of parameters
            assert {n: t for n, t in a.items() if 'grad.' not in n} == {n: t for n, t in b.items() if 'grad.' not in n}


def export_and_back():
    for name in ('llama', 'llama-sandwich', 'qwen2', 'qwen3', 'gpt2', 'gemma2', 'gemma3', 'cogview'):
        round_trip(name, '--arch', name, '--depth', 7, '--width', 16, '--heads', 2)
    round_trip('olmo2', '--arch', 'olmo2', '--depth', 2, '--width', 16, again=('--z-loss', '1e-05'))
    round_trip('windows', '--arch', 'gemma2', '--depth', 4, '--width', 16, '--window', 4, '--pattern', 'llg', '--head-dim', 6,
               '--kv-heads', 2, '--query-scalar', 5, '--softcap', 4)
    round_trip('dense', '--arch', 'trinity', '--depth', 3, '--width', 16, '--experts', 'none', '--window', 4)
    round_trip('experts', '--arch', 'trinity', '--depth', 4, '--width', 16, '--experts', 8, '--experts-active', 2, '--window', 4)
    round_trip('plain', '--ffn', 'swiglu', '--depth', 2, '--width', 16, '--rope-scaling', 'linear:2',
               again=('--score-scale', 'before', '--norm-cast', 'after-gain'))


def what_no_checkpoint_can_say():
    size = ('--data', 'zipf', '--vocab', 24, '--seq', 10, '--batch', 2, '--depth', 2, '--width', 16)
    refused(2, 'no checkpoint can say --ffn gelu; the nearest is llama', 'export', 'no', *size)
    refused(2, 'no checkpoint of gpt2 can say --qk-norm on', 'export', 'no', '--arch', 'gpt2', '--qk-norm', *size)
    refused(2, '--layout post', 'export', 'no', '--ffn', 'swiglu', '--layout', 'post', *size)
    for words in ('--dump d', '--out o', '--dry-run', '--probes rms'):
        refused(2, f'{words.split()[0]} has no effect on export', 'export', 'no', '--arch', 'gpt2', *words.split(), *size)
    refused(2, 'leave out --steps', 'export', 'no', '--arch', 'gpt2', '--steps', 2, *size)
    refused(2, 'export takes a folder', 'export')
    assert not os.path.exists('no')
    run('export', 'yes', '--arch', 'llama', *size)
    refused(2, "'yes/config.json' is there already", 'export', 'yes', '--arch', 'llama', *size)
    open('yes/model.safetensors.index.json', 'w').write('{"weight_map": {}}')
    run('export', 'yes', '--arch', 'llama', '--force', *size)
    assert sorted(os.listdir('yes')) == ['config.json', 'model.safetensors']


tiny = ('--width', 16, '--heads', 2, '--data', 'uniform', '--vocab', 32, '--seq', 8, '--batch', 2)
trains = ('--depth', 2, *tiny, '--steps', 5, '--checkpoint-every', 5, '--lr', 0.01, '--probes', 'none')


def same_as_checkpoint(exported, folder):
    """Tensors stand in the order of the parameters that they are rows of."""
    masters = {n: t for n, t in read(folder + '/checkpoint.safetensors').items() if not n.endswith(('.m', '.v', '.changed'))}
    mine = read(exported + '/model.safetensors')
    assert {t[0] for t in mine.values()} == {t[0] for t in masters.values()} and len(mine) > len(masters)
    assert b''.join(t[2] for t in mine.values()) == b''.join(t[2] for t in masters.values())


def what_a_run_has_trained():
    for name, arch, dtype in (('first', 'llama', 'fp32'), ('half', 'llama', 'fp16'), ('wide', 'qwen3', 'fp64')):
        run(*trains, '--arch', arch, '--dtype', dtype, '--out', name)
        assert run('export', name + '.hf', '--run', name).stdout.startswith(f'{name}.hf: {arch}, ')
        same_as_checkpoint(name + '.hf', name)
        run('--model', name + '.hf', '--data', 'uniform', '--seq', 8, '--dtype', dtype, '--out', name + '.probed')
    run('export', 'start.hf', *trains[:-8], '--arch', 'llama')
    assert read('start.hf/model.safetensors').keys() == read('first.hf/model.safetensors').keys()
    assert read('start.hf/model.safetensors') != read('first.hf/model.safetensors')


def what_a_run_has_trained_needs_no_data():
    shutil.copy('eight.txt', 'gone.txt')
    folder('whole', llama_config, llama)
    run('--model', 'whole', '--data', 'tokens:gone.txt', '--steps', 3, '--checkpoint-every', 3, '--out', 'further')
    run('--ffn', 'swiglu', '--layout', 'sandwich-depth', '--norm-cast', 'before-gain', '--score-scale', 'after', '--depth', 2, '--width', 16,
        '--data', 'tokens:gone.txt', '--steps', 3, '--checkpoint-every', 3, '--label', 'a, "b"', '--out', 'unnamed')
    os.remove('gone.txt')
    for name in ('further', 'unnamed'):
        run('export', name + '.hf', '--run=' + name)
        same_as_checkpoint(name + '.hf', name)


def what_a_killed_run_has_trained():
    p = subprocess.Popen([program, '--arch', 'llama', '--depth', '2', *map(str, tiny), '--steps', '1000000', '--checkpoint-every', '1',
                          '--probes', 'none', '--out', 'killed'], stdout=subprocess.DEVNULL)
    while not os.path.exists('killed/config.csv') and p.poll() is None:
        time.sleep(0.01)
    p.kill()
    p.wait()
    assert not os.path.exists('killed/run.json')
    run('export', 'killed.hf', '--run', 'killed')
    same_as_checkpoint('killed.hf', 'killed')


def broken_runs_are_refused():
    def changed(old, new, file='config.csv'):
        shutil.rmtree('changed', ignore_errors=True)
        shutil.copytree('first', 'changed')
        text = open('first/' + file, 'rb').read()
        assert text.count(old) == 1, old
        open('changed/' + file, 'wb').write(text.replace(old, new))

    run(*trains, '--arch', 'llama', '--dtype', 'fp32', '--out', 'first')
    whole = (b'run,option', b'run,option')
    for old, new, why in ((b',depth,2\n', b',depth,2,3\n', 'config.csv'), (b'run,option', b'run,opinion', "no column 'option'"),
                          (b',depth,2\n', b',depht,2\n', "'--depht'; did you mean --depth"), (b',depth,2\n', b',depth,none\n', "--depth 'none' must be"),
                          (b',heads,2\n', b',heads,3\n', '--heads 3 does not divide --width 16'), (b',eps,1e-05\n', b',eps,0.00001\n', "'eps' is not there as"),
                          (b',pos,rope\n', b',pos,rope\nx,set.x,1\n', 'the layout pre has no knobs'), (b',vocab,32\n', b',vocab,auto\n', 'numbers for'),
                          (b',model,\n', b',model,whole\n', '--arch makes a random model'), (b',depth,2\n', b',depth,3\n', 'layers.3')):
        changed(old, new)
        refused(1, why, 'export', 'never', '--run', 'changed')
    lines = open('first/config.csv').read().splitlines(True)
    for part, why in ((lines[:1], "'arch' is not there as"), (lines[:-2], 'is not there as'), (lines[:2] + lines[3:], "'model' is not there as"),
                      (lines + ['x,seed,0\n'], "'seed' is not there as")):
        open('changed/config.csv', 'w').write(''.join(part))
        refused(1, why, 'export', 'never', '--run', 'changed')
    os.remove('changed/config.csv')
    refused(1, "cannot open 'changed/config.csv'", 'export', 'never', '--run', 'changed')
    changed(*whole)
    raw = bytearray(open('first/checkpoint.safetensors', 'rb').read())
    raw[-1000] ^= 1
    for content, why in ((raw, 'is not what was written'), (raw[:-1], 'checkpoint.safetensors'), (b'', 'checkpoint.safetensors')):
        open('changed/checkpoint.safetensors', 'wb').write(content)
        refused(1, why, 'export', 'never', '--run', 'changed')
    run(*trains, '--arch', 'llama', '--dtype', 'fp32', '--seed', 1, '--out', 'second')
    shutil.copy('second/checkpoint.safetensors', 'changed')
    refused(1, "'run' of its metadata", 'export', 'never', '--run', 'changed')
    os.remove('changed/checkpoint.safetensors')
    refused(1, 'changed has no checkpoint.safetensors; train with --checkpoint-every N', 'export', 'never', '--run', 'changed')
    refused(1, 'nowhere has no checkpoint.safetensors', 'export', 'never', '--run', 'nowhere')
    refused(2, "leave out '--arch'", 'export', 'never', '--run', 'first', '--arch', 'llama')
    refused(2, "leave out '--threads=1'", 'export', 'never', '--threads=1', '--force', '--run', 'first')
    refused(2, '--run is given twice', 'export', 'never', '--run', 'first', '--run=first')
    refused(2, '--run needs a value: --run DIR', 'export', 'never', '--run', '--force')
    run(*trains, '--layout', 'post', '--out', 'post')
    refused(2, 'no checkpoint can say --layout post', 'export', 'never', '--run', 'post')
    run('export', 'again.hf', '--run', 'first')
    refused(2, "'again.hf/config.json' is there already", 'export', 'again.hf', '--run', 'first')
    run('export', 'again.hf', '--force', '--run', 'first')


for test in (tiny_models_have_the_known_values, gains_of_the_other_form_are_told, rows_that_add_up_leave_fp16_at_the_last_add,
             the_factor_of_the_embedding_is_rounded, shards_are_one_checkpoint, the_index_decides,
             the_prefix_is_that_of_the_embedding, every_dtype_is_read,
             weights_that_come_and_go_are_the_same, a_checkpoint_is_part_of_the_name, training_goes_on_from_a_checkpoint,
             doubles_are_rounded_once, tied_checkpoints_run_under_every_policy,
             keys_become_options_and_the_function_is_theirs, stacked_experts_are_the_same, nested_gemma_is_read, keys_outside_text_config,
             what_config_says_is_refused, what_tensors_say_is_refused, weights_that_are_not_finite_are_told, buffers_are_left,
             broken_folders_are_refused, options_of_the_user, export_and_back, what_no_checkpoint_can_say,
             what_a_run_has_trained, what_a_run_has_trained_needs_no_data, what_a_killed_run_has_trained, broken_runs_are_refused):
    check(test)
assert not os.path.exists('never')
print(f'1..{done}')
sys.exit(bad > 0)
EOF
