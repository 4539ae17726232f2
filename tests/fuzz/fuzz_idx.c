// SPDX-License-Identifier: GPL-3.0-or-later
/** The two IDX files of Fashion-MNIST, packed or not. Input: which grid, levels - 1, the length of the labels file in
 *  two bytes (low one first), the labels file, the images file. */
#include "harness/core/err.h"
#include "harness/data/fashion_mnist.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* zlib reads files: one that lives in memory. */
static gzFile open_bytes(const uint8_t *bytes, size_t n)
{
    const int descriptor = memfd_create("idx", 0);
    if (descriptor < 0 || write(descriptor, bytes, n) != (ssize_t)n || lseek(descriptor, 0, SEEK_SET) != 0)
        abort();
    gzFile file = gzdopen(descriptor, "rb");
    if (!file)
        abort();
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const int grids[] = {1, 2, 4, 7, 14, 28};
    if (n < 4)
        return 0;
    struct nh_fashion set = {.grid = grids[bytes[0] % 6], .levels = bytes[1] + 1};
    size_t n_labels = (size_t)(bytes[2] | bytes[3] << 8);
    bytes += 4;
    n -= 4;
    n_labels = n_labels < n ? n_labels : n;
    gzFile labels = open_bytes(bytes, n_labels), images = open_bytes(bytes + n_labels, n - n_labels);
    const int status = nh_fashion_read(&set, images, "images", labels, "labels");
    if (status) {
        if (status != NH_FAILED || (strstr(nh_error(), "'images'") == NULL && strstr(nh_error(), "'labels'") == NULL))
            abort();
    } else {
        for (size_t i = 0; i < set.n; i++)
            if (set.labels[i] >= NH_FASHION_CLASSES)
                abort();
        for (size_t i = 0; i < set.n * (size_t)(set.grid * set.grid); i++)
            if (set.patches[i] >= set.levels)
                abort();
    }
    nh_fashion_free(&set);
    gzclose(labels);
    gzclose(images);
    return 0;
}
