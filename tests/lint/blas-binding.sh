#!/usr/bin/env bash
# blas-binding.sh PROGRAM: cblas_ names must come from OpenBLAS, never from GSL's slow stand-in.
set -euo pipefail
# Lines read: binding file PROGRAM [0] to LIBRARY [0]: normal symbol `cblas_sgemm'. What the two libraries bind among
# themselves is their own affair.
bindings=$(LD_BIND_NOW=1 LD_DEBUG=bindings "$1" --version 2>&1 |
    grep -F "symbol \`cblas_" | grep -Ev 'file [^ ]*lib(gslcblas|openblas)' || true)
if [ -z "$bindings" ]; then
    echo "no cblas_ name was bound: the program does not call BLAS, or the loader is silent"
    exit 1
fi
if grep -v ' to [^ ]*libopenblas' <<<"$bindings"; then
    echo "the lines above bind elsewhere than to libopenblas"
    exit 1
fi
