// SPDX-License-Identifier: GPL-3.0-or-later
/** The token-Gram recursion: one matrix x_t . x_u / width, mean over Gaussian weights, carried through the sublayers.
 *  Matrices are T x T, symmetric, and only their upper triangle (u >= t) means anything. */
#include "harness/core/law.h"

#include "harness/core/dual.h"
#include "harness/core/err.h"
#include "harness/core/init.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct nh_sublayer_constants nh_law_ffn(enum nh_ffn ffn, double s1, double s2)
{
    struct nh_normal_mean mean;
    if (nh_normal_mean_init(&mean) != NH_OK)
        return (struct nh_sublayer_constants){(double)NAN, (double)NAN, (double)NAN};
    struct nh_dual dual;
    nh_dual_init(&dual, ffn, s1, &mean);
    /* Inputs of cosine c have outputs of Gram B(c). v = B(1). chi = B'(1): inputs at a small distance D per width have
     * cosine 1 - D^2/2, so that their outputs are at a squared distance of 2 (B(1) - B(c)) = B'(1) D^2. */
    double phi = nh_dual_value(&dual, 1), slope = nh_dual_slope(&dual), v = s2 * s2 * phi, chi = s2 * s2 * slope;
    if (nh_ffn_is_gated(ffn)) { /* B(c) = s2^2 s1^2 c Phi(c) */
        chi = s1 * s1 * (v + chi);
        v *= s1 * s1;
    }
    return (struct nh_sublayer_constants){v, chi, chi / v};
}

/** Buffers of one recursion. */
struct law {
    const struct nh_config *config;
    struct nh_normal_mean mean;
    size_t tokens;
    double *memory;
    double *stream, *input, *branch, *query, *key, *value; /**< Gram matrices */
    double *second; /**< Gram matrix of the second stream */
    double *cross;  /**< x_t . y_u / width of the two streams: all of it means something */
    double *rows[3];                               /**< one row each, of use within one function */
    struct series *sums;                           /**< MAX_TERMS rows of T */
};

enum { MAX_TERMS = 64 };

/** Sums of K_sr^j (w) and of K_sr^j Y_sr (y) for one j and one u: over s <= t at r = u, and over s <= t, r <= u. */
struct series {
    double column_w, column_y, block_w, block_y;
};

/** Gain of a matrix: the factor on the RMS of what it reads. */
static double gain_of(const struct law *law, enum nh_weight weight, const struct nh_pos *pos)
{
    int out, in;
    nh_weight_shape(law->config, weight, &out, &in);
    return nh_weight_std(law->config, weight, pos) * sqrt(in);
}

static double largest_diagonal(const struct law *law, const double *x)
{
    double max = 0;
    for (size_t t = 0; t < law->tokens; t++)
        max = fmax(max, x[t * law->tokens + t]);
    return max;
}

static double mean_diagonal(const struct law *law, const double *x)
{
    double sum = 0;
    for (size_t t = 0; t < law->tokens; t++)
        sum += x[t * law->tokens + t];
    return sum / (double)law->tokens;
}

/** y = factor * x. */
static void scale(const struct law *law, double factor, const double *x, double *y)
{
    for (size_t i = 0; i < law->tokens * law->tokens; i++)
        y[i] = factor * x[i];
}

/** What a norm does to a Gram matrix: every token is divided by sqrt(mean square + eps) and multiplied by the gain. Returns these
 *  factors, until the next norm. */
static const double *norm(const struct law *law, double gain, const double *x, double *y)
{
    double *inverse = law->rows[0];
    for (size_t t = 0; t < law->tokens; t++)
        inverse[t] = gain / sqrt(x[t * law->tokens + t] + law->config->eps);
    for (size_t t = 0; t < law->tokens; t++)
        for (size_t u = t; u < law->tokens; u++)
            y[t * law->tokens + u] = x[t * law->tokens + u] * inverse[t] * inverse[u];
    return inverse;
}

/** The Gram matrix of x + N(y). */
static void sum_of_streams(const struct law *law, double *out)
{
    const size_t n = law->tokens;
    const double *inverse = norm(law, 1, law->second, out);
    for (size_t t = 0; t < n; t++)
        for (size_t u = t; u < n; u++)
            out[t * n + u] += law->stream[t * n + u] + law->cross[t * n + u] * inverse[u] + law->cross[u * n + t] * inverse[t];
}

/** Adds the branch as it is, before N2 and its factor, to the second stream, and what of it comes into both to their product. */
static void add_to_second(const struct law *law, const struct nh_law_term *term)
{
    const size_t n = law->tokens;
    for (size_t t = 0; t < n; t++)
        for (size_t u = t; u < n; u++) {
            double b = term->second * law->branch[t * n + u];
            law->second[t * n + u] += term->second * b;
            law->cross[t * n + u] = term->skip * law->cross[t * n + u] + term->branch * b;
            if (t != u)
                law->cross[u * n + t] = term->skip * law->cross[u * n + t] + term->branch * b;
        }
}

/** B_tu = s_O^2 sum_{s<=t, r<=u} e^(Q_tu K_sr) V_sr / sum_{s<=t, r<=u} e^(Q_tu K_sr); Q, K and V the Grams of the
 *  queries (without the score scale), keys and values: over Gaussian weights the scores q_t . k_s / sqrt(head_dim) have
 *  covariance Q_tu K_sr. The exponential series takes the factors apart: it is the sum over j of Q_tu^j / j! times a
 *  running sum of K_sr^j over s <= t, r <= u, so that a term costs O(T^2). */
static void attention(const struct law *law, const struct nh_pos *pos, const struct nh_law_term *term)
{
    const size_t n = law->tokens;
    const double *y = law->value;
    double s_q = gain_of(law, NH_W_Q, pos), s_k = gain_of(law, NH_W_K, pos);
    double s_v = gain_of(law, NH_W_V, pos), s_o = gain_of(law, NH_W_O, pos);
    scale(law, s_q * s_q, law->input, law->query);
    scale(law, s_k * s_k, law->input, law->key);
    scale(law, s_v * s_v, law->input, law->value);
    if (term->norm_qkv)
        norm(law, 1, law->value, law->value);
    if (law->config->qk_norm || term->norm_qkv) {
        norm(law, 1, law->query, law->query);
        norm(law, 1, law->key, law->key);
    }
    /* Scores of a larger variance mean a softmax that has picked one key, and the series would lose its digits. */
    const double max_variance = 12;
    double variance = largest_diagonal(law, law->query) * largest_diagonal(law, law->key);
    if (variance > max_variance) {
        scale(law, max_variance / variance, law->query, law->query);
        variance = max_variance;
    }
    int terms = 1;
    double next = variance; /* bound on the first term left out */
    while (next > 1e-12)
        next *= variance / ++terms;
    assert(terms <= MAX_TERMS);

    struct series *sums = law->sums;
    memset(sums, 0, (size_t)terms * n * sizeof *sums);
    for (size_t t = 0; t < n; t++) {
        double *power = law->rows[0], *coef = law->rows[1], *total = law->rows[2], *out = law->branch + t * n;
        for (size_t u = t; u < n; u++) {
            power[u] = coef[u] = 1;
            total[u] = out[u] = 0;
        }
        for (int j = 0; j < terms; j++) {
            struct series *s = sums + (size_t)j * n;
            /* Entries left of the diagonal are those above it: the column so far is the start of the row. */
            double row_w = s[t].column_w, row_y = s[t].column_y, inverse = 1.0 / (j + 1);
            for (size_t u = t; u < n; u++) {
                double w = power[u], wy = w * y[t * n + u];
                row_w += w, row_y += wy;
                s[u].column_w += w, s[u].column_y += wy;
                s[u].block_w += row_w, s[u].block_y += row_y; /* now over all s <= t, r <= u */
                total[u] += coef[u] * s[u].block_w;
                out[u] += coef[u] * s[u].block_y;
                power[u] *= law->key[t * n + u];
                coef[u] *= law->query[t * n + u] * inverse;
            }
        }
        for (size_t u = t; u < n; u++)
            out[u] /= total[u];
    }
    if (term->norm_out)
        norm(law, 1, law->branch, law->branch);
    scale(law, s_o * s_o, law->branch, law->branch);
}

/** B_tu = s_OUT^2 Phi(C_tu), times s_IN^2 Y_tu where there is a gate. Phi is taken at the mean square of all tokens;
 *  that of one token enters as a factor, which is exact for ReLU and, for all, where the input is normed. */
static void feed_forward(const struct law *law, const struct nh_pos *pos, const struct nh_law_term *term)
{
    const size_t n = law->tokens;
    const double *y = law->input;
    bool gated = nh_ffn_is_gated(law->config->ffn);
    double s_in = gain_of(law, NH_W_IN, pos), s_out = gain_of(law, NH_W_OUT, pos);
    double s_act = gated ? gain_of(law, NH_W_GATE, pos) : s_in, mean = mean_diagonal(law, y);
    struct nh_dual dual;
    nh_dual_init(&dual, law->config->ffn, s_act * sqrt(mean), &law->mean);
    for (size_t t = 0; t < n; t++)
        for (size_t u = t; u < n; u++) {
            double size = sqrt(y[t * n + t] * y[u * n + u]), b = size;
            if (size > 0) /* a token of zeros gives zeros */
                b *= nh_dual_value(&dual, y[t * n + u] / size) / mean;
            law->branch[t * n + u] = gated ? b * s_in * s_in * y[t * n + u] : b;
        }
    if (term->norm_out)
        norm(law, 1, law->branch, law->branch);
    scale(law, s_out * s_out, law->branch, law->branch);
}

/** True where the branch has something in it that the recursion does not follow: only a norm behind it makes its size known. */
static bool is_strange(const struct nh_config *c, const struct nh_pos *pos)
{
    if (pos->kind == NH_FFN)
        return nh_layer_has_experts(c, pos->layer);
    return c->attn_gate || c->score_softcap > 0 || c->query_scalar > 0;
}

/** One sublayer; false where its mean square cannot be known. */
static bool sublayer(struct law *law, const struct nh_pos *pos)
{
    const struct nh_config *config = law->config;
    const struct nh_law_term term = config->layout->law_term(pos, config->knobs);
    bool silent = !term.post_norm && term.branch == 0;
    if (silent)
        scale(law, 0, law->branch, law->branch);
    else if (!term.pre_norm && !term.post_norm && !term.outer_norm && !term.norm_skip && !term.norm_qkv)
        return false;
    else if (!term.post_norm && is_strange(config, pos))
        return false;
    if (term.norm_skip)
        norm(law, 1, law->stream, law->stream);
    const double *read = law->stream;
    if (term.with_second)
        sum_of_streams(law, law->input), read = law->input;
    if (term.pre_norm && !term.same_input)
        norm(law, term.in_scale, read, law->input);
    else if (!term.same_input)
        scale(law, term.in_scale * term.in_scale, read, law->input);

    if (!silent && pos->kind == NH_ATTN)
        attention(law, pos, &term);
    else if (!silent)
        feed_forward(law, pos, &term);
    if (config->layout->n_streams > 1)
        add_to_second(law, &term);
    if (term.post_norm)
        norm(law, term.post_gain * config->post_gain, law->branch, law->branch);
    else
        scale(law, term.branch * term.branch, law->branch, law->branch);

    for (size_t i = 0; i < law->tokens * law->tokens; i++)
        law->stream[i] = term.skip * term.skip * law->stream[i] + law->branch[i];
    if (term.outer_norm) {
        const double *inverse = norm(law, 1, law->stream, law->stream);
        for (size_t i = 0; i < law->tokens * law->tokens; i++)
            law->cross[i] *= inverse[i / law->tokens];
    }
    return true;
}

static int law_init(struct law *law, const struct nh_config *config, const double *gram)
{
    const size_t n = (size_t)config->seq, square = n * n;
    *law = (struct law){.config = config, .tokens = n};
    if (nh_normal_mean_init(&law->mean) != NH_OK)
        return NH_FAILED;
    double **matrices[] = {&law->stream, &law->input, &law->branch, &law->query, &law->key, &law->value, &law->second, &law->cross};
    const size_t n_matrices = sizeof matrices / sizeof *matrices, n_rows = sizeof law->rows / sizeof *law->rows;
    law->memory = calloc(n_matrices * square + n_rows * n, sizeof *law->memory);
    law->sums = calloc(MAX_TERMS * n, sizeof *law->sums);
    if (!law->memory || !law->sums)
        return nh_fail(NH_FAILED, "the law of the stream for %zu tokens: not enough memory", n);
    for (size_t i = 0; i < n_matrices; i++)
        *matrices[i] = law->memory + i * square;
    for (size_t i = 0; i < n_rows; i++)
        law->rows[i] = law->memory + n_matrices * square + i * n;
    scale(law, 1, gram, law->stream);
    scale(law, 1, gram, law->second);
    scale(law, 1, gram, law->cross);
    return NH_OK;
}

static void recursion(struct law *law, double *rms, double *second)
{
    const struct nh_config *config = law->config;
    bool known = config->layout->law_term != NULL;
    for (int l = 1; l <= config->depth; l++)
        for (enum nh_kind kind = NH_ATTN; kind <= NH_FFN; kind++) {
            if (!(config->branches & (kind == NH_ATTN ? NH_BRANCHES_ATTN : NH_BRANCHES_FFN)))
                continue;
            struct nh_pos pos = {.layer = l, .depth = config->depth, .kind = kind};
            known = known && sublayer(law, &pos);
            *rms++ = known ? sqrt(mean_diagonal(law, law->stream)) : (double)NAN;
            if (second)
                *second++ = known ? sqrt(mean_diagonal(law, law->second)) : (double)NAN;
        }
}

int nh_law_rms(const struct nh_config *config, const double *gram, double *rms, double *second)
{
    struct law law;
    int status = law_init(&law, config, gram);
    if (status == NH_OK)
        recursion(&law, rms, second);
    free(law.memory);
    free(law.sums);
    return status;
}
