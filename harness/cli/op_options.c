// SPDX-License-Identifier: GPL-3.0-or-later
/** What is asked of `harness op`: the name of the operation, options of all of them, attributes of some. */
#include "harness/cli/near.h"
#include "harness/cli/op.h"
#include "harness/cli/options.h"
#include "harness/core/err.h"
#include "results/file.h"

#include <string.h>
#include <sys/stat.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define AT(field)  .at = offsetof(struct nh_op_request, field)

// clang-format off
/* Options of every operation, then attributes of some. */
static const struct nh_option options[] = {
    {.name = "in", .kind = &nh_value_text, AT(in), .max = 4000, .help = "safetensors file with the tensors"},
    {.name = "out", .kind = &nh_value_text, AT(out), .max = 4000, .help = "safetensors file for the result, y; without it only the counters are shown"},
    {.name = "dtype", .kind = &nh_value_format, AT(config.dtype), .start = "fp32", .help = "format of what is stored"},
    {.name = "policy", .kind = &nh_value_policy, AT(config.policy), .start = "plain", .help = "which role has which format"},
    {.name = "accum", .kind = &nh_value_choice, AT(config.accum), .start = "fp32", .choices = WORDS("fp32", "dtype"),
     .help = "format of the sums in products"},
    {.name = "norm-stats", .kind = &nh_value_choice, AT(config.norm_stats), .start = "fp32", .choices = WORDS("fp32", "dtype"),
     .help = "format of a norm's statistics"},
    {.name = "norm-cast", .kind = &nh_value_either, AT(config.cast_before_gain), .start = "after-gain",
     .choices = WORDS("after-gain", "before-gain"), .help = "where a norm's result is rounded"},
    {.name = "grad", .kind = &nh_value_switch, AT(gradients), .start = "off", .choices = WORDS("off", "on"),
     .help = "also from tensor dy, the gradient of y, to d_x, d_weight, ..."},
    {.name = "force", .kind = &nh_value_switch, AT(force), .start = "off", .choices = WORDS("off", "on"),
     .help = "replace the file --out"},
    {.name = "norm", .kind = &nh_value_choice, AT(config.norm), .start = "rms", .choices = WORDS("rms", "layer"),
     .help = "RMSNorm or LayerNorm"},
    {.name = "eps", .kind = &nh_value_real, AT(config.eps), .start = "1e-5", .max = 1, .help = "added to the mean square"},
    {.name = "group", .kind = &nh_value_int, AT(group), .start = "all", .word = "all", .min = 1, .max = NH_OP_MAX_DIM,
     .help = "columns normed together"},
    {.name = "head-dim", .kind = &nh_value_int, AT(head_dim), .start = "all", .word = "all", .min = 2, .max = NH_OP_MAX_DIM,
     .help = "columns of a head"},
    {.name = "theta", .kind = &nh_value_positive, AT(config.theta), .start = "10000", .help = "base of the wavelengths"},
    {.name = "heads", .kind = &nh_value_int, AT(config.heads), .start = "1", .min = 1, .max = NH_OP_MAX_DIM, .help = "heads of q"},
    {.name = "kv-heads", .kind = &nh_value_int, AT(config.kv_heads), .start = "heads", .word = "heads", .min = 1, .max = NH_OP_MAX_DIM,
     .help = "heads of k and v"},
    {.name = "window", .kind = &nh_value_int, AT(config.window), .start = "all", .word = "all", .min = 1, .max = NH_OP_MAX_DIM,
     .help = "keys that a row sees, its own included"},
    {.name = "score-scale", .kind = &nh_value_either, AT(config.scale_after), .start = "before", .choices = WORDS("before", "after"),
     .help = "1/sqrt(head width) before or after the product"},
    {.name = "embed-scale", .kind = &nh_value_positive, AT(config.embed_scale), .start = "1", .word = "sqrt",
     .help = "factor on the rows, sqrt = root of the width"},
    {.name = "embed-shrink", .kind = &nh_value_positive, AT(config.embed_shrink), .start = "1", .help = "factor on d_weight"},
    {.name = "pb-relax", .kind = &nh_value_relax, AT(config.pb_relax), .start = "off", .min = 32, .max = 1e30,
     .help = "alpha of softmax(alpha (s - max)) for scores held divided by alpha, on = 32"},
    {.name = "ln-relax", .kind = &nh_value_positive, AT(config.ln_relax), .start = "8", .max = 1e30, .help = "largest |y|"},
    {.name = "softcap", .kind = &nh_value_positive, AT(config.softcap), .start = "30", .max = 1e30, .help = "C"},
    {.name = "z-loss", .kind = &nh_value_positive, AT(config.z_loss), .start = "off", .word = "off",
     .help = "C log^2 Z is added to each row"},
    {.name = "experts-active", .kind = &nh_value_int, AT(config.moe.active), .start = "1", .min = 1, .max = NH_OP_MAX_DIM,
     .help = "experts that are chosen"},
    {.name = "route-scale", .kind = &nh_value_positive, AT(config.moe.route_scale), .start = "1", .help = "sum of the weights"},
};
// clang-format on

enum { N_OPTIONS = sizeof options / sizeof *options, N_COMMON = 9 };
_Static_assert(N_OPTIONS <= 32, "given has one bit for each option");

int nh_operation_find(const struct nh_operation **op, const char *name)
{
    struct nh_near near = nh_near_start(name, "");
    for (size_t i = 0; i < nh_operation_count; i++) {
        nh_near_try(&near, nh_operations[i].name);
        if (strcmp(nh_operations[i].name, name) == 0) {
            *op = &nh_operations[i];
            return NH_OK;
        }
    }
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "there is no operation '%.60s'%s ('harness list ops' shows all)", name,
                   nh_near_text(&near, hint));
}

/* The value in the help. */
static const char *placeholder(const struct nh_option *o)
{
    return o->kind == &nh_value_text ? "FILE" : o->kind->placeholder;
}

static bool takes(const struct nh_operation *op, const struct nh_option *o)
{
    if (o < options + N_COMMON)
        return true;
    for (const char *const *a = op->attributes; a && *a; a++)
        if (strcmp(*a, o->name) == 0)
            return true;
    return false;
}

static int unknown(const struct nh_operation *op, const char *word)
{
    char wrong[80];
    snprintf(wrong, sizeof wrong, "%.*s", (int)strcspn(word, "="), word);
    struct nh_near near = nh_near_start(wrong + strspn(wrong, "-"), "--");
    for (const struct nh_option *o = options; o < options + N_OPTIONS; o++)
        if (takes(op, o))
            nh_near_try(&near, o->name);
    char hint[NH_NEAR_SIZE];
    return nh_fail(NH_USAGE, "%s has no option '%.60s'%s ('harness op --help' shows all)", op->name, wrong,
                   nh_near_text(&near, hint));
}

/* Reads "--NAME=VALUE", or "--NAME" and the VALUE that follows; moves *at past them. */
static int take(struct nh_op_request *q, const struct nh_operation *op, int argc, char **argv, int *at, uint32_t *given)
{
    const char *word = argv[(*at)++], *value = strchr(word, '=');
    const struct nh_option *o = options;
    for (; o < options + N_OPTIONS; o++)
        if (takes(op, o) && strncmp(word, "--", 2) == 0 && strcspn(word + 2, "=") == strlen(o->name) &&
            strncmp(word + 2, o->name, strlen(o->name)) == 0)
            break;
    if (o == options + N_OPTIONS)
        return unknown(op, word);
    const uint32_t bit = UINT32_C(1) << (o - options);
    if (*given & bit)
        return nh_fail(NH_USAGE, "--%s is given twice; keep one", o->name);
    *given |= bit;
    if (value)
        value++;
    else if (o->kind->bare)
        value = "on";
    else
        value = *at < argc && strncmp(argv[*at], "--", 2) != 0 ? argv[(*at)++] : "";
    if (*value == '\0')
        return nh_fail(NH_USAGE, "--%s needs a value: --%s %s", o->name, o->name, placeholder(o));
    return o->kind->read(o, value, &q->config);
}

int nh_op_request_read(struct nh_op_request *q, const struct nh_operation *op, int argc, char **argv)
{
    uint32_t given = 0;
    int status = NH_OK;
    *q = (struct nh_op_request){.in = NULL};
    for (int i = 0; i < N_OPTIONS && !status; i++)
        status = options[i].start ? options[i].kind->read(&options[i], options[i].start, &q->config) : NH_OK;
    for (int i = 0; i < argc && !status;)
        status = take(q, op, argc, argv, &i, &given);
    if (!status && !q->in)
        status = nh_fail(NH_USAGE, "%s needs its tensors: --in A.safetensors", op->name);
    if (!status)
        status = nh_numbers_fit(&q->config);
    if (!status && q->force && !q->out)
        status = nh_fail(NH_USAGE, "--force has no effect without --out; leave it out, or add --out B.safetensors");
    if (status || !q->out)
        return status;
    struct stat in, out;
    if (stat(q->in, &in) == 0 && stat(q->out, &out) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        status = nh_fail(NH_USAGE, "--in and --out are the same file, %.200s; choose another --out", q->out);
    return status || q->force ? status : nh_file_absent(q->out);
}

void nh_op_help(FILE *file)
{
    fputs("Names of operations, their tensors and their attributes: 'harness list ops'. Values have the shape\n"
          "[cols], [T, cols] or [B, T, cols]. Counters go to stdout as CSV.\n\n",
          file);
    for (const struct nh_option *o = options; o < options + N_OPTIONS; o++) {
        char left[64], range[NH_VALUE_SIZE] = "";
        if (o->kind->tell_range)
            o->kind->range(o, range);
        snprintf(left, sizeof left, o->kind->bare ? "--%s[=%s]" : "--%s %s", o->name, placeholder(o));
        fprintf(file, "%s  %-22s  %s%s%s", o == options + N_COMMON ? "\nAttributes\n" : "", left, o->help,
                *range ? ": " : "", range);
        fprintf(file, o->start ? " [%s]\n" : "\n", o->start);
    }
}
