// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/cli.h"

const char nh_version[] = NH_VERSION; /* the build's own: meson.build */
