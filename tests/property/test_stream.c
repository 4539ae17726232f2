// SPDX-License-Identifier: GPL-3.0-or-later
/** A pass whose weights and values come and go gives the bits of one over a model that is there as a whole. */
#include "tests/property/model_config.h"
#include "tests/suite.h"

#include <check.h>

static const char *const models[] = {
    "--depth 3 --width 24 --heads 4 --kv-heads 2 --vocab 20011 --dtype fp16",
    "--depth 2 --width 24 --heads 4 --layout sandwich --tie --vocab 8193 --dtype fp16 --softcap 5 --score-softcap 2 --gain-form 1+w",
    "--depth 2 --width 24 --heads 2 --layout post --tie --pos learned --bias --norm layer --dtype bf16 --vocab 8192",
    "--depth 5 --width 24 --heads 4 --layout sandwich-depth --pos interleaved --window 3 --attn-gate --qk-norm --ffn swiglu --dtype fp16",
    ("--depth 3 --width 24 --heads 4 --layout sandwich-depth --ffn swiglu --dtype bf16 --vocab 8500 --experts 7 --experts-active 3 "
     "--experts-shared 1 --dense-layers 1 --threads 2"),
    "--depth 2 --width 24 --heads 4 --layout residual --dtype fp8-e4m3 --embed-rms 300 --vocab 9000 --z-loss 0.01",
    "--depth 3 --width 24 --heads 4 --layout reordered --qk-norm=width --dtype fp64 --head-dim 10 --vocab 16384",
    "--depth 2 --width 24 --heads 4 --layout parallel --dtype fp16 --policy amp-o1 --vocab 10000 --threads 2",
    /* products in parts */
    "--depth 1 --width 512 --heads 4 --layout sandwich --dtype fp16 --ffn-mult 19 --seq 5 --batch 1 --bias --embed-rms 1000",
    "--depth 1 --width 512 --branches ffn --dtype fp16 --ffn swiglu --ffn-mult 9 --seq 130 --batch 2 --embed-rms 9000",
    "--depth 6 --width 24 --heads 4 --layout no-norm --dtype e4m3 --embed-rms 40 --vocab 8500",
    /* logits that overflow in several blocks of the vocabulary; weights that do not fit their masters */
    "--depth 1 --width 24 --heads 4 --layout sandwich --tie --dtype fp16 --roles embedding=fp32,weight=fp32 --embed-rms 9000 --vocab 20011",
    /* a tied head that is a cast of the table, with numbers that the cast loses */
    "--depth 2 --width 24 --heads 4 --tie --dtype fp16 --policy amp-o1 --embed-rms 30000 --vocab 20011",
    "--depth 2 --width 24 --heads 4 --dtype fp16 --roles master=fp8-e4m3 --embed-rms 200 --vocab 8500",
    "--depth 2 --width 24 --heads 4 --dtype bf16 --roles master=fp16 --embed-rms 40000 --vocab 8500",
};

/** The numbers of a model's weights before they are rounded. */
struct kept {
    double **numbers;
    const struct nh_graph *g;
};

static void read_kept(void *arg, const struct nh_param *param, size_t first, size_t n, int bits, void *out)
{
    const struct kept *k = arg;
    int p = 0;
    while (strcmp(k->g->params[p].name, param->name) != 0)
        p++;
    for (size_t i = 0; i < n; i++) {
        double w = k->numbers[p][first + i];
        if (bits == 64)
            ((double *)out)[i] = w;
        else
            ((float *)out)[i] = (float)w;
    }
}

static bool always(void *arg, const struct nh_param *param)
{
    (void)arg, (void)param;
    return true;
}

/** What is seen of the streams behind each step. */
struct seen {
    struct nh_model *m;
    struct nh_moments moments[64][2 * NH_STREAMS + 1];
    int n;
};

static void look(void *arg, int step)
{
    struct seen *s = arg;
    const struct nh_step *t = &s->m->graph->steps[step];
    ck_assert_int_eq(step, s->n++);
    for (int i = 0; i <= 2 * NH_STREAMS; i++) {
        nh_val v = i == 0 ? t->raw : i <= NH_STREAMS ? t->after[i - 1] : t->branch[i - 1 - NH_STREAMS];
        if (v >= 0)
            s->moments[step][i] = s->m->core->moments(s->m->exec, v);
    }
}

START_TEST(streamed_pass_has_the_same_bits)
{
    struct nh_config c = config_of(models[_i / 2]), exact;
    nh_config_shadow(&exact, &c);
    struct nh_model drawn = model_of(&exact, false);
    struct kept kept = {zeros((size_t)drawn.graph->n_params, sizeof *kept.numbers), drawn.graph};
    for (int p = 0; p < drawn.graph->n_params; p++)
        kept.numbers[p] = param_of(&drawn, p);
    const struct nh_weight_source source = {.arg = &kept, .read = read_kept, .wide = _i % 2 ? always : NULL};
    c.weights = &source;
    struct nh_model whole = model_of(&c, false);
    static struct seen a, b;
    a = (struct seen){.m = &whole};
    double loss = nh_model_forward(&whole, &c, NULL, NULL);
    for (int s = 0; s < whole.graph->n_steps; s++)
        look(&a, s);
    c.streamed = true;
    struct nh_model part = model_of(&c, false);
    b = (struct seen){.m = &part};
    double streamed = nh_model_forward(&part, &c, look, &b);
    ck_assert(memcmp(&loss, &streamed, sizeof loss) == 0 || (isnan(loss) && isnan(streamed)));
    ck_assert_int_eq(a.n, b.n);
    ck_assert_mem_eq(a.moments, b.moments, sizeof a.moments);
    ck_assert_int_eq(whole.graph->n_sites, part.graph->n_sites);
    for (int s = 0; s < whole.graph->n_sites; s++) {
        const struct nh_counts *x = &whole.core->counts(whole.exec)[s * NH_DIRECTIONS + NH_FWD];
        const struct nh_counts *y = &part.core->counts(part.exec)[s * NH_DIRECTIONS + NH_FWD];
        ck_assert_msg(memcmp(x, y, sizeof *x) == 0, "site %s of layer %d: %lu and %lu stored, %lu and %lu overflows",
                      nh_site_names[whole.graph->sites[s].name], whole.graph->sites[s].layer, x->total, y->total, x->overflow, y->overflow);
    }
    struct nh_first f = whole.core->first(whole.exec, NH_FWD), g = part.core->first(part.exec, NH_FWD);
    ck_assert(f.kind == g.kind && f.site == g.site && f.order == g.order && f.index == g.index);
    size_t less = nh_model_memory(part.graph, 1, false), all = nh_model_memory(whole.graph, 1, false);
    ck_assert_msg(less < all, "%zu bytes streamed, %zu whole", less, all);
    for (int p = 0; p < drawn.graph->n_params; p++)
        free(kept.numbers[p]);
    free(kept.numbers);
    nh_model_destroy(&drawn), nh_model_destroy(&whole), nh_model_destroy(&part);
}
END_TEST

int main(void)
{
    keep_memory();
    Suite *s = suite_create("stream");
    TCase *t = tcase_create("stream");
    tcase_set_timeout(t, 0);
    tcase_add_loop_test(t, streamed_pass_has_the_same_bits, 0, 2 * (int)(sizeof models / sizeof *models));
    return run_suite(s, t);
}
