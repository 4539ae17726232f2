#!/usr/bin/env bash
# make_large.sh [ROWS] > layers.csv: layers.csv of many runs joined, ten million rows unless told otherwise, to measure
# `harness compare layers.csv` by hand:
#     /usr/bin/time -v harness compare layers.csv
# Runs of 60 layers, five layouts, one row in 200 000 with an overflow; digits as many as a real run has.
set -euo pipefail
LC_ALL=C awk -v rows="${1:-10000000}" '
BEGIN {
    split("pre post sandwich sandwich-depth sandwich-l", layouts, " ")
    print "run,label,layout,depth,dtype,policy,init,seed,step,layer,sublayer,stream,rms,rms_theory,max_abs,kurtosis," \
        "token_cos,branch_rms,branch_raw_rms,grad_rms,jac_fro,jac_fro_se,jac_spec,overflow,nan_made,propagated," \
        "zero_made,underflow,subnormal,total,overflow_bwd,rel_err"
    for (row = 0; row < rows; row++) {
        run = int(row / 122)
        k = row % 122 # 0 = the embedding, then two sublayers a layer, last the final norm
        if (k == 0)
            keys = sprintf("r%08x,,%s,60,fp16,plain,unit,%d,0", run, layouts[run % 5 + 1], int(run / 5))
        x = sqrt(1 + k) * (1 + 0.03 * sin(run))
        printf "%s,%d,%s,0,%.17g,%.17g,%.17g,3.01234567890123456,0.12345678901234567,0.99912345678901234," \
            "1.0012345678901234,%.17g,1.0061234567890123,0.0031234567890123456,2.0921234567890123,%d,0,0,0,1,2,26112,0,\n", \
            keys, int((k + 1) / 2), k == 0 ? "embed" : k == 121 ? "final" : k % 2 ? "attn" : "ffn", x, sqrt(1 + k), \
            4 * x, 0.001 / x, row % 200000 == 199999
    }
}'
