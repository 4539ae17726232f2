// SPDX-License-Identifier: GPL-3.0-or-later
/** harness study: runs what is missing, and tells what came of it. */
#include "harness/cli/cli.h"
#include "harness/cli/json_file.h"
#include "harness/cli/near.h"
#include "harness/cli/study.h"
#include "harness/cli/take.h"
#include "harness/core/err.h"
#include "results/file.h"
#include "results/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct request {
    const char *name, *jobs, *out, *studies;
    bool quick, print;
    char program[PATH_MAX], open_program[32]; /* its name; the file as it is now, whatever the name stands for later */
};

void nh_study_help(FILE *file)
{
    fputs("Runs the sweeps of results/studies/NAME/study.json through harness/sweep.sh, finished runs excepted,\n"
          "then prints its tables, each expectation with what was measured, and a verdict: reproduced, refuted,\n"
          "not at this scale, or inconclusive. 'harness list studies' shows all; docs/studies.md tells how to\n"
          "add one.\n\n"
          "  --quick            fewer seeds and cells, as the study says\n"
          "  --jobs N           runs at a time [as many as CPUs]\n"
          "  --out DIR          for report.md, table.csv, expectations.csv, figures, and runs/ or, quick,\n"
          "                     runs-quick/ [the folder of the study; quick/ in it with --quick]\n"
          "  --print            print the job list of the sweeps, one command per line, and run nothing\n"
          "  --studies DIR      where studies are [results/studies of the source tree]\n",
          file);
}

/* ---- studies there are ---- */

static int is_study(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && entry->d_type != DT_REG;
}

bool nh_study_row(const char *studies, size_t i, const char *cells[2], char *room, size_t size)
{
    struct dirent **entries = NULL;
    const int n = scandir(studies, &entries, is_study, alphasort);
    const bool found = n > 0 && i < (size_t)n;
    if (found) {
        snprintf(room, size, "%s/%s/study.json", studies, entries[i]->d_name);
        json_error_t error;
        json_t *root = nh_json_load(room, NH_STUDY_BYTES, &error);
        const char *title = json_string_value(json_object_get(root, "title"));
        snprintf(room, size, "%s", entries[i]->d_name);
        cells[0] = room;
        room += strlen(room) + 1, size -= strlen(cells[0]) + 1;
        snprintf(room, size, "%s", root ? title ? title : "has no title" : error.text);
        cells[1] = room;
        json_decref(root);
    }
    for (int k = 0; k < n; k++)
        free(entries[k]);
    free(entries);
    return found;
}

static int find(struct nh_study *study, const struct request *r)
{
    char room[1024], hint[NH_NEAR_SIZE];
    const char *cells[2];
    struct nh_near near = nh_near_start(r->name, "");
    for (size_t i = 0; nh_study_row(r->studies, i, cells, room, sizeof room); i++) {
        nh_near_try(&near, nh_copy(&study->memory, cells[0]));
        if (strcmp(cells[0], r->name) == 0) {
            obstack_printf(&study->memory, "%s/%s", r->studies, r->name);
            return nh_study_read(study, nh_grown(&study->memory));
        }
    }
    return nh_fail(NH_USAGE, "there is no study '%.60s' in %.300s%s ('harness list studies' shows all)", r->name,
                   r->studies, nh_near_text(&near, hint));
}

/* ---- other programs ---- */

/* Words of a call; there must be room for the NULL behind them. */
struct call {
    const char **words;
    size_t n;
};

/* Those of a text, each behind `before` if that is not NULL. */
static void add_words(struct nh_study *study, struct call *call, const char *before, const char *text)
{
    for (char *rest = strcpy(nh_alloc(&study->memory, strlen(text) + 1), text), *word; (word = strsep(&rest, " "));) {
        if (*word && before)
            call->words[call->n++] = before;
        if (*word)
            call->words[call->n++] = word;
    }
}

/* The exit code of a program; quiet: without what it writes to stdout. It does not outlive this one. */
static int run(struct call call, bool quiet)
{
    call.words[call.n] = NULL;
    fflush(NULL);
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if ((quiet && dup2(null, STDOUT_FILENO) < 0) || prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent)
            _exit(1);
        execv(call.words[0], (char *const *)call.words);
        nh_text_line(stderr, "harness: cannot run %s: %s", call.words[0], strerror(errno));
        _exit(1);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) { /* nobody reads what both write */
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* ---- sweeps ---- */

static const char *folder_of(struct nh_study *study, const struct request *r, const struct nh_study_sweep *sweep)
{
    obstack_printf(&study->memory, "%s/%s/%s", r->out, r->quick ? "runs-quick" : "runs", sweep->name);
    return nh_grown(&study->memory);
}

/* All runs of a study are of one program, although it may be built anew meanwhile: sweeps get its open file. */
static int find_program(struct request *r)
{
    static const char deleted[] = " (deleted)";
    const int file = open("/proc/self/exe", O_RDONLY); /* the sweeps inherit it */
    const ssize_t n = readlink("/proc/self/exe", r->program, sizeof r->program - 1);
    if (file < 0 || n < 0)
        return nh_fail(NH_FAILED, "cannot find this program in /proc/self/exe: %s; is /proc mounted?", strerror(errno));
    r->program[n] = '\0';
    const size_t length = (size_t)n, tail = strlen(deleted);
    if (length > tail && strcmp(r->program + length - tail, deleted) == 0 && access(r->program, F_OK))
        r->program[length - tail] = '\0';
    snprintf(r->open_program, sizeof r->open_program, "/proc/self/fd/%d", file);
    return NH_OK;
}

static int run_sweep(struct nh_study *study, const struct request *r, const struct nh_study_sweep *sweep)
{
    const char *args = nh_sweep_args(sweep, r->quick), *seeds = nh_sweep_seeds(sweep, r->quick);
    struct call call = {nh_alloc(&study->memory, (strlen(args) + strlen(study->options) + 18) * sizeof *call.words), 0};
    call.words[call.n++] = NH_SOURCE_ROOT "/harness/sweep.sh";
    add_words(study, &call, NULL, args);
    add_words(study, &call, NULL, study->options);
    const char *const more[] = {"--seeds",
                                seeds,
                                "--out",
                                folder_of(study, r, sweep),
                                "--harness",
                                r->open_program,
                                "--called",
                                r->program,
                                r->jobs ? "--jobs" : NULL,
                                r->jobs,
                                r->print ? "--print" : NULL};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i])
            call.words[call.n++] = more[i];
    if (isatty(STDERR_FILENO) && !r->print)
        nh_text_line(stderr, "sweep %s, %td of %zu", sweep->name, sweep - study->sweeps + 1, study->n_sweeps);
    const int code = run(call, !r->print);
    return code == 0 ? NH_OK
                     : nh_fail(code == 2 ? NH_USAGE : NH_FAILED,
                               "sweep %.60s of study %.60s failed; the same command goes on with what is missing",
                               sweep->name, study->name);
}

static int run_sweeps(struct nh_study *study, const struct request *r)
{
    int status = NH_OK;
    for (size_t i = 0; i < study->n_sweeps && !status; i++) {
        const struct nh_study_sweep *sweep = &study->sweeps[i];
        if (r->quick && !sweep->quick)
            continue;
        status = run_sweep(study, r, sweep);
        if (!status && !r->print)
            status = nh_study_load(study, sweep->name, folder_of(study, r, sweep));
    }
    return status;
}

/* ---- what came of it ---- */

/* A figure that cannot be drawn is no failure of the study. */
static bool draw(struct nh_study *study, const struct request *r, const struct nh_study_figure *figure)
{
    const struct nh_study_group g = nh_study_select(study, figure->where, NULL);
    const char *set = figure->set ? figure->set : "";
    struct call call = {nh_alloc(&study->memory, (strlen(set) + g.n + 8) * sizeof *call.words), 0};
    obstack_printf(&study->memory, NH_SOURCE_ROOT "/plots/%s.gp", figure->figure);
    const char *script = nh_grown(&study->memory);
    obstack_printf(&study->memory, "%s/%s", r->out, figure->file);
    const char *const words[] = {NH_SOURCE_ROOT "/plots/plot", figure->figure, "-o", nh_grown(&study->memory)};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        call.words[call.n++] = words[i];
    add_words(study, &call, "--set", set);
    for (size_t i = 0; i < g.n; i++)
        call.words[call.n++] = g.runs[i]->folder;
    if (g.n == 0)
        return false;
    const bool drawn = access(script, F_OK) == 0 && run(call, true) == 0;
    if (!drawn)
        nh_text_line(stderr, "harness: the figure %s (plots/%s.gp) was not drawn; all else is there", figure->file, figure->figure);
    return drawn;
}

static int tell(struct nh_study *study, const struct request *r)
{
    struct nh_finding *findings = nh_alloc(&study->memory, (study->n_expectations + 1) * sizeof *findings);
    bool *drawn = nh_alloc(&study->memory, (study->n_figures + 1) * sizeof *drawn);
    const char *conflict = nh_study_conflict(study);
    if (conflict)
        nh_text_line(stderr, "harness: %s", conflict);
    for (size_t i = 0; i < study->n_expectations; i++)
        findings[i] = nh_study_judge(study, &study->expectations[i]);
    for (size_t i = 0; i < study->n_figures; i++)
        drawn[i] = draw(study, r, &study->figures[i]);
    const int status = nh_study_write(study, r->out, findings, r->quick, drawn);
    if (status)
        return status;
    nh_study_print(study, findings);
    nh_text_line(stdout, "report  %s/report.md", r->out);
    return NH_OK;
}

/* ---- the command ---- */

static int unknown(const char *word)
{
    char wrong[80], hint[NH_NEAR_SIZE];
    snprintf(wrong, sizeof wrong, "%.*s", (int)strcspn(word, "="), word);
    struct nh_near near = nh_near_start(wrong + strspn(wrong, "-"), "--");
    static const char *const names[] = {"quick", "jobs", "out", "print", "studies"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(near.wrong, names[i]) == 0)
            return nh_fail(NH_USAGE, "%.60s takes no value; write it alone", wrong);
        nh_near_try(&near, names[i]);
    }
    return nh_fail(NH_USAGE, "study has no option '%.60s'%s ('harness study --help' shows all)", wrong,
                   nh_near_text(&near, hint));
}

static int take_word(struct request *r, int argc, char **argv, int *at)
{
    const struct {
        const char *name, *placeholder, **value;
    } options[] = {{"--jobs", "N", &r->jobs}, {"--out", "DIR", &r->out}, {"--studies", "DIR", &r->studies}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const char *const before = *options[i].value;
        const int status = nh_take_value(argc, argv, at, options[i].name, options[i].placeholder, options[i].value);
        if (status == 1 && before)
            return nh_fail(NH_USAGE, "%s is given twice; keep one", options[i].name);
        if (status)
            return status == 1 ? NH_OK : status;
    }
    if (strcmp(argv[*at], "--quick") == 0)
        r->quick = true;
    else if (strcmp(argv[*at], "--print") == 0)
        r->print = true;
    else if (argv[*at][0] == '-')
        return unknown(argv[*at]);
    else if (r->name)
        return nh_fail(NH_USAGE, "'%.60s' is too much; study takes one name ('harness list studies' shows all)",
                       argv[*at]);
    else
        r->name = argv[*at];
    return NH_OK;
}

static bool is_in(struct nh_study *s, const char *folder, const char *name)
{
    struct stat st;
    obstack_printf(&s->memory, "%s/%s", folder, name);
    return lstat(nh_grown(&s->memory), &st) == 0;
}

/* A report in a folder where no study has run is somebody else's. */
static int check_out(struct nh_study *s, const char *folder)
{
    static const char *const written[] = {"report.md", "table.csv", "expectations.csv"};
    if (is_in(s, folder, "study.json") || is_in(s, folder, "runs") || is_in(s, folder, "runs-quick"))
        return NH_OK;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (is_in(s, folder, written[i]))
            return nh_fail(NH_USAGE, "%.500s/%s was not written by a study; choose another --out", folder, written[i]);
    return NH_OK;
}

static int study(struct nh_study *s, struct request *r)
{
    int status = find(s, r);
    if (status)
        return status;
    if (!r->out) {
        obstack_printf(&s->memory, "%s/%s%s", r->studies, r->name, r->quick ? "/quick" : "");
        r->out = nh_grown(&s->memory);
    }
    if (!r->print)
        status = nh_dir_make(r->out);
    if (!status && !r->print && access(r->out, W_OK))
        status = nh_fail(NH_FAILED, "cannot write into %.500s: %s; choose another --out", r->out, strerror(errno));
    if (!status && !r->print)
        status = check_out(s, r->out);
    if (!status)
        status = find_program(r);
    if (!status)
        status = run_sweeps(s, r);
    return status || r->print ? status : tell(s, r);
}

static bool is_count(const char *text)
{
    return *text >= '1' && *text <= '9' && text[strspn(text, "0123456789")] == '\0';
}

int nh_cmd_study(int argc, char **argv)
{
    struct request r = {.name = NULL};
    int status = NH_OK;
    for (int at = 0; at < argc && !status; at++)
        status = take_word(&r, argc, argv, &at);
    if (!status && !r.name)
        status = nh_fail(
            NH_USAGE,
            "study takes a name, such as 'harness study cogview-divergence' ('harness list studies' shows all)");
    if (!status && r.jobs && !is_count(r.jobs))
        status = nh_fail(NH_USAGE, "--jobs '%.60s' must be a whole number from 1", r.jobs);
    if (status)
        return status;
    if (!r.studies)
        r.studies = NH_STUDIES;
    struct nh_study s;
    nh_study_init(&s);
    status = study(&s, &r);
    nh_study_fini(&s);
    return status;
}
