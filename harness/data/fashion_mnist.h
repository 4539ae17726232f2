// SPDX-License-Identifier: GPL-3.0-or-later
/** Fashion-MNIST, brought down to one byte for each patch of an image. */
#ifndef NH_DATA_FASHION_MNIST_H
#define NH_DATA_FASHION_MNIST_H

#include <stddef.h>
#include <zlib.h>

enum { NH_FASHION_EDGE = 28, NH_FASHION_CLASSES = 10, NH_FASHION_MAX = 100000 /**< images in a file, at most */ };

struct nh_fashion {
    int grid, levels; /**< patches along an edge, a divisor of 28; grey levels, 1..256: set by the caller */
    size_t n;
    unsigned char *labels;  /**< n, each below 10 */
    unsigned char *patches; /**< n x grid x grid, raster order: floor(mean of the patch * levels / 256) */
};

/** Reads both files; the names are for errors. Free by nh_fashion_free, after a failure too. */
int nh_fashion_read(struct nh_fashion *, gzFile images, const char *images_name, gzFile labels,
                    const char *labels_name);

void nh_fashion_free(struct nh_fashion *);

#endif
