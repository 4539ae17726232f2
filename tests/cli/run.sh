#!/usr/bin/env bash
# run.sh PROGRAM: the files of a run: whole, the same whatever threads and locale say, never mixed with those of another run,
# never half written.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
mounted=
trap '[ -z "$mounted" ] || umount -- "$mounted"; rm -rf -- "$scratch"' EXIT
cd -- "$scratch"
small=(--width 16 --heads 2 --seq 8 --batch 2 --data uniform --vocab 32)
main=(--layout sandwich --depth 60 --dtype fp16 "${small[@]}")
tables=(config.csv layers.csv sites.csv)
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

same_tables() {
    local table
    for table in "${tables[@]}"; do
        cmp "$1/$table" "$2/$table" || return
    done
}

# ---- the files ----

all_files() {
    run 0 "${main[@]}" --out main --threads 2 && cp out said_first || return
    [ ! -s err ] || say "stderr: $(cat err)" || return
    holds main "${tables[@]}" run.json || return
    grep -qE '^headroom +[0-9.]+ bits' out || say 'no headroom in the short table' || return
    grep -qE '^results +main$' out || say 'the path of the results is not told'
}
check 'the main command writes its files' all_files

check 'layers.csv has the columns of the list' header main layers.csv
check 'sites.csv has the columns of the list' header main sites.csv
check 'config.csv has the columns of the list' header main config.csv

rows_of_layers() {
    local want
    want=$(echo "0 embed"; for ((l = 1; l <= 60; l++)); do printf '%s\n' "$l attn" "$l ffn"; done; echo "61 final")
    diff <(echo "$want") <(paste -d ' ' <(column main/layers.csv layer) <(column main/layers.csv sublayer)) || return
    [ "$(column main/layers.csv stream | sort -u)" = 0 ]
}
check 'a row for each of 120 sublayers and for both ends' rows_of_layers

rows_of_two_streams() {
    run 0 --layout residual --depth 3 "${small[@]}" --out two || return
    [ "$(column two/layers.csv stream | tr -d '\n')" = 010101010101010 ] # the exit is one stream
}
check 'a row for each of two streams' rows_of_two_streams

rows_of_blocks() {
    run 0 --layout parallel --depth 3 "${small[@]}" --out blocks || return
    [ "$(column blocks/layers.csv sublayer | tr '\n' ' ')" = 'embed block block block final ' ]
}
check 'a row for each block' rows_of_blocks

keys() {
    local id table
    id=$(field main run)
    [[ $id =~ ^r[0-9a-f]{8}$ ]] || say "run '$id'" || return
    for table in layers.csv sites.csv; do
        [ "$(tail -n +2 "main/$table" | cut -d, -f1-9 | sort -u)" = "$id,,sandwich,60,fp16,plain,unit,0,0" ] ||
            say "keys of $table: $(tail -n +2 "main/$table" | cut -d, -f1-9 | sort -u | head -n 3)" || return
    done
    [ "$(column main/config.csv run | sort -u)" = "$id" ]
}
check 'every row repeats the keys' keys

samples() {
    run 0 --layout pre --depth 1 "${small[@]}" --out sample_1 && run 0 --layout pre --depth 1 "${small[@]}" --probes rms --label x --out sample_2 &&
        run 0 --layout pre --depth 1 "${small[@]}" --seed 1 --out sample_3 || return
    local sample
    sample=$(field sample_1 sample)
    [[ $sample =~ ^s[0-9a-f]{8}$ && $(field sample_1 run) != "$(field sample_2 run)" ]] || say "sample '$sample'" || return
    [[ $(field sample_2 sample) = "$sample" && $(field sample_3 sample) != "$sample" ]] || say "not that of another probe alone" || return
    grep -qx "$(field sample_1 run),sample,$sample" sample_1/config.csv
}
check 'what a run measures is no part of its sample' samples

cells() {
    local table
    for table in layers.csv sites.csv; do
        awk -F, -v table="$table" 'NR == 1 { columns = NF } NF != columns { print table " line " NR; exit 1 }' "main/$table" || return
    done
    # numbers from the tenth column on, the names of places left out
    if tail -n +2 main/layers.csv | cut -d, -f10,12- | tr ',' '\n' |
        grep -vxE '|nan|-?inf|-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'; then
        return 1
    fi
    if LC_ALL=C grep -n $'\r' main/*.csv; then
        return 1
    fi
}
check 'every row has all cells, every number is bare' cells

# At this width they are a third apart.
law_and_measurement() {
    paste -d ' ' <(column main/layers.csv rms) <(column main/layers.csv rms_theory) | awk '
        NR > 1 && NR < 122 && !($1 > 0.5 * $2 && $1 < 2 * $2) { print "row " NR ": " $0; bad = 1 }
        END { exit bad }'
}
check 'the law stands beside the measurement' law_and_measurement

json_fields() {
    command -v python3 >/dev/null || skip 'no python3' || return
    python3 - main/run.json <<'END'
import csv, json, sys
run = json.load(open(sys.argv[1]), parse_constant=lambda word: sys.exit('not JSON: ' + word))
kinds = {'run': str, 'status': str, 'equation': str, 'config': dict, 'program': str, 'compiler': str, 'blas': str, 'cpu': str,
         'threads': int, 'wall_s': float, 'peak_rss_mib': float, 'loss': float}
for name, kind in kinds.items():
    if not isinstance(run.get(name), kind):
        sys.exit(f'{name} is {run.get(name)!r}')
for name in 'first_forward', 'first_backward', 'first_offender':
    if run[name] is not None:
        sys.exit(f'{name} is {run[name]!r}')
if run['status'] != 'ok' or run['threads'] != 2 or not run['wall_s'] > 0 or not run['peak_rss_mib'] > 1:
    sys.exit('values')
rows = list(csv.reader(open('main/config.csv', newline='')))[1:]
if run['config'] | {'sample': run['sample']} != {option: value for _, option, value in rows} or len(run['config']) + 1 != len(rows):
    sys.exit('config.csv and run.json differ')
END
}
check 'run.json has the fields and the whole configuration' json_fields

default_folder() {
    run 0 --depth 2 "${small[@]}" --probes none || return
    local folder=results/runs/pre-L2-fp32-s0-
    folder=$(echo "$folder"*)
    [ "$folder" = "results/runs/pre-L2-fp32-s0-$(field "$folder" run)" ]
}
check 'the folder is named after the run' default_folder

no_probes() {
    run 0 --depth 2 "${small[@]}" --probes none --out bare || return
    holds bare config.csv layers.csv run.json || return
    [ "$(column bare/layers.csv rms | sort -u)" = '' ] # not measured
}
check 'a run without probes' no_probes

spectrum() {
    run 0 --depth 2 --width 16 --heads 2 --seq 4 --batch 1 --data uniform --vocab 32 --spectrum --out spectrum || return
    holds spectrum "${tables[@]}" run.json spectrum.csv && header spectrum spectrum.csv || return
    [ "$(tail -n +2 spectrum/spectrum.csv | wc -l)" -eq $((5 * 64)) ] || say 'not 64 values of 5 maps' || return
    # the largest value of each map against the lower bound in layers.csv
    paste -d ' ' <(paste -d ' ' <(column spectrum/spectrum.csv index) <(column spectrum/spectrum.csv singular_value) |
        awk 'NR % 64 == 1 { print $2 }') <(column spectrum/layers.csv jac_spec | tail -n +2) |
        awk '!($2 <= $1 * 1.00001 && $2 >= 0.9 * $1) { print "row " NR ": " $0; bad = 1 } END { exit bad }'
}
check 'the whole spectrum' spectrum

spectrum_too_large() {
    refused 2 --spectrum --depth 2 --width 64 --seq 16 --batch 1 --data uniform --spectrum --out large && [ ! -e large ]
}
check 'a spectrum that is too large' spectrum_too_large

one_token() {
    run 0 --depth 2 "${small[@]:0:4}" --seq 1 --data uniform --vocab 32 --out one || return
    grep -q -- '--seq 1' err || say "no word about it: $(cat err)" || return
    grep -q '"loss": 0.0' one/run.json && [ "$(field one status)" = ok ]
}
check 'sequences of one token' one_token

# ---- the same bytes ----

one_thread() {
    run 0 "${main[@]}" --out single --threads 1 && same_tables main single
}
check 'threads leave the tables as they are' one_thread

more_threads() {
    local common=(--layout pre --depth 3 --dtype bf16 --ffn swiglu --norm layer --width 32 --heads 2 --seq 16 --batch 20
        --data uniform --vocab 32 --probes 'rms,grad,overflow,error,jacobian')
    run 0 "${common[@]}" --threads 1 --out t1 && run 0 "${common[@]}" --threads 3 --out t3 && same_tables t1 t3
}
check 'three threads, all probes' more_threads

comma_locale() {
    localedef -i de_DE -f UTF-8 "$scratch/de_DE.UTF-8" || skip 'no localedef' || return
    local environment=(env "LOCPATH=$scratch" LC_ALL=de_DE.UTF-8)
    [ "$("${environment[@]}" bash -c 'printf %.1f 1' 2>&1)" = 1,0 ] || skip 'the locale does not work' || return
    local fractions=("${main[@]}" --eps 0.000015 --ffn-mult 2.5 --embed-rms 1.25)
    run 0 "${fractions[@]}" --out comma || return
    environment=(env)
    run 0 "${fractions[@]}" --out dot && same_tables dot comma || return
    if grep -nE '"(loss|wall_s|loss_scale)": [0-9]+,[0-9]' comma/run.json; then
        return 1
    fi
}
check 'a decimal comma in the locale' comma_locale

# ---- one folder, one run ----

finished() {
    cp -r main copy
    local was
    was=$(stat -c '%n %i %y' main/*)
    run 0 "${main[@]}" --out main --threads 1 || return
    [ "$(head -n 1 out)" = 'main is there already, finished; --force runs it again' ] || say "said: $(cat out)" || return
    diff <(tail -n +2 out) said_first || return
    [ "$(stat -c '%n %i %y' main/*)" = "$was" ]
}
check 'a finished run is not run again' finished

forced() {
    run 0 "${main[@]}" --out main --force && same_tables copy main && holds main "${tables[@]}" run.json
}
check 'a finished run is run again by force' forced

another_run() {
    sha256sum main/* >before
    refused 2 'another configuration' "${main[@]}" --seed 1 --out main && sha256sum --quiet -c before || return
    refused 2 'another configuration' --probes none "${main[@]}" --out main && sha256sum --quiet -c before
}
check 'the folder of another run is left alone' another_run

fewer_files() {
    cp -r main fewer
    run 0 "${main[@]}" --probes none --out fewer --force && holds fewer config.csv layers.csv run.json
}
check 'tables of the run before do not stay' fewer_files

# ---- trouble ----

too_large() {
    refused 1 memory --depth 4096 --width 8192 --data uniform --vocab 32 --out huge && [ ! -e huge ]
}
check 'a run that cannot fit is refused' too_large

in_the_way() {
    echo mine >plain
    refused 1 plain --depth 1 "${small[@]}" --probes none --out plain/run && [ "$(cat plain)" = mine ] || return
    mkdir -p taken/layers.csv
    refused 1 taken/layers.csv --depth 1 "${small[@]}" --probes none --out taken && holds taken layers.csv
}
check 'something in the way of the results' in_the_way

not_writable() {
    [ "$(id -u)" -ne 0 ] || skip 'root may write everywhere' || return
    mkdir -m 555 closed
    refused 1 closed --depth 1 "${small[@]}" --probes none --out closed/run
}
check 'a folder that may not be written' not_writable

full_device() {
    mkdir -p full && mount -t tmpfs -o size=64k none full 2>said_mount || skip 'cannot mount a small device' || return
    mounted=full
    refused 1 'No space' "${main[@]}" --out full/run || return
    [[ ! -e full/run/run.json && -z $(find full -name '*.part') ]] || say "left: $(ls full/run)"
}
check 'a full device' full_device

# sites.csv has some 290 KiB, the limit is 64.
file_limit() {
    (ulimit -c 0 -f 64 && refused 1 'too large' "${main[@]}" --out limit) || return
    [[ ! -e limit/run.json && -z $(find limit -name '*.part') ]] || say "left: $(ls limit)"
}
check 'a limit on file sizes' file_limit

killed_early() {
    local slow=(--depth 60 --dtype fp16 "${small[@]}" --probes jacobian --jac-samples 2000) pid
    "$program" "${slow[@]}" --out early >out 2>err &
    pid=$!
    sleep 0.2
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    [ ! -e early/run.json ] || say 'there is a run.json' || return
    run 0 "${slow[@]}" --out early && holds early config.csv layers.csv run.json
}
check 'killed before it writes, then run again' killed_early

reader_gone() {
    local status=0
    "$program" list columns 2>err | true || status=${PIPESTATUS[0]}
    [ ! -s err ] || say "$status: $(cat err)" || return
    # where the signal is ignored as well, as of a reader that has gone long before
    (trap '' PIPE && "$program" list columns 2>err | { exec <&-; sleep 0.3; }) || true
    [ ! -s err ] || say "$(cat err)"
}
check 'a reader that has seen enough' reader_gone

# ---- results that are no errors ----

diverged() {
    run 0 "${main[@]}" --post-gain 4096 --out diverged || return
    [ "$(field diverged status)" = diverged ] || say "status $(field diverged status)" || return
    offence diverged first_offender >offender
    local layer value
    layer=$(sed -n 's/^layer //p' offender) value=$(sed -n 's/^value //p' offender)
    printf '%s\n' 'step 0' 'direction fwd' 'kind overflow' 'site residual' | sort |
        diff - <(grep -E '^(step|direction|kind|site) ' offender | sort) || return
    awk -v v="$value" 'BEGIN { v = v < 0 ? -v : v; exit !(v >= 65520 && v < 1e6) }' || say "value $value" || return
    # the table tells the same place
    [ "$(paste -d ' ' <(column diverged/layers.csv overflow) <(column diverged/layers.csv layer) | awk '$1 > 0 { print $2; exit }')" = "$layer" ] ||
        say "layers.csv does not have the first overflow in layer $layer" || return
    grep -q '^first  *overflow at layer' out || say 'the short table does not tell it' || return
    column diverged/layers.csv rms | grep -qx nan
}
check 'a diverged run is done, and tells its first offender' diverged

# The last token of a sequence has no target: what overflows there does not reach the loss.
overflowed() {
    local token
    for ((token = 1; token < 32; token++)); do
        echo "0 $token" >pair
        run 0 --depth 2 --width 16 --heads 2 --data tokens:pair --vocab 32 --dtype e4m10 --embed-scale 80 --out overflowed --force || return
        [ "$(field overflowed status)" != overflowed ] || break
    done
    [ "$(field overflowed status)" = overflowed ] || say "status $(field overflowed status)" || return
    grep -qE '"loss": [0-9.]+' overflowed/run.json || say 'the loss is not finite' || return
    offence overflowed first_offender | grep -qx 'site embed'
}
check 'an overflow that the loss does not see' overflowed

small_format() {
    run 0 --layout sandwich --dtype e4m3 --post-gain 64 "${small[@]}" --out e4m3 || return
    [ "$(field e4m3 status)" = diverged ] && [ -n "$(offence e4m3 first_offender)" ]
}
check 'a format of 8 bits' small_format

done_testing
