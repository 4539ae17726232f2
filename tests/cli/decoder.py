# SPDX-License-Identifier: GPL-3.0-or-later
"""A decoder in plain Python, from config.json and tensors to the mean loss, after huggingface/transformers v5 models/{llama, qwen2,
qwen3, gemma2, gemma3, olmo2, afmoe}, without a line of the program. Lists of rows; slow, for tiny models."""
import math


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu_tanh(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


class Decoder:
    def __init__(self, config, tensors):
        """tensors: name -> (shape, numbers)"""
        self.c, self.w, self.type = config, tensors, config['model_type']
        self.gemma = self.type.startswith('gemma')
        self.eps = config.get('rms_norm_eps', 1e-5 if self.type in ('afmoe', 'olmo2') else 1e-6)
        self.heads, self.kv = config['num_attention_heads'], config['num_key_value_heads']
        self.dh = config.get('head_dim') or config['hidden_size'] // self.heads

    def linear(self, name, x):
        (out, _), w = self.w[name + '.weight']
        b = self.w[name + '.bias'][1] if name + '.bias' in self.w else [0.0] * out
        n = len(x)
        return [math.fsum(w[i * n + j] * x[j] for j in range(n)) + b[i] for i in range(out)]

    def norm(self, name, x):
        g, r = self.w[name + '.weight'][1], 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + self.eps)
        return [v * r * (1 + a if self.gemma else a) for v, a in zip(x, g)]

    def rotated(self, layer):
        return self.type != 'afmoe' or self.local(layer)

    def local(self, layer):
        c = self.c
        if self.type not in ('gemma2', 'gemma3_text', 'afmoe') and not (self.type.startswith('qwen') and c.get('use_sliding_window')):
            return False
        if c.get('layer_types'):
            return c['layer_types'][layer] == 'sliding_attention'
        if self.type == 'gemma2':
            return layer % 2 == 0
        if self.type == 'gemma3_text':
            return (layer + 1) % c.get('sliding_window_pattern', 6) != 0
        if self.type == 'afmoe':
            return (layer + 1) % c.get('global_attn_every_n_layers', 4) != 0
        return layer >= c.get('max_window_layers', 28)

    def frequencies(self, layer):
        c, local = self.c, self.type == 'gemma3_text' and self.local(layer)
        both = c.get('rope_parameters') or {}
        own = both.get('sliding_attention' if local else 'full_attention', both)
        default = 1e6 if self.type == 'gemma3_text' and not local else 1e4
        theta = c.get('rope_local_base_freq' if local else 'rope_theta', own.get('rope_theta', default))
        f = [theta ** (-2 * j / self.dh) for j in range(self.dh // 2)]
        s = {} if local else c.get('rope_scaling') or own
        kind = s.get('rope_type', s.get('type', 'default'))
        if kind == 'linear':
            f = [v / s['factor'] for v in f]
        if kind == 'llama3':
            low = s['original_max_position_embeddings'] / s['low_freq_factor']
            high = s['original_max_position_embeddings'] / s['high_freq_factor']
            for j, v in enumerate(f):
                wave = 2 * math.pi / v
                if wave > low:
                    f[j] = v / s['factor']
                elif wave >= high:
                    mix = (s['original_max_position_embeddings'] / wave - s['low_freq_factor']) / \
                        (s['high_freq_factor'] - s['low_freq_factor'])
                    f[j] = (1 - mix) * v / s['factor'] + mix * v
        return f

    def attention(self, layer, rows):
        at, c, dh = f'model.layers.{layer}.self_attn.', self.c, self.dh
        half, freq = dh // 2, self.frequencies(layer)
        parts = []
        for name, heads in (('q', self.heads), ('k', self.kv), ('v', self.kv)):
            out = []
            for t, x in enumerate(rows):
                y = self.linear(f'{at}{name}_proj', x)
                norm = f'{at}{name}_norm'
                if self.type == 'olmo2' and name != 'v':
                    y = self.norm(norm, y)
                split = [y[h * dh:(h + 1) * dh] for h in range(heads)]
                if name != 'v':
                    if norm + '.weight' in self.w and self.type != 'olmo2':
                        split = [self.norm(norm, h) for h in split]
                    if self.rotated(layer):
                        split = [[h[j] * math.cos(t * freq[j]) - h[j + half] * math.sin(t * freq[j]) for j in range(half)] +
                                 [h[j + half] * math.cos(t * freq[j]) + h[j] * math.sin(t * freq[j]) for j in range(half)] for h in split]
                out.append(split)
            parts.append(out)
        q, k, v = parts
        scale = (c.get('query_pre_attn_scalar', 256) if self.gemma else dh) ** -0.5
        cap = c.get('attn_logit_softcapping', 50.0 if self.type == 'gemma2' else None)
        width = c.get('sliding_window', 1024 if self.type == 'afmoe' else 4096)
        window = width if self.local(layer) and width is not None else len(rows)
        result = []
        for t, x in enumerate(rows):
            heads = []
            for h in range(self.heads):
                g, first = h // (self.heads // self.kv), max(0, t - window + 1)
                s = [scale * math.fsum(a * b for a, b in zip(q[t][h], k[u][g])) for u in range(first, t + 1)]
                s = [cap * math.tanh(v_ / cap) for v_ in s] if cap else s
                p = [math.exp(v_ - max(s)) for v_ in s]
                heads += [math.fsum(p[u - first] * v[u][g][j] for u in range(first, t + 1)) / math.fsum(p) for j in range(dh)]
            if self.type == 'afmoe':
                heads = [a * sigmoid(b) for a, b in zip(heads, self.linear(at + 'gate_proj', x))]
            result.append(self.linear(at + 'o_proj', heads))
        return result

    def ffn(self, at, x):
        act = gelu_tanh if self.gemma else silu
        return self.linear(at + 'down_proj', [act(a) * b for a, b in zip(self.linear(at + 'gate_proj', x), self.linear(at + 'up_proj', x))])

    def mlp(self, layer, x):
        at, c = f'model.layers.{layer}.mlp.', self.c
        if self.type != 'afmoe' or layer < c['num_dense_layers']:
            return self.ffn(at, x)
        scores = [sigmoid(v) for v in self.linear(at + 'router.gate', x)]
        bias = self.w[at + 'expert_bias'][1]
        chosen = sorted(range(len(scores)), key=lambda e: -(scores[e] + bias[e]))[:c['num_experts_per_tok']]
        total = math.fsum(scores[e] for e in chosen) + 1e-20
        outs = [(scores[e] / total * c['route_scale'], self.ffn(f'{at}experts.{e}.', x)) for e in chosen]
        outs += [(1.0, self.ffn(at + 'shared_experts.', x))] if c['num_shared_experts'] else []
        return [math.fsum(w * y[i] for w, y in outs) for i in range(len(x))]

    def sublayer(self, layer, rows, branch, pre, post):
        at = f'model.layers.{layer}.'
        out = branch([self.norm(at + pre, x) for x in rows] if pre else rows)
        out = [self.norm(at + post, f) for f in out] if post else out
        return [[a + b for a, b in zip(x, f)] for x, f in zip(rows, out)]

    def loss(self, tokens):
        c, d = self.c, self.c['hidden_size']
        embed = self.w['model.embed_tokens.weight'][1]
        scaled = self.gemma or (self.type == 'afmoe' and c.get('mup_enabled'))
        rows = [[v * (math.sqrt(d) if scaled else 1) for v in embed[t * d:(t + 1) * d]] for t in tokens]
        names = {'olmo2': (None, 'post_attention_layernorm', None, 'post_feedforward_layernorm'),
                 'afmoe': ('input_layernorm', 'post_attention_layernorm', 'pre_mlp_layernorm', 'post_mlp_layernorm')}
        gemma = ('input_layernorm', 'post_attention_layernorm', 'pre_feedforward_layernorm', 'post_feedforward_layernorm')
        plain = ('input_layernorm', None, 'post_attention_layernorm', None)
        n = names.get(self.type, gemma if self.gemma else plain)
        for layer in range(c['num_hidden_layers']):
            rows = self.sublayer(layer, rows, lambda x, i=layer: self.attention(i, x), n[0], n[1])
            rows = self.sublayer(layer, rows, lambda x, i=layer: [self.mlp(i, r) for r in x], n[2], n[3])
        head = 'lm_head' if 'lm_head.weight' in self.w else 'model.embed_tokens'
        cap, nll = c.get('final_logit_softcapping', 30.0 if self.type == 'gemma2' else None), []
        for x, target in zip(rows, tokens[1:]):
            logits = self.linear(head, self.norm('model.norm', x))
            logits = [cap * math.tanh(v / cap) for v in logits] if cap else logits
            top = max(logits)
            nll.append(top + math.log(math.fsum(math.exp(v - top) for v in logits)) - logits[target])
        return nll
