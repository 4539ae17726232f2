#!/usr/bin/env bash
# compare.sh PROGRAM: harness compare on joined files, run folders and wrong input.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
data=${NH_TEST_DATA:?}/compare
n=0
failed=0

# check NAME COMMAND...: one line of TAP; well if COMMAND succeeds. What it prints is shown where it fails.
check() {
    local name=$1
    shift
    n=$((n + 1))
    if "$@" >said 2>&1; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name: $(head -c 500 said | tr '\n' ' ')"
        failed=1
    fi
}

# compare ARGS...: succeeds without a word on stderr; its output is in the file out.
compare() {
    "$program" compare "$@" >out 2>err || { echo "exit code $?: $(cat err)"; return 1; }
    [ ! -s err ] || { echo "stderr: $(cat err)"; return 1; }
}

# refused STATUS PATTERN ARGS...: the exit code, and one sentence that says PATTERN, and no output.
refused() {
    local want=$1 pattern=$2 status=0
    shift 2
    "$program" compare "$@" >out 2>err || status=$?
    if [ "$status" -ne "$want" ] || [ -s out ] || [ "$(wc -l <err)" -ne 1 ] || ! grep -q '^harness: ' err ||
        ! grep -qF -- "$pattern" err; then
        echo "exit code $status: $(cat err)"
        return 1
    fi
}

# says TEXT...: lines of the output, blanks in a row being one; in this order.
says() {
    local text line=0 at
    for text in "$@"; do
        at=$(tr -s ' ' <out | grep -nxF -- "$text" | head -n 1 | cut -d: -f1)
        [ "${at:-0}" -gt "$line" ] || { echo "missing: $text in: $(cat out)"; return 1; }
        line=$at
    done
}

# cell COLUMN ROW: of CSV without quotes in out.
cell() {
    awk -F, -v name="$1" -v row="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) k = i }
        NR == row + 1 { print k ? $k : "no column" }' out
}

# cells ROW NAME=VALUE...
cells() {
    local row=$1 pair
    shift
    for pair in "$@"; do
        [ "$(cell "${pair%%=*}" "$row")" = "${pair#*=}" ] || { echo "not $pair in row $row: $(cat out)"; return 1; }
    done
}

# split FILE FOLDER: a folder for each run of a joined file. FILE-sites.csv and FILE-config.csv come along.
split_runs() {
    local base=${1%.csv} table
    rm -rf -- "$2"
    for table in layers sites config; do
        local file=$base-$table.csv
        [ "$table" != layers ] || file=$1
        [ -f "$file" ] || continue
        awk -F, -v folder="$2" -v table="$table" 'NR == 1 { head = $0; next }
            { path = folder "/" $1
              if (!(path in seen)) { system("mkdir -p " path); print head >(path "/" table ".csv"); seen[path] = 1 }
              print >(path "/" table ".csv") }' "$file"
    done
}

# diverged runs

no_bare_mean() {
    compare "$data/diverged.csv" && says 'sandwich 4 ok 2.505 +- 0.0065 2.6 14 4 0 -' \
        'pre 4 2 of 4 diverged - - - - 14 layer 2 attn (2 of 4)' || return
    compare "$data/diverged.csv" --csv && cells 1 layout=sandwich n=4 ok=4 diverged=0 final_rms_law=2.6 max_abs=14 grad_ratio=4 overflow=0 &&
        cells 2 layout=pre n=4 ok=2 diverged=2 final_rms= final_rms_se= final_rms_law= exponent= max_abs= headroom_bits= \
            grad_ratio= overflow=14 first_layer=2 first_sublayer=attn first_runs=2 || return
    compare "$data/diverged.csv" --json && python3 - <<'END'
import json
sandwich, pre = json.load(open('out'))
assert abs(sandwich['final_rms'] - 2.505) < 1e-12 and sandwich['n'] == 4, sandwich
assert pre['diverged'] == 2 and pre['final_rms'] is None and pre['max_abs'] is None and pre['overflow'] == 14, pre
assert type(pre['n']) is int and list(pre) == list(sandwich)
END
}
check 'a group with diverged runs has no mean and comes last' no_bare_mean

record_decides() {
    split_runs "$data/diverged.csv" runs || return
    local run=runs/rc0000202 # seed 1 of sandwich
    echo '{"run": "rc0000202", "status": "diverged", "first_offender": {"layer": 1, "sublayer": "ffn", "site": "ffn_out"}}' >"$run/run.json"
    compare runs && says 'sandwich 4 1 of 4 diverged 0 ffn_out, layer 1 ffn (1 of 4)' \
        'pre 4 2 of 4 diverged 14 layer 2 attn (2 of 4)'
}
check 'run.json tells a divergence that the rows do not show' record_decides

# exponents

exponents() {
    compare "$data/power.csv" --csv && cells 1 layout=post exponent= exponent_law= pooled=depth && cells 2 layout=pre n=8 pooled=depth || return
    awk -v p="$(cell exponent 2)" -v q="$(cell exponent_law 2)" -v se="$(cell exponent_se 2)" \
        'BEGIN { exit !(p - .75 < 1e-14 && .75 - p < 1e-14 && q - .5 < 1e-14 && .5 - q < 1e-14 && se < 1e-14) }' || { cat out; return 1; }
    compare "$data/power.csv" --by layout --by depth && says 'pre 2 2 ok 0.8409 +- 0 2.828 20 1 0' \
        'post 2 1 ok 1 1 4 1 0' 'pre 16 2 ok 4 +- 0 8 20 1 0' || return
    compare "$data/power.csv" && tr -s ' ' <out | grep -q '^pre 8 ok 2.158 +- 0.45 5.121 0.75 (se [0-9.e-]*) 0.5 20 1 0 depth$'
}
check 'exponents of power laws, where there are three depths' exponents

# folders and files

same_either_way() {
    local options
    split_runs "$data/ablation.csv" runs || return
    for options in '' '--by label' '--by label --by seed --json' '--by width --by post-gain --csv' '--baseline base --csv'; do
        # shellcheck disable=SC2086 # several words
        compare "$data"/ablation{,-sites,-config}.csv $options && mv out joined || return
        # shellcheck disable=SC2086
        compare runs $options && cmp out joined || return
        # shellcheck disable=SC2086
        compare runs/* $options && cmp out joined || return
        # shellcheck disable=SC2086
        compare "$data"/ablation{-config,-sites,}.csv $options && cmp out joined || return
    done
}
check 'joined files, run folders and a folder of these say the same' same_either_way

what_differs() {
    compare "$data"/ablation{,-config}.csv --by width --csv && cells 1 width=64 pooled= && grep -q '^32,.*,"label, post-gain"$' out
}
check 'what else differs in a row, seeds apart' what_differs

line_ends() {
    compare "$data/ablation.csv" --by label && mv out lf || return
    sed 's/$/\r/' "$data/ablation.csv" >crlf.csv
    head -c -1 "$data/ablation.csv" >cut.csv
    compare crlf.csv --by label && cmp out lf && compare cut.csv --by label && cmp out lf
}
check 'CR LF, and no newline at the end' line_ends

nested() {
    split_runs "$data/diverged.csv" deep/er/runs && compare "$data/diverged.csv" && mv out flat && compare deep/ && cmp out flat
}
check 'run folders further below' nested

many_rows() {
    bash "$data/make_large.sh" 200000 >large.csv && compare large.csv --by dtype --csv && cells 1 dtype=fp16 n=1640 ok=1639 \
        interrupted=1 overflow=1 first_layer=21 first_sublayer=attn pooled=layout
}
check '200 000 rows' many_rows

real_runs() {
    local seed
    for seed in 0 1; do
        "$program" --depth 2 --width 16 --heads 2 --data zipf --vocab 16 --seq 8 --batch 2 --threads 1 --dtype fp16 --seed "$seed" \
            --probes rms,grad,overflow --out "real/$seed" >out 2>err || { cat err; return 1; }
    done
    compare real --by width --by seed --csv || return
    local rms bits
    rms=$(awk -F, '$10 == 2 && $11 == "ffn" { print $13 }' "real/$(cell seed 1)/layers.csv")
    bits=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } $13 == "fwd" { print $at["headroom_bits"] }' "real/$(cell seed 1)/sites.csv" | sort -g | head -n 1)
    cells 1 width=16 n=1 ok=1 "final_rms=$rms" headroom_site=residual "headroom_bits=$bits"
}
check 'runs of this program' real_runs

# trainings and sweeps

# train FOLDER OPTION...: a small training
train() {
    "$program" --depth 1 --width 16 --heads 2 --data zipf --vocab 32 --seq 8 --batch 2 --threads 1 --steps 4 --out "$1" "${@:2}" >said.train 2>&1 ||
        { cat said.train; return 1; }
}

# join_tables FOLDER: the tables of the runs in it as one each, as a sweep leaves them.
join_tables() {
    local table
    for table in layers sites steps config; do
        if compgen -G "$1/*/$table.csv" >/dev/null; then
            awk 'NR == 1 || FNR > 1' "$1"/*/"$table.csv" >joined.csv && mv joined.csv "$1/$table.csv" || return
        fi
    done
}

cells_tell_runs_apart() {
    local seed rate
    for seed in 0 1; do
        for rate in 0.01 3; do
            train "rates/lr=$rate-$seed" --lr "$rate" --seed "$seed" --probes rms,overflow || return
        done
        train "scales/scale=1024-$seed" --loss-scale 1024 --dtype fp16 --seed "$seed" --probes none &&
            train "scales/scale=1e30-$seed" --loss-scale 1e30 --dtype fp16 --seed "$seed" --probes none || return
    done
    join_tables rates && join_tables scales || return
    compare rates/*/ --by layout --by lr --csv && cells 1 lr=0.01 n=2 ok=2 pooled= && cells 2 lr=3 n=2 diverged=2 || return
    mv out cells && compare rates --by layout --by lr --csv && cmp cells out || return
    compare rates/layers.csv rates/sites.csv rates/steps.csv --by layout --by lr --csv && cmp cells out || return
    compare rates/layers.csv --by lr && says 'lr n status final rms max|x| steps final loss validation loss scale skipped overflow' || return
    compare scales/*/ --by loss-scale --csv && mv out cells && compare scales --by loss-scale --csv && cmp cells out &&
        compare scales/steps.csv --by loss-scale --csv && cmp cells out
}
check 'a sweep is read by its cells, and their run.json tells how they ended' cells_tell_runs_apart

trainings_without_probes() {
    compare scales --by loss-scale --csv && python3 - <<'END'
import csv, json, math, statistics
rows = {row['loss-scale']: row for row in csv.DictReader(open('out', newline=''))}
records = [json.load(open(f'scales/scale=1024-{seed}/run.json')) for seed in (0, 1)]
row = rows['1024']
for column, field in ('final_loss', 'final_loss'), ('val_loss', 'val_loss'):
    values = [r['training'][field] for r in records]
    assert math.isclose(float(row[column]), sum(values) / 2, rel_tol=1e-12), (row, values)
    assert math.isclose(float(row[column + '_se']), statistics.stdev(values) / math.sqrt(2), rel_tol=1e-9), (row, values)
assert (row['steps_done'], row['steps_done_max'], row['loss_scale'], row['skipped'], row['n']) == ('4', '4', '1024', '0', '2'), row
assert row['final_rms'] == '' and row['overflow'] == '0' and row['first_step'] == ''
dead = rows['1e+30'] if '1e+30' in rows else rows['1e30']
records = [json.load(open(f'scales/scale=1e30-{seed}/run.json')) for seed in (0, 1)]
assert dead['diverged'] == '2' and dead['final_loss'] == '' and dead['skipped'] == str(sum(r['training']['skipped'] for r in records)), dead
first = records[0]['first_offender']
assert [dead['first_' + k] for k in ('layer', 'sublayer', 'site', 'direction', 'step')] == [str(first[k]) for k in
    ('layer', 'sublayer', 'site', 'direction', 'step')], dead
END
}
check 'trainings without probes are compared by losses, steps, loss scale' trainings_without_probes

rows_alone() {
    mkdir -p alone && cp rates/steps.csv rates/config.csv alone && compare rates --by lr --csv && mv out cells && compare alone/steps.csv --by lr --csv || return
    python3 - <<'END'
import csv, math
for a, b in zip(csv.DictReader(open('cells', newline='')), csv.DictReader(open('out', newline=''))):
    for column in 'n', 'ok', 'diverged', 'steps_done', 'skipped', 'val_loss', 'final_loss', 'loss_scale':
        assert a[column] == b[column] or math.isclose(float(a[column]), float(b[column]), rel_tol=1e-14), (column, a, b)
END
}
check 'rows alone tell the same of trainings' rows_alone

samples() {
    local probes
    for probes in none rms rms,grad,overflow; do
        train "sampled/$probes" --probes "$probes" || return
    done
    train sampled/other --seed 1 --probes none || return
    compare sampled --csv && cells 1 n=2 ok=2 steps_done=4 pooled= || return
    [ -n "$(cell grad_ratio 1)" ] && [ -n "$(cell final_rms 1)" ] || return
    compare sampled/other sampled/none --csv && python3 - <<'END'
import csv
print(next(csv.DictReader(open('out', newline='')))['final_loss_se'], file=open('se', 'w'))
END
    compare sampled --csv && cells 1 "final_loss_se=$(cat se)" || return
    sed -i 's/"final_loss": [0-9.]*/"final_loss": 9/' sampled/rms/run.json
    "$program" compare sampled >out 2>err && [ "$(wc -l <err)" -eq 1 ] && grep -q 'sampled/none/.* and sampled/rms/.* of one sample.* final loss is .* and 9' err
}
check 'a sample that was measured twice counts once, and differences are told' samples

damaged_runs() {
    rm -rf hurt && cp -r rates hurt && rm hurt/*.csv || return
    compare hurt --by lr || return
    head -n -1 hurt/lr=3-1/steps.csv >shorter && cp shorter hurt/lr=3-1/steps.csv && refused 1 'hurt/lr=3-1/steps.csv has' hurt --by lr || return
    rm hurt/lr=3-1/steps.csv && refused 1 'hurt/lr=3-1/steps.csv is missing' hurt --by lr || return
    head -c 700 "rates/lr=3-1/layers.csv" >hurt/lr=3-1/layers.csv && refused 1 'hurt/lr=3-1/layers.csv' hurt --by lr || return
    rm -r hurt/lr=3-1 && cp rates/config.csv hurt && cp rates/layers.csv hurt && refused 1 'which is in no folder beside it' hurt --by lr || return
    rm -r hurt/lr=* && compare hurt/ --by lr --csv && cells 1 n=2
    [ "$(id -u)" -ne 0 ] || return 0
    cp -r rates locked && rm locked/*.csv && chmod 0 locked/lr=3-1/steps.csv && refused 1 'locked/lr=3-1/steps.csv' locked || return
    chmod 600 locked/lr=3-1/steps.csv && chmod 0 locked/lr=3-1 && refused 1 'locked/lr=3-1' locked || return
    chmod 700 locked/lr=3-1
}
check 'a damaged run is named, and nothing is compared without it' damaged_runs

broken_off() {
    rm -rf off && cp -r rates off && rm off/*.csv off/lr=3-1/run.json off/lr=0.01-1/{layers,sites}.csv || return
    local file
    for file in layers sites steps; do
        head -c -9 "rates/lr=3-1/$file.csv" >"off/lr=3-1/$file.csv.0123abcd.part" && rm "off/lr=3-1/$file.csv" || return
    done
    sed -i 's/"files": {[^}]*}/"files": {}/; s/"status": "ok"/"status": "interrupted"/' off/lr=0.01-1/run.json
    python3 -c '
import json
path = "off/lr=0.01-1/run.json"
record = json.load(open(path))
record["files"], record["status"] = {}, "interrupted"
json.dump(record, open(path, "w"))'
    compare off --by layout && says 'pre 4 1 of 4 diverged, 1 interrupted, 1 broken off 3..4 1 0 0 lr' &&
        compare off --csv && cells 1 n=4 ok=1 diverged=1 interrupted=1 broken_off=1 steps_done=3
}
check 'runs that were interrupted and those that were broken off are told apart' broken_off

# baseline

against_baseline() {
    compare "$data"/ablation{,-sites}.csv --baseline base && says 'other-seeds 2 ok ok 0 -0.3333 +- 1.3 0 +- 0 2.667 +- 3.5 0 +- 0 1 0 +- 0' \
        'gain, "2" 3 ok ok 3 2 +- 0.29 0 +- 0 1 +- 0 -0.5 +- 0 4 0 +- 0' 'broken 2 1 of 2 diverged ok 2 - - - - - -' || return
    compare "$data"/ablation{,-config}.csv --baseline base --by width --json && python3 - <<'END'
import json, math
rows = {row['label']: row for row in json.load(open('out'))}
gain = rows['gain, "2"']
assert gain['pairs'] == 3 and gain['width'] == '32' and gain['final_rms_change'] == 2, gain
assert abs(gain['final_rms_change_se'] - 0.5 / math.sqrt(3)) < 1e-14 and gain['grad_ratio_factor'] == 4, gain
assert rows['other-seeds']['baseline_n'] == 0 and rows['other-seeds']['final_rms_change'] is None
assert rows['broken']['final_rms_change'] is None and 'base' not in rows
END
}
check 'changes against a baseline, by seed' against_baseline
check 'a label that no run has' refused 2 "there are 'other-seeds', 'base'" "$data/ablation.csv" --baseline bsae
check 'no labels' refused 2 'no run has a label' "$data/diverged.csv" --baseline x

only_baseline() {
    grep -E '^run|,base,' "$data/ablation.csv" >base.csv && refused 2 'all runs have the label' base.csv --baseline base
}
check 'nothing but the baseline' only_baseline
check 'the label twice' refused 2 'leave --by label out' "$data/ablation.csv" --baseline base --by label

# output

quoted() {
    compare "$data/ablation.csv" --by label --csv && grep -q '^"gain, ""2""",3,' out && [ "$(grep -c $'\r' out)" -eq 0 ] && python3 - <<'END'
import csv
rows = list(csv.reader(open('out', newline='')))
assert len(rows) == 5 and {len(row) for row in rows} == {len(rows[0])}, rows
assert rows[3][0] == 'gain, "2"', rows
END
}
check 'CSV as RFC 4180 asks' quoted

hostile_label() {
    sed $'s/,base,/,\e[2J\xff,/' "$data/ablation.csv" >hostile.csv && compare hostile.csv --by label && ! LC_ALL=C grep -q '[^ -~]' out &&
        refused 1 'not UTF-8' hostile.csv --by label --json
}
check 'control characters and broken UTF-8 stay in the file' hostile_label

nan_among_the_finite() {
    split_runs "$data/diverged.csv" runs || return
    local run
    for run in runs/*; do
        echo "{\"run\": \"${run#*/}\", \"status\": \"ok\", \"first_offender\": null}" >"$run/run.json"
    done
    compare runs --json && grep -q '"final_rms": "nan"' out && compare runs --csv && cells 2 layout=pre final_rms=nan max_abs=inf
}
check 'nan where run.json says ok is shown as nan' nan_among_the_finite

help_is_narrow() {
    compare --help && grep -q '^Usage: harness compare DIR|CSV' out && ! LC_ALL=C grep -nE '[[:cntrl:]]| $|.{101}' out || return
    "$program" --help >out && grep -q '^  harness compare DIR|CSV' out
}
check help help_is_narrow

full_disk() {
    local status=0 option
    [ -w /dev/full ] || return 0
    for option in --csv --json --by=layout; do
        status=0
        "$program" compare "$data/diverged.csv" "$option" >/dev/full 2>err || status=$?
        if [ "$status" -ne 1 ] || [ "$(wc -l <err)" -ne 1 ]; then
            echo "exit code $status with $option"
            return 1
        fi
    done
}
check 'a full standard output is a failure' full_disk

# wrong words

check 'no words' refused 2 'folders or CSV files'
check 'options alone' refused 2 'folders or CSV files' --csv
check 'an option that is near' refused 2 'did you mean --baseline?' "$data/power.csv" --bseline x
check 'an option of a run' refused 2 "no option '--depth'" "$data/power.csv" --depth=3
check 'one dash' refused 2 "no option '-x'" "$data/power.csv" -x
check 'two dashes' refused 2 "no option '--'" -- "$data/power.csv"
check '--by without a name' refused 2 '--by needs a value' "$data/power.csv" --by
check '--by= without a name' refused 2 '--by needs a value' "$data/power.csv" --by=
check '--baseline before an option' refused 2 '--baseline needs a value' "$data/power.csv" --baseline --csv
check '--by twice' refused 2 'given twice' "$data/power.csv" --by depth --by=depth
check '--baseline twice' refused 2 'given twice' "$data/power.csv" --baseline a --baseline b
check 'two formats' refused 2 'keep one' "$data/power.csv" --csv --json
check 'a switch with a value' refused 2 "no option '--csv'" "$data/power.csv" --csv=on
check 'a name that is near' refused 2 'did you mean depth?' "$data/power.csv" --by dpeth
check 'an option of config.csv that is near' refused 2 'did you mean width?' "$data"/ablation{,-config}.csv --by widht
check 'an option without config.csv' refused 2 'config.csv' "$data/ablation.csv" --by width

# wrong files

check 'no such file' refused 1 'nothing.csv: No such file' nothing.csv
empty_folder() {
    mkdir -p hollow/run && refused 1 'hollow holds no run' hollow
}
check 'a folder without runs' empty_folder
: >empty.csv
check 'an empty file' refused 1 'is empty' empty.csv
check 'other columns' refused 1 "no column 'run'" "$data/../csv/sweep_with_diverged.csv"
check 'sites alone' refused 1 'no runs' "$data/ablation-sites.csv"
run_twice() {
    cp "$data/power.csv" copy.csv && refused 1 'power.csv and in copy.csv' "$data/power.csv" copy.csv || return
    compare "$data/power.csv" && mv out once && ln -s "$data/power.csv" link.csv && compare "$data/power.csv" link.csv "$data/../compare/power.csv" &&
        cmp once out || return
    compare runs && mv out once && compare runs runs/* runs/ && cmp once out
}
check 'a run in two files is refused, one file given twice counts once' run_twice

missing_column() {
    local column
    for column in run depth seed step layer sublayer stream rms max_abs grad_rms overflow; do
        awk -F, -v name="$column" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) k = i }
            { line = ""; for (i = 1; i <= NF; i++) if (i != k) line = line (line == "" ? "" : ",") $i; print line }' "$data/power.csv" >less.csv
        refused 1 "no column '$column'" less.csv || { echo "$column: $(cat err)"; return 1; }
    done
}
check 'missing columns are named' missing_column

joined_badly() {
    cat "$data/power.csv" "$data/diverged.csv" >twice.csv && refused 1 'repeats the header' twice.csv || return
    cat "$data/ablation.csv" "$data/ablation-sites.csv" >mixed.csv && refused 1 'fields' mixed.csv || return
    { cat "$data/power.csv" && tail -n +2 "$data/power.csv"; } >again.csv && refused 1 'a second time' again.csv
}
check 'a repeated header, a mixed one, repeated rows' joined_badly

decimal_comma() {
    sed '3s/,1.5,/,"1,5",/' "$data/diverged.csv" >comma.csv # not in a column of use
    sed '6s/,2.4,/,"2,4",/' "$data/diverged.csv" >comma2.csv
    compare comma.csv && refused 1 "'2,4' in line 6, column 'rms'" comma2.csv
}
check 'a decimal comma' decimal_comma

echo "1..$n"
exit "$failed"
