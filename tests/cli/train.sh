#!/usr/bin/env bash
# train.sh PROGRAM: the tables and the record of a run that trains, the same whatever threads and batches say, and its statuses.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
cd -- "$scratch"
small=(--width 16 --heads 2 --seq 8 --batch 2 --data uniform --vocab 32 --depth 2)
main=("${small[@]}" --layout sandwich --dtype fp16 --steps 30 --probe-every 8)
tables=(config.csv layers.csv sites.csv steps.csv)
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

# is TEXT WANTED
is() {
    [ "$1" = "$2" ] || say "'$1', not '$2'"
}

# has_status FOLDER STATUS
has_status() {
    is "$(field "$1" status)" "$2" && grep -qE "^status +$2," out
}

# number FOLDER NAME: a number in the training part of run.json.
number() {
    sed -n '/^  "training": {$/,/^  }/p' "$1/run.json" | sed -n "s/^    \"$2\": \\([^,]*\\),\\{0,1\\}\$/\\1/p"
}

# cells FOLDER COLUMN: of steps.csv.
cells() {
    column "$1/steps.csv" "$2"
}

# ---- tables ----

all_files() {
    run 0 "${main[@]}" --out main --threads 2 || return
    [ ! -s err ] || say "stderr: $(cat err)" || return
    holds main "${tables[@]}" run.json && has_status main ok
}
check 'a training writes its files' all_files
check 'steps.csv has the columns of the list' header main steps.csv

row_a_step() {
    diff <(seq 0 29) <(cells main step) && diff <(seq 1 30) <(cells main applied_step) || return
    diff <(seq 16 16 480) <(cells main tokens) || return # 2 x 8 a step
    is "$(cells main lr | sort -u)" 0.001 && is "$(cells main loss_scale | sort -u)" 65536 || return
    is "$(cells main skipped | sort -u)" 0 && is "$(cells main overflow_bwd | sort -u)" 0 || return
    is "$(cut -d, -f1-8 main/steps.csv | tail -n +2 | sort -u)" "$(field main run),,sandwich,2,fp16,plain,unit,0"
}
check 'a row for each step' row_a_step

# steps_of FOLDER TABLE STEP...: the steps that have rows, all the same number of them.
steps_of() {
    diff <(printf '%s\n' "${@:3}") <(column "$1/$2" step | uniq) || return
    is "$(column "$1/$2" step | uniq -c | awk '{ print $1 }' | sort -u | wc -l)" 1
}
check 'rows of layers at both ends and between' steps_of main layers.csv 0 8 16 24 29
check 'rows of sites at both ends and between' steps_of main sites.csv 0 8 16 24 29

looks() {
    run 0 "${small[@]}" --steps 5 --probe-every ends --out ends && steps_of ends layers.csv 0 4 || return
    run 0 "${small[@]}" --steps 9 --probe-every 4 --out even && steps_of even layers.csv 0 4 8 || return
    run 0 "${small[@]}" --steps 1 --out one && steps_of one sites.csv 0 || return
    run 0 "${small[@]}" --steps 3 --probe-every 1 --out each && steps_of each layers.csv 0 1 2
}
check 'looks of the probes' looks

the_law_at_the_start() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["layer"] > 0 && $at["layer"] < 3 && ($at["step"] == 0) != ($at["rms_theory"] != "") { print "line " NR; bad = 1 }
        END { exit bad }' main/layers.csv
}
check 'the law speaks of the start alone' the_law_at_the_start

first_look_is_that_of_no_training() {
    run 0 "${small[@]}" --layout sandwich --dtype fp16 --probes rms,grad,overflow --out look || return
    diff <(cut -d, -f2- look/layers.csv) <(cut -d, -f2- main/layers.csv | head -n 7)
}
check 'the first look is that of a run without training' first_look_is_that_of_no_training

no_probes() {
    run 0 "${main[@]:0:${#main[@]}-2}" --probes none --out bare && holds bare config.csv run.json steps.csv || return
    diff <(cut -d, -f2- bare/steps.csv) <(cut -d, -f2- main/steps.csv)
}
check 'probes change nothing' no_probes

validation() {
    run 0 "${small[@]}" --steps 10 --val-every 4 --out held || return
    is "$(cells held val_loss | awk '$0 != "" { printf "%d ", NR - 1 }')" '0 4 8 9 ' || return
    awk -v a="$(number held val_loss)" -v b="$(cells held val_loss | tail -n 1)" 'BEGIN { exit a + 0 != b + 0 }' || say 'another loss' || return
    run 0 "${small[@]}" --steps 10 --out end && is "$(cells end val_loss | awk '$0 != "" { printf "%d ", NR - 1 }')" '9 ' || return
    diff <(cut -d, -f2-17,19- held/steps.csv) <(cut -d, -f2-17,19- end/steps.csv) # val_loss is column 18
}
check 'validation, which changes nothing' validation

grows() {
    "$program" "${main[@]/30/1000000}" --threads 1 --out grows >out 2>err &
    local pid=$! size last=0 n=0 steps=
    while [ "$n" -lt 3 ]; do
        steps=$(compgen -G 'grows/steps.csv.????????.part') && size=$(stat -c %s "$steps") || size=0
        [ "$size" -le "$last" ] || n=$((n + 1)) last=$size
        kill -0 "$pid" || say "ended: $(cat err)" || return
        sleep 0.02
    done
    [[ ! -e grows/steps.csv && ! -e grows/layers.csv && ! -e grows/run.json && -s $(compgen -G "grows/layers.csv.????????.part") ]] || say "$(ls grows)"
    local status=$?
    kill -9 "$pid"
    wait "$pid" || true
    # each step is seen at once, and whole
    [ "$status" -eq 0 ] && [ -z "$(tail -c 1 "$steps")" ] || say 'half a row' || return
    awk -F, 'NR == 1 { n = NF } NF != n { print "line " NR; bad = 1 } END { exit bad }' "$steps"
}
check 'tables grow in files of another name' grows

record() {
    command -v python3 >/dev/null || skip 'no python3' || return
    python3 - main <<'END'
import csv, json, sys
run = json.load(open('main/run.json'), parse_constant=lambda word: sys.exit('not JSON: ' + word))
rows = list(csv.DictReader(open('main/steps.csv', newline='')))
losses, t = [float(r['loss']) for r in rows], run['training']
want = {'steps_done': 30, 'applied_steps': 30, 'skipped': 0, 'skipped_at_start': 0, 'start_loss': losses[0], 'val_loss': float(rows[-1]['val_loss']),
        'final_loss': sum(losses[-3:]) / 3, 'stopped_by': '', 'max_abs': max(float(r['max_abs']) for r in rows),
        'max_score': max(float(r['max_score']) for r in rows)}
for name, value in want.items():
    if t[name] != value and not (isinstance(value, float) and abs(t[name] - value) < 1e-12):
        sys.exit(f'{name} is {t[name]!r}, not {value!r}')
if run['loss'] != losses[-1] or run['loss_scale'] != 65536 or run['first_offender'] is not None:
    sys.exit('loss, scale or offender')
if run['config']['steps'] != '30' or 'resume' in run['config'] or 'momentum' in run['config']:
    sys.exit('config')
END
}
check 'run.json tells what training came to' record

# ---- the same numbers ----

threads() {
    run 0 "${main[@]}" --checkpoint-every 7 --threads 1 --out t1 && run 0 "${main[@]}" --checkpoint-every 7 --threads 2 --out t2 || return
    diff -rq --exclude=run.json t1 t2 && [ -s t1/checkpoint.safetensors ]
}
check 'threads leave tables and checkpoint as they are' threads

# near COLUMN FOLDER FOLDER: equal up to rounding in double.
near() {
    paste -d ' ' <(cells "$2" "$1") <(cells "$3" "$1") |
        awk -v name="$1" '{ d = $1 - $2; if (!(d < 1e-12 && d > -1e-12)) { print name ", step " NR - 1 ": " $0; bad = 1 } } END { exit bad || NR < 5 }'
}

accumulated() {
    seq 0 319 | awk '{ printf "%d%s", $1 * $1 * $1 % 31, NR % 8 ? " " : "\n" }' >ids # 40 sequences
    local common=("${small[@]:0:6}" --depth 2 --dtype fp64 --data tokens:ids --vocab 32 --steps 8 --lr 0.01)
    run 0 "${common[@]}" --batch 4 --out whole && run 0 "${common[@]}" --batch 2 --grad-accum 2 --out halves || return
    run 0 "${common[@]}" --batch 1 --grad-accum 4 --out quarters || return
    local part name
    for part in halves quarters; do
        for name in loss grad_norm tokens; do
            near "$name" whole "$part" || return
        done
    done
}
check 'batches of a step are one batch' accumulated

unscaled() {
    local common=("${small[@]}" --dtype fp64 --steps 2 --grad-accum 2 --probes grad)
    run 0 "${common[@]}" --loss-scale off --out off && run 0 "${common[@]}" --loss-scale 1024 --out scaled || return
    diff <(cut -d, -f2- off/layers.csv) <(cut -d, -f2- scaled/layers.csv) || return
    is "$(cells scaled loss_scale | sort -u)" 1024 && grep -q '"loss_scale": 1024.0' scaled/run.json || return
    # the second batch of a step, and the same batch as a step of its own on the same weights
    run 0 "${small[@]}" --dtype fp64 --steps 1 --grad-accum 2 --probes grad --out second || return
    run 0 "${small[@]}" --dtype fp64 --steps 2 --lr 1e-300 --probes grad --out alone || return
    diff <(column second/layers.csv grad_rms) <(column alone/layers.csv grad_rms | tail -n 6)
}
check 'gradients in the tables have no scale' unscaled

optimizers() {
    local optimizer
    for optimizer in adamw muon sgd; do
        run 0 "${small[@]/uniform/zipf}" --steps 40 --optimizer "$optimizer" --lr 0.01 --out "$optimizer" || return
        has_status "$optimizer" ok && cells "$optimizer" loss | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first) }' ||
            say "$optimizer" || return
    done
}
check 'every optimizer learns' optimizers

layouts() {
    local layout
    for layout in $("$program" list layouts | awk '{ print $1 }'); do
        run 0 "${small[@]/uniform/zipf}" --layout "$layout" --steps 3 --lr 0.01 --probes rms,grad,overflow,error --out "layouts/$layout" || return
        has_status "layouts/$layout" ok && steps_of "layouts/$layout" layers.csv 0 2 || say "$layout" || return
        ! column "layouts/$layout/layers.csv" rel_err | grep -qvE '^[0-9.e-]+$' || say "$layout: an error is missing" || return
        cells "layouts/$layout" grad_norm | awk '!($1 > 0) { exit 1 }' || say "$layout: no gradient" || return
    done
}
check 'every layout is trained' layouts

# ---- statuses ----

one_token() {
    run 0 --depth 2 "${small[@]:0:4}" --seq 1 --data uniform --vocab 32 --steps 5 --weight-decay 0.1 --out one_token || return
    grep -q -- '--seq 1' err || say "no word about it: $(cat err)" || return
    has_status one_token ok && is "$(cells one_token loss | sort -u)" 0 && is "$(cells one_token skipped | sort -u)" 0
}
check 'sequences of one token' one_token

# Gradients overflow until the scale is right: that is no offence of the run.
mended() {
    run 0 "${small[@]}" --policy megatron-fp16 --steps 40 --out mended && has_status mended ok || return
    is "$(number mended skipped)" "$(cells mended skipped | grep -c 1)" || return
    is "$(number mended skipped_at_start)" "$(cells mended applied_step | grep -cx 0)" && [ "$(number mended skipped_at_start)" -gt 3 ] || return
    offence mended first_backward >backward_of_mended
    grep -qx 'step 0' backward_of_mended && grep -qx 'kind overflow' backward_of_mended || return
    is "$(offence mended first_offender)$(offence mended first_forward)" '' || return
    is "$(cells mended loss_scale | head -n 3 | tr '\n' ' ')" '4294967296 4294967296 2147483648 ' || return # the first is let pass
    cells mended changed | paste -d ' ' - <(cells mended skipped) | awk '($1 == 0) != ($2 == 1) { exit 1 }'
}
check 'overflows that a scaler mends' mended

forward_overflow() {
    run 0 "${small[@]}" --layout sandwich --dtype fp16 --post-gain 1e5 --steps 100 --out forward && has_status forward diverged || return
    is "$(wc -l <forward/steps.csv)" 18 && is "$(number forward skipped)" 17 && is "$(number forward applied_steps)" 0 || return
    steps_of forward layers.csv 0 16 || return # the last look is where it stops
    is "$(cells forward loss_scale | tail -n 2 | tr '\n' ' ')" '2 1 ' && is "$(cells forward loss | sort -u)" nan || return
    grep -qE '^stopped +the forward pass is not finite' out && grep -q '"stopped_by": "the forward' forward/run.json || return
    offence forward first_offender | grep -qx 'direction fwd' && offence forward first_offender | grep -qx 'step 0'
}
check 'a forward pass that is not finite' forward_overflow

backward_overflow() {
    run 0 --width 16 --heads 2 --depth 2 --data uniform --vocab 32 --batch 1 --seq 2 --dtype e4m10 --embed-rms 1e-3 --eps 0 --steps 99 \
        --out backward && has_status backward diverged || return
    is "$(wc -l <backward/steps.csv)" 18 && is "$(cells backward overflow_fwd | sort -u)" 0 || return
    grep -qE '^stopped +gradients are not finite' out || return
    is "$(offence backward first_forward)" '' && offence backward first_backward | grep -qx 'step 0' || return
    offence backward first_offender | grep -qx 'step 16'
}
check 'gradients that are not finite at any scale' backward_overflow

fixed_scale() {
    run 0 "${small[@]}" --dtype fp16 --loss-scale 1e9 --steps 100 --out fixed && has_status fixed diverged || return
    is "$(wc -l <fixed/steps.csv)" 2 && is "$(offence fixed first_offender)" "$(offence fixed first_backward)" || return
    offence fixed first_offender | grep -qE '^direction (bwd|wgrad)$'
}
check 'a fixed scale that is too large' fixed_scale

worse_than_at_the_start() {
    run 0 "${small[@]}" --optimizer adamw --lr 1 --steps 50 --out worse && has_status worse diverged || return
    grep -q '"stopped_by": ""' worse/run.json && is "$(wc -l <worse/steps.csv)" 51 || return
    is "$(offence worse first_offender)" '' && grep -qE '"loss": [0-9.]+' worse/run.json
}
check 'a loss that rises' worse_than_at_the_start

# One token in some hundreds leaves the format: its batch is skipped, the next ones are healthy.
overflowed() {
    local seed
    for ((seed = 0; seed < 40; seed++)); do
        run 0 --depth 1 --width 16 --heads 2 --data zipf --vocab 64 --batch 1 --seq 4 --dtype e4m10 --embed-scale 80 --steps 12 \
            --seed "$seed" --probes overflow --probe-every ends --out over --force || return
        [ "$(field over status)" != overflowed ] || break
    done
    has_status over overflowed || return
    local step
    step=$(offence over first_forward | sed -n 's/^step //p')
    is "$(cells over overflow_fwd | awk '$1 > 0 { print NR - 1; exit }')" "$step" || return
    diff <(printf '%s\n' 0 "$step" 11 | sort -nu) <(column over/sites.csv step | uniq) || return # the probes look there
    is "$(offence over first_offender)" "$(offence over first_forward)" && grep -qE '"loss": [0-9.]+' over/run.json
}
check 'a forward overflow that passes' overflowed

# One update with this rate leaves no finite weight; the loss before it was a healthy one.
broken_validation() {
    run 0 --depth 1 --width 16 --heads 2 --layout pre --data zipf --vocab 32 --seq 8 --batch 2 --optimizer sgd --momentum 0 --lr 1e30 \
        --clip off --steps 1 --probes none --out gone || return
    is "$(cells gone val_loss)" nan && is "$(field gone status)" diverged && grep -q '"val_loss": "nan"' gone/run.json
}
check 'a validation that is nan is written, and no run with one is well' broken_validation

# ---- beside other runs ----

finished() {
    local was
    was=$(stat -c '%n %i %y' main/*)
    run 0 "${main[@]}" --out main --resume && is "$(head -n 1 out)" 'main is there already, finished; --force runs it again' || return
    grep -q '^training  30 of 30 steps' out || say "$(cat out)" || return
    is "$(stat -c '%n %i %y' main/*)" "$was" || return
    echo mark >>main/steps.csv # no more what its run.json tells of
    run 0 "${main[@]}" --out main && is "$(wc -l <main/steps.csv)" 31
}
check 'a finished training is not run again' finished

other_runs() {
    sha256sum main/* >before
    refused 2 'another configuration' "${main[@]}" --lr 0.002 --out main && refused 2 'another configuration' "${small[@]}" --out main || return
    sha256sum --quiet -c before || return
    cp -r t1 again && run 0 "${small[@]}" --probes none --out again --force && holds again config.csv layers.csv run.json
}
check 'a training beside other runs' other_runs

dry_run() {
    local one many
    one=$("$program" "${small[@]}" --steps 1 --probes none --dry-run | sed -n 's/.*; \([0-9.e+]*\) in all.*/\1/p')
    many=$("$program" "${small[@]}" --steps 500 --grad-accum 2 --probes none --dry-run | sed -n 's/.*; \([0-9.e+]*\) in all.*/\1/p')
    awk -v one="$one" -v many="$many" 'BEGIN { r = many / one; exit !(r > 250 && r < 1001) }' || say "$one, $many"
}
check 'a dry run counts all steps' dry_run

# facts RUN EXPRESSION: of run.json as r.
facts() {
    python3 -c 'import json, sys; r = json.load(open(sys.argv[1] + "/run.json")); t = r["training"]; assert eval(sys.argv[2]), r' "$@"
}

nan_is_measured() {
    run 0 "${small[@]}" --steps 1 --optimizer sgd --momentum 0 --lr 1e30 --z-loss 1000 --clip off --probes none --out broken || return
    is "$(cells broken val_loss)" nan && facts broken 'r["status"] == "diverged" and t["val_loss"] == "nan"' || return
    ! grep -rqe -nan broken out
}
check 'a validation that is NaN is written, and the run is not ok' nan_is_measured

offender_of_the_optimizer() {
    run 0 "${small[@]}" --steps 3 --optimizer sgd --momentum 0 --lr 3e38 --z-loss 1000 --clip off --probes overflow --out leaves || return
    facts leaves 'r["status"] == "diverged" and r["first_offender"] == r["first_update"]' &&
        facts leaves '[r["first_offender"][k] for k in ("step", "site", "direction", "tensor", "kind")] == [0, "weight", "update", "embed", "overflow"]' || return
    grep -q ',weight,update,[1-9]' leaves/sites.csv && ! grep -rqe -nan leaves out || return
    run 0 "${small[@]}" --steps 1 --beta2 .999 --clip off --roles moment=fp16 --probes overflow --out lost || return
    facts lost 'r["status"] == "overflowed" and r["first_offender"]["site"] == "moment_2" and r["first_offender"]["kind"] == "underflow"'
}
check 'an offence of the optimizer is named with step, tensor and index' offender_of_the_optimizer

unchanged_parameters() {
    run 0 "${small[@]}" --layout sandwich --dtype bf16 --roles master=dtype --lr 1e-6 --steps 3 --probes none --out still || return
    grep -q '^unchanged .* of .* tensors .* in all 3 steps: ' out || return
    facts still 'all(c["tensors_unchanged"] == 2 and c["numbers_changed"] == 0 for c in t["changed"] if c["name"].endswith("norm_post.gain"))'
}
check 'parameters that no update has changed are named' unchanged_parameters

interrupted_early() {
    env --default-signal=INT "$program" "${small[@]}" --steps 1000000 --probes none --out early >out 2>err &
    local pid=$!
    until grep -qs ',' early/steps.csv.*.part; do
        kill -0 "$pid" || return
        sleep 0.05
    done
    kill -INT "$pid"
    wait "$pid" # ends by that signal
    facts early 'r["status"] == "interrupted" and t["final_loss"] is None and t["val_loss"] is None' && grep -q 'of the last tenth not measured' out
}
check 'what an interrupted run has not measured is null' interrupted_early

done_testing
