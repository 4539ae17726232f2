// SPDX-License-Identifier: GPL-3.0-or-later
/** Runs a fuzz target on stored inputs, each a case in TAP. Usage: replay_NAME FOLDER */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/** The whole file, in memory of exactly its size, so that a sanitizer sees a read past its end. NULL where it cannot be read. */
static uint8_t *read_whole(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    uint8_t *bytes = NULL;
    long size = -1;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0)
        bytes = malloc(size ? (size_t)size : 1);
    *n = size > 0 ? (size_t)size : 0;
    if (bytes && fread(bytes, 1, *n, file) != *n) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    return bytes;
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    const int n_entries = argc == 2 ? scandir(argv[1], &entries, visible, alphasort) : -1;
    if (n_entries <= 0) {
        printf("Bail out! no input in %s\n", argc == 2 ? argv[1] : "(no folder given)");
        return 1;
    }
    int failed = 0;
    printf("1..%d\n", n_entries);
    for (int i = 0; i < n_entries; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        size_t n = 0;
        uint8_t *bytes = read_whole(path, &n);
        if (bytes)
            LLVMFuzzerTestOneInput(bytes, n);
        printf("%s %d - %s\n", bytes ? "ok" : "not ok", i + 1, entries[i]->d_name);
        fflush(stdout); /* what came last before a crash is known */
        failed += bytes == NULL;
        free(bytes);
        free(entries[i]);
    }
    free(entries);
    return failed != 0;
}
