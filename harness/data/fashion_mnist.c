// SPDX-License-Identifier: GPL-3.0-or-later
/** fashion-mnist: pictures with captions, text first, as text-to-image transformers read them (CogView,
 *  arXiv:2105.13290). An example is two caption words and the patches of the image in raster order; a sequence
 *  is one example, or, where --seq says otherwise, what stands there in the row of all examples one behind the other.
 *  Ids 0 .. levels-1 are grey levels, then come the words of the caption table. Each epoch has its own order.
 *  Data: Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747. */
#include "harness/data/fashion_mnist.h"

#include "harness/core/err.h"
#include "harness/data/idx.h"
#include "harness/data/source.h"
#include "results/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CAPTION = 2, EDGE = NH_FASHION_EDGE, PIXELS = EDGE * EDGE };

/* The caption table, 16 words: of a class, the first word is its kind (id levels + kind), the second the thing itself
 * (id levels + KINDS + class). */
enum kind { UPPER, LOWER, FULL, OUTER, SHOE, BAG, KINDS };

static const enum kind kind_of[NH_FASHION_CLASSES] = {
    UPPER, /* t-shirt */
    LOWER, /* trousers */
    UPPER, /* pullover */
    FULL,  /* dress */
    OUTER, /* coat */
    SHOE,  /* sandal */
    UPPER, /* shirt */
    SHOE,  /* sneaker */
    BAG,   /* bag */
    SHOE,  /* ankle boot */
};

static int read_labels(struct nh_fashion *set, gzFile file, const char *name)
{
    uint32_t n;
    int status = nh_idx_header(file, 1, &n, name);
    if (status)
        return status;
    if (n == 0 || n > NH_FASHION_MAX)
        return nh_fail(NH_FAILED, "'%s' claims %lu labels, but 1 to %d are read; get the file again", name,
                       (unsigned long)n, NH_FASHION_MAX);
    set->n = n;
    set->labels = malloc(n);
    if (!set->labels)
        return nh_fail(NH_FAILED, "no memory for the labels of '%s'", name);
    status = nh_idx_read(file, set->labels, n, "labels", name);
    for (size_t i = 0; !status && i < n; i++)
        if (set->labels[i] >= NH_FASHION_CLASSES)
            status = nh_fail(NH_FAILED, "'%s' has the label %d at item %zu, but classes are 0 to 9; get the file again",
                             name, set->labels[i], i);
    return status ? status : nh_idx_end(file, name);
}

static void reduce(unsigned char *patch, const unsigned char *image, int grid, int levels)
{
    const int side = EDGE / grid;
    for (int row = 0; row < grid; row++)
        for (int column = 0; column < grid; column++) {
            int sum = 0;
            for (int y = row * side; y < (row + 1) * side; y++)
                for (int x = column * side; x < (column + 1) * side; x++)
                    sum += image[y * EDGE + x];
            *patch++ = (unsigned char)(sum * levels / (256 * side * side));
        }
}

static int read_images(struct nh_fashion *set, gzFile file, const char *name, const char *labels_name)
{
    uint32_t size[3];
    int status = nh_idx_header(file, 3, size, name);
    if (status)
        return status;
    if (size[1] != EDGE || size[2] != EDGE)
        return nh_fail(NH_FAILED, "'%s' claims images of %lu x %lu, but they are 28 x 28; get the file again", name,
                       (unsigned long)size[1], (unsigned long)size[2]);
    if (size[0] != set->n)
        return nh_fail(NH_FAILED, "'%s' claims %lu images, but '%s' has %zu labels; get both files again", name,
                       (unsigned long)size[0], labels_name, set->n);
    const size_t patches = (size_t)(set->grid * set->grid);
    set->patches = malloc(set->n * patches); /* n labels have been read, so n is true and small */
    if (!set->patches)
        return nh_fail(NH_FAILED, "no memory for the images of '%s'; use a smaller --image-grid", name);
    for (size_t i = 0; i < set->n; i++) {
        unsigned char image[PIXELS];
        status = nh_idx_read(file, image, PIXELS, "images", name);
        if (status)
            return status;
        reduce(set->patches + i * patches, image, set->grid, set->levels);
    }
    return nh_idx_end(file, name);
}

int nh_fashion_read(struct nh_fashion *set, gzFile images, const char *images_name, gzFile labels,
                    const char *labels_name)
{
    set->labels = set->patches = NULL;
    const int status = read_labels(set, labels, labels_name);
    return status ? status : read_images(set, images, images_name, labels_name);
}

void nh_fashion_free(struct nh_fashion *set)
{
    free(set->labels);
    free(set->patches);
    set->labels = set->patches = NULL;
}

struct examples {
    struct nh_data data;
    struct nh_fashion set;
};

static int sequence(const struct nh_data *data, uint64_t number, int *tokens)
{
    const struct nh_fashion *set = &((const struct examples *)data)->set;
    const size_t patches = (size_t)(set->grid * set->grid), example = CAPTION + patches;
    uint64_t place = number * (uint64_t)data->seq; /* in the row of all examples */
    for (int t = 0, end; t < data->seq; t = end) {
        const size_t i = nh_data_order(data->key, set->n, place / example), from = place % example;
        const int left = data->seq - t, label = set->labels[i];
        const int caption[CAPTION] = {set->levels + (int)kind_of[label], set->levels + KINDS + label};
        end = t + ((size_t)left < example - from ? left : (int)(example - from));
        for (size_t k = from; t < end; t++, k++, place++)
            tokens[t] = k < CAPTION ? caption[k] : set->patches[i * patches + k - CAPTION];
    }
    return NH_OK;
}

static void release(struct nh_data *data)
{
    nh_fashion_free(&((struct examples *)data)->set);
}

static gzFile open_file(char *path, size_t size, const char *part, const char *rest)
{
    const char *folder = getenv("NH_FASHION_MNIST");
    if (!folder || !*folder)
        folder = "/usr/share/datasets/fashion-mnist"; /* Debian's dataset-fashion-mnist */
    snprintf(path, size, "%s/%s-%s", folder, part, rest);
    int fd;
    struct stat st;
    if (nh_input_open(&fd, &st, path, "install the package dataset-fashion-mnist or set NH_FASHION_MNIST to a folder that has it"))
        return NULL;
    gzFile file = gzdopen(fd, "rb");
    if (file) {
        gzbuffer(file, 1 << 18);
    } else {
        close(fd);
        nh_fail(NH_FAILED, "out of memory for '%s'", path);
    }
    return file;
}

static int load(struct nh_fashion *set, const char *part)
{
    char images_name[4096], labels_name[4096];
    int status = NH_FAILED;
    gzFile labels = NULL, images = open_file(images_name, sizeof images_name, part, "images-idx3-ubyte.gz");
    if (images)
        labels = open_file(labels_name, sizeof labels_name, part, "labels-idx1-ubyte.gz");
    if (labels)
        status = nh_fashion_read(set, images, images_name, labels, labels_name);
    gzclose(labels); /* both take NULL */
    gzclose(images);
    return status;
}

/* Sets the sizes that follow from the request, or says why they cannot be had. */
static int settle(struct examples *examples, const struct nh_data_request *request)
{
    const int grid = request->image_grid ? request->image_grid : 7,
              levels = request->image_levels ? request->image_levels : 32;
    if (grid < 1 || grid > EDGE || EDGE % grid)
        return nh_fail(NH_USAGE, "--image-grid %d does not divide 28 pixels; use 7, 14 or 28", grid);
    if (levels < 1 || levels > 256)
        return nh_fail(NH_USAGE, "--image-levels %d is out of range; use 1 to 256", levels);
    const int seq = CAPTION + grid * grid, vocab = levels + KINDS + NH_FASHION_CLASSES;
    if (request->vocab && request->vocab < vocab)
        return nh_fail(NH_USAGE,
                       "--vocab %d does not fit fashion-mnist, which at --image-levels %d has %d tokens; leave --vocab "
                       "out or use --vocab %d",
                       request->vocab, levels, vocab, vocab);
    examples->set.grid = grid;
    examples->set.levels = levels;
    examples->data.seq = request->seq ? request->seq : seq;
    examples->data.vocab = request->vocab ? request->vocab : vocab;
    return NH_OK;
}

static int open_fashion_mnist(struct nh_data **out, const struct nh_data_request *request)
{
    struct examples *examples = nh_data_new(sizeof *examples, request);
    if (!examples)
        return NH_FAILED;
    struct nh_data *data = &examples->data;
    struct nh_fashion *set = &examples->set;
    data->sequence = sequence;
    data->release = release;
    int status = settle(examples, request);
    if (!status)
        status = load(set, request->held_out ? "t10k" : "train");
    if (status) {
        nh_data_close(data);
        return status;
    }
    data->sequences = (uint64_t)set->n * (uint64_t)(CAPTION + set->grid * set->grid) / (uint64_t)data->seq;
    nh_data_digest_number(data, (uint64_t)set->levels);
    nh_data_digest(data, set->labels, set->n);
    nh_data_digest(data, set->patches, set->n * (size_t)(set->grid * set->grid));
    snprintf(data->what, sizeof data->what,
             "%zu Fashion-MNIST images of the %s set, 2 caption words and %d x %d patches in %d levels each", set->n,
             request->held_out ? "test" : "training", set->grid, set->grid, set->levels);
    *out = data;
    return NH_OK;
}

const struct nh_data_source nh_data_fashion_mnist = {
    .name = "fashion-mnist",
    .what = "Fashion-MNIST images: 2 caption words, then patch means in raster order (--image-grid, --image-levels)",
    .holds_out = true,
    .open = open_fashion_mnist,
};
