// SPDX-License-Identifier: GPL-3.0-or-later
/** What a forward pass over a checkpoint costs that is larger than the memory allowed to it: CSV `what,value,unit,limit`. Not a test.
 *  Makes a checkpoint of 1.2 GB (Llama, 14 layers of width 1024, fp32), and runs the program on it as a user would; beside that the
 *  bare work: the file read once, and its matrix products. bench_model PROGRAM [FOLDER]. */
#include "harness/io/safetensors.h"

#include <cblas.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 14, WIDTH = 1024, HIDDEN = 4096, HEADS = 16, VOCAB = 32000, BATCH = 2, SEQ = 64, ROUNDS = 3, MATRICES = 7 };

static const struct matrix {
    const char *name;
    int out, in;
} matrices[MATRICES] = {
    {"self_attn.q_proj", WIDTH, WIDTH}, {"self_attn.k_proj", WIDTH, WIDTH}, {"self_attn.v_proj", WIDTH, WIDTH},
    {"self_attn.o_proj", WIDTH, WIDTH}, {"mlp.gate_proj", HIDDEN, WIDTH},   {"mlp.up_proj", HIDDEN, WIDTH},
    {"mlp.down_proj", WIDTH, HIDDEN},
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_model: %s: %s\n", what, strerror(errno));
    exit(1);
}

/** Numbers of deviation 1/sqrt(in), enough alike for a pass to stay in range: one block of them, over and over. */
static float *numbers(size_t n, double deviation)
{
    float *w = malloc(n * sizeof *w);
    uint64_t state = 88172645463325252u;
    if (!w)
        fail("memory");
    for (size_t i = 0; i < n; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        w[i] = (float)(((double)(state >> 11) * 0x1p-53 - 0.5) * sqrt(12) * deviation);
    }
    return w;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    if (!f || fputs(text, f) < 0 || fclose(f))
        fail(path);
}

static void make(const char *dir)
{
    enum { COUNT = 3 + DEPTH * (MATRICES + 2) };
    static struct nh_tensor_out tensors[COUNT];
    static char names[COUNT][80];
    char path[4096], config[1024];
    float *wide = numbers((size_t)HIDDEN * WIDTH, 1 / sqrt(WIDTH)), *table = numbers((size_t)VOCAB * WIDTH, 1 / sqrt(WIDTH));
    float *ones = malloc(WIDTH * sizeof *ones);
    int n = 0;
    if (!ones)
        fail("memory");
    for (int i = 0; i < WIDTH; i++)
        ones[i] = 1;
    if (mkdir(dir, 0777) && errno != EEXIST)
        fail(dir);
#define TENSOR(r, c, p, ...)                                                                                                   \
    snprintf(names[n], sizeof names[n], __VA_ARGS__);                                                                          \
    tensors[n] = (struct nh_tensor_out){names[n], NH_TENSOR_F32, {(c) ? 2 : 1, {(r), (c)}}, (p)};                              \
    n++
    TENSOR(VOCAB, WIDTH, table, "model.embed_tokens.weight");
    for (int l = 0; l < DEPTH; l++) {
        TENSOR(WIDTH, 0, ones, "model.layers.%d.input_layernorm.weight", l);
        TENSOR(WIDTH, 0, ones, "model.layers.%d.post_attention_layernorm.weight", l);
        for (int m = 0; m < MATRICES; m++) {
            TENSOR((size_t)matrices[m].out, (size_t)matrices[m].in, wide, "model.layers.%d.%s.weight", l, matrices[m].name);
        }
    }
    TENSOR(WIDTH, 0, ones, "model.norm.weight");
    TENSOR(VOCAB, WIDTH, table, "lm_head.weight");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (nh_safetensors_write(path, true, tensors, (size_t)n, NULL, 0))
        fail(path);
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d, "
             "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"vocab_size\": %d, \"rms_norm_eps\": 1e-5, "
             "\"hidden_act\": \"silu\", \"rope_theta\": 10000.0, \"max_position_embeddings\": 2048, "
             "\"tie_word_embeddings\": false}\n",
             WIDTH, HIDDEN, DEPTH, HEADS, HEADS, VOCAB);
    snprintf(path, sizeof path, "%s/config.json", dir);
    write_text(path, config);
    snprintf(path, sizeof path, "%s/tokens.txt", dir);
    FILE *f = fopen(path, "we");
    for (int i = 0; f && i < BATCH * SEQ; i++)
        fprintf(f, "%d%c", (int)((unsigned)i * 7919u % VOCAB), i % SEQ == SEQ - 1 ? '\n' : ' ');
    if (!f || fclose(f))
        fail(path);
    free(wide), free(table), free(ones);
}

/** The file read once, as much as two threads of a library need for its products. */
static double bare_work(const char *dir, double *size)
{
    enum { PIECE = 1 << 22 };
    char path[4096];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    char *piece = malloc(PIECE);
    float *w = numbers((size_t)VOCAB * WIDTH, 1), *x = numbers((size_t)BATCH * SEQ * HIDDEN, 1);
    float *y = malloc((size_t)BATCH * SEQ * VOCAB * sizeof *y);
    if (!piece || !y)
        fail("memory");
    memset(y, 0, (size_t)BATCH * SEQ * VOCAB * sizeof *y);
    openblas_set_num_threads(2);
    double start = seconds();
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    *size = 0;
    while (file >= 0 && (got = read(file, piece, PIECE)) > 0)
        *size += (double)got;
    close(file);
    for (int l = 0; l < DEPTH; l++)
        for (const struct matrix *m = matrices; m < matrices + MATRICES; m++)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, BATCH * SEQ, m->out, m->in, 1, x, m->in, w, m->in, 0, y, m->out);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, BATCH * SEQ, VOCAB, WIDTH, 1, x, WIDTH, w, WIDTH, 0, y, VOCAB);
    double time = seconds() - start;
    free(piece), free(w), free(x), free(y);
    return time;
}

/** One run of the program; its wall time, and the memory that it held at the most, in MiB. */
static double run(const char *program, const char *dir, const char *dtype, double *mib)
{
    char data[4200], out[4200];
    snprintf(data, sizeof data, "tokens:%s/tokens.txt", dir);
    snprintf(out, sizeof out, "%s/run", dir);
    double start = seconds();
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout))
            _exit(1);
        execl(program, program, "--model", dir, "--data", data, "--dtype", dtype, "--probes", "rms,overflow", "--out", out, "--force",
              (char *)NULL);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status != 0)
        fail(program);
    *mib = (double)usage.ru_maxrss / 1024;
    return seconds() - start;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_model PROGRAM [FOLDER]: makes a checkpoint of 1.2 GB in FOLDER, by default a scratch one\n");
        return 2;
    }
    char scratch[] = "/tmp/bench_model_XXXXXX";
    const char *dir = argc > 2 ? argv[2] : mkdtemp(scratch), *dtypes[] = {"fp32", "fp16"};
    double bare = (double)INFINITY, best[2] = {(double)INFINITY, (double)INFINITY}, most = 0, mib, size;
    if (!dir)
        fail("scratch folder");
    make(dir);
    for (int k = 0; k < ROUNDS; k++) {
        bare = fmin(bare, bare_work(dir, &size));
        for (int i = 0; i < 2; i++) {
            best[i] = fmin(best[i], run(argv[1], dir, dtypes[i], &mib));
            most = fmax(most, mib);
        }
    }
    printf("what,value,unit,limit\ncheckpoint,%.3f,GB,\nfile read and bare products,%.3f,s,\n", size / 1e9, bare);
    for (int i = 0; i < 2; i++)
        printf("forward pass in %s over that,%.3f,1,1.5\n", dtypes[i], best[i] / bare);
    printf("resident memory at the most,%.0f,MiB,500\n", most);
    if (argc == 2) {
        char command[64];
        snprintf(command, sizeof command, "rm -rf %s", dir);
        return system(command) != 0;
    }
    return 0;
}
