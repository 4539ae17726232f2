#!/usr/bin/env bash
# sweep.sh PROGRAM: harness/sweep.sh: job list, results, and what becomes of cells that fail or are killed.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
sweep=$(realpath -- "$(dirname -- "$0")/../../harness/sweep.sh")
real=$(realpath -- "$1")
[[ $(parallel --version 2>&1) == 'GNU parallel'* ]] || { echo '1..0 # SKIP GNU parallel is missing' && exit; }
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
mkdir "$scratch/a place"
cd -- "$scratch/a place"
export scratch # for the program below
# shellcheck source=tests/tap.sh
. "${sweep%/harness/sweep.sh}/tests/tap.sh"

# Stands in for the program where only the sweep is tested: small tables, and run.json with their sizes.
cat >writer <<'EOF'
#!/bin/sh
for word; do
    case $word in --out=*) out=${word#--out=} ;; esac
done
files=
mkdir -p "$out" || exit
for table in layers sites config; do
    rows="run,table,zeros
${out##*/},$table,$(printf %0300d 0)
"
    printf %s "$rows" >"$out/$table.csv"
    files="$files${files:+, }\"$table.csv\": ${#rows}"
done
echo "{\"run\": \"${out##*/}\", \"status\": \"ok\", \"files\": {$files}}" >"$out/run.json"
EOF

# The program, or what stands in for it, with traps in front, each of which catches one call: "hold" makes it hang, "fail" fail,
# "refail" fail with all later ones of the same folder.
cat >'the program' <<'EOF'
#!/bin/sh
echo "$*" >>"$scratch/calls"
for word; do
    case $word in --out=*) out=${word#--out=} ;; esac
done
caught() { [ -e "$scratch/$1" ] && rm "$scratch/$1" 2>/dev/null; }
if caught hold; then
    read -r _ _ _ grandparent _ <"/proc/$PPID/stat"
    echo "$$ $PPID $grandparent" >"$scratch/pids.part"
    mv "$scratch/pids.part" "$scratch/pids"
    exec sleep 1000
elif caught fail; then
    echo 'harness: no luck' >&2
    exit 1
elif caught refail || { [ -e "$scratch/unlucky" ] && [ "$out" = "$(cat "$scratch/unlucky")" ]; }; then
    echo "$out" >"$scratch/unlucky"
    echo 'harness: never any luck' >&2
    exit 1
fi
exec "$behind" "$@"
EOF
chmod +x writer 'the program'
export behind=$real

small=(--width 8 --heads 2 --data zipf --vocab 16 --seq 4 --batch 1 --probes 'rms,overflow')
four=(--vary 'layout=pre,post' --seeds '0,1' --depth 2 "${small[@]}")

# run STATUS ARGS...: a sweep that must end with that exit code; leaves out, err, and calls = the command lines of its cells.
run() {
    local want=$1 status=0 all=" $* "
    shift
    folder=${all#* --out }
    folder=${folder%% *}
    : >"$scratch/calls"
    "$sweep" --harness './the program' "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    [ "$status" -eq "$want" ] || { echo "exit code $status: $(cat "$scratch/err")"; return 1; }
}

# calls N: so many cells were run in the folder of the last sweep; one that was broken off before may still have been at work.
calls() {
    local n
    n=$(grep -c -F -- "--out=$folder/" "$scratch/calls") || :
    [ "$n" -eq "$1" ] || { echo "$n calls: $(cat "$scratch/calls")"; return 1; }
}

# says PATTERN
says() {
    grep -qF -- "$1" "$scratch/err" || { echo "stderr: $(cat "$scratch/err")"; return 1; }
}

# same DIR: the results are those of an undisturbed sweep of the writer, and there is nothing half-done.
same() {
    local table
    for table in layers sites config; do
        cmp "undisturbed/$table.csv" "$1/$table.csv" || return
    done
    [ -z "$(find "$1" -name '*.part')" ] || { find "$1" -name '*.part'; return 1; }
}

# ---- job list ----

job_list() {
    run 0 --print --vary depth=3,12 --vary qk-norm=off,on --seeds 1,3..4 --dtype fp16 --out o || return
    calls 0 && [ ! -e o ] || return
    local depth norm seed
    for depth in 3 12; do
        for norm in off on; do
            for seed in 1 3 4; do
                echo "'./the program' --depth=$depth --qk-norm=$norm --seed=$seed --dtype fp16 --threads=1" \
                    "--out=o/depth=${depth}_qk-norm=${norm}_seed=$seed"
            done
        done
    done | diff - "$scratch/out"
}
check 'the job list: all combinations, the last option fastest' job_list

ranges() {
    run 0 --print --vary 'depth=6..96*2' --vary width=8..10,16 --vary lr=1..2 --seeds '1..10*3' --out o || return
    [ "$(wc -l <"$scratch/out")" -eq 60 ] || return
    grep -o -- '--depth=[^ ]* ' "$scratch/out" | uniq | tr -d '\n' | grep -qx -- '--depth=6 --depth=12 --depth=24 --depth=48 --depth=96 ' || return
    grep -- --depth=6 "$scratch/out" | grep -o -- '--width=.*--seed=[0-9]*' | tr '\n' '|' |
        grep -q -- '^--width=8 --lr=1..2 --seed=1|--width=8 --lr=1..2 --seed=3|--width=8 --lr=1..2 --seed=9|--width=9 '
}
check 'ranges of whole numbers, by steps of one and by a factor' ranges

# Ranges are for exactly the options that the program's help gives a whole number.
whole_numbers() {
    local script=$sweep
    eval "$(sed -n "/^whole_numbers=/,/'$/p" "$script")"
    "$real" --help | sed -n 's/^  --\([a-z0-9-]*\) N .*/\1/p' | grep -vx threads | sort >wanted
    # shellcheck disable=SC2154,SC2086 # several words
    printf '%s\n' $whole_numbers | sort | diff wanted -
}
check 'the options that take ranges are those of whole numbers' whole_numbers

words() {
    run 0 --print --vary "label=it's \"a\" \\b;c,d;Größe;{} \$x *;a/b" --out 'an o' -- --data 'text:my file' --jobs 7 || return
    printf '%s\n' "--label=it's \"a\" \\b" --label=c,d --label=Größe "--label={} \$x *" --label=a/b >wanted
    while read -r line; do
        eval "set -- $line"
        printf '%s\n' "$2"
        [ "$*" = "./the program $2 --data text:my file --jobs 7 --threads=1 ${!#}" ] || { echo "$*"; return 1; }
        [[ ${!#} =~ ^--out=an\ o/label=[A-Za-z0-9%._-]+$ ]] || { echo "folder: ${!#}"; return 1; }
    done <"$scratch/out" | diff wanted - || return
    # shellcheck disable=SC2016 # for the other shell
    xargs -L 1 sh -c 'printf "%s\n" "$1"' <"$scratch/out" | diff wanted -
}
check 'every word reaches a shell and xargs whole, folders have safe names' words

long_names() {
    run 0 --print --vary "label=$(printf '%0240d' 1),$(printf '%0240d' 2)" --out o || return
    local names
    names=$(sed 's/.*--out=o.//' "$scratch/out")
    [ "$(sort -u <<<"$names" | wc -l)" -eq 2 ] && [ "$(wc -L <<<"$names")" -le 255 ]
}
check 'long names are cut and still differ' long_names

# ---- what it would cost ----

cost() {
    run 0 --dry-run --vary depth=1,2 --seeds 0..2 --jobs 3 "${small[@]}" --out cost && [ ! -e cost ] && [ ! -s "$scratch/err" ] || return
    local one two
    one=$("$real" --dry-run --depth 1 "${small[@]}" | awk '$1 == "parameters" { print $2 }')
    two=$("$real" --dry-run --depth 2 "${small[@]}" | awk '$1 == "parameters" { print $2 }')
    grep -qx 'cells       6, 3 at a time' "$scratch/out" && grep -q '^operations ' "$scratch/out" && grep -q '^memory ' "$scratch/out" &&
        grep -q '^time ' "$scratch/out" && grep -qx "parameters  $((3 * one + 3 * two)) in all, $two in the largest cell" "$scratch/out"
}
check 'the cost of all cells, without running any' cost

cost_refused() {
    run 2 --dry-run --vary layout=pre,sandwhich "${small[@]}" --out cost && [ ! -e cost ] && says 'did you mean sandwich' && [ ! -s "$scratch/out" ]
}
check 'the cost of a cell that cannot be' cost_refused

# ---- bad usage ----

refused() {
    local what=$1
    shift
    run 2 "$@" && calls 0 && says "$what" && [ "$(wc -l <"$scratch/err")" -eq 1 ]
}
check 'without what varies' refused 'nothing varies' --depth 4
check '--vary without a value' refused '--vary needs a value' --vary
check '--vary without values' refused 'OPTION=V1,V2' --vary depth
check '--vary with an empty value' refused 'OPTION=V1,V2' --vary depth=
check 'seeds that are none' refused 'not a list of seeds' --seeds 1,x
check 'seeds that go down' refused 'not a list of seeds' --seeds 4..1
check 'a number twice' refused '1e-1 is there twice' --vary lr=0.1,1e-1
check 'a range that goes down' refused 'a range goes up' --vary depth=9..6
check 'more cells than anyone means' refused 'this sweep has 5000000000 cells' --seeds 0..999999999 --vary depth=1..5
check 'another folder for each cell' refused '--out is the same for all cells' --vary out=a,b
check 'no number of jobs' refused '--jobs 0' --jobs 0 --seeds 1
check 'a value twice' refused '--vary depth=1,2,1: 1 is there twice' --vary depth=1,2,1
check 'a line break' refused 'control character' --vary $'label=a\nb'
check 'no such program' refused 'not a program' --seeds 1 --harness ./nowhere

programs_refusal() {
    run 2 --vary layout=pre,sandwhich,post --seeds 0,1 --out bad "${small[@]}" && says 'did you mean sandwich' || return
    [ "$(wc -l <"$scratch/err")" -eq 1 ] && [ ! -e bad/layers.csv ]
}
check 'a usage error of the program ends the sweep' programs_refusal

# ---- results of the program ----

whole() {
    run 0 "${four[@]}" --out four && calls 4 && [ ! -s "$scratch/err" ] || return
    printf 'four/%s.csv\n' layers sites config | diff - "$scratch/out" || return
    [ "$(grep -c ^run, four/layers.csv)" -eq 1 ] || return
    cut -d , -f 3,8 four/layers.csv | uniq >order
    printf '%s\n' layout,seed pre,0 pre,1 post,0 post,1 | diff - order || return
    awk 'FNR > 1 || NR == 1' ./four/layout=p{re,ost}_seed=?/config.csv >config.csv
    [ "$(sort config.csv | cksum)" = "$(sort four/config.csv | cksum)" ]
}
check 'results as one, in the order of the job list' whole

other_option() {
    cp -rp four kept
    run 2 "${four[@]}" --eps 1e-3 --out four && says 'another configuration' && diff -r four kept -x cell.txt || return
    run 0 "${four[@]}" --out four && diff -r four kept
}
check 'a changed option is noticed' other_option

users_file() {
    echo '1 2 3 4' >tokens
    run 0 --seeds 0 --data tokens:tokens --depth 1 --width 8 --probes none --out file && calls 1 || return
    run 0 --seeds 0 --data tokens:tokens --depth 1 --width 8 --probes none --out file && calls 1 || return
    echo '1 2 3 5' >tokens
    run 2 --seeds 0 --data tokens:tokens --depth 1 --width 8 --probes none --out file && says 'another configuration'
}
check "a user's file that has changed is noticed" users_file

# The same cells on other weights: the program says so.
users_model() {
    "$real" export model --depth 1 --width 8 --heads 2 --data zipf --vocab 16 --arch llama >/dev/null || return
    local cells=(--vary dtype=fp16 --model model --data zipf --seq 4 --batch 1 --probes none --out weights)
    run 0 "${cells[@]}" && run 0 "${cells[@]}" || return
    "$real" export model --depth 1 --width 8 --heads 2 --data zipf --vocab 16 --arch llama --seed 1 --force >/dev/null || return
    run 2 "${cells[@]}" && says 'another configuration'
}
check 'weights that have changed are noticed' users_model

same_run() {
    run 1 --vary layout=sandwich,peri-ln --depth 1 "${small[@]}" --out alias && says 'are the same run' && [ ! -e alias/layers.csv ]
}
check 'a value under two names is noticed' same_run

diverged() {
    run 0 --vary dtype=e2m1,fp32 --depth 2 --post-gain 1e6 --layout sandwich "${small[@]}" --out wild && calls 2 || return
    grep -q '"status": "diverged"' wild/dtype=e2m1/run.json || grep -h '"status"' wild/*/run.json
}
check 'a diverged run is a result' diverged

some_spectra() {
    local cells=(--depth 1 --width 8 --heads 2 --data zipf --vocab 16 --seq 4 --batch 1 --layout pre --out spectra)
    run 0 --vary spectrum=off,on "${cells[@]}" || return
    printf 'spectra/%s.csv\n' layers sites spectrum config | diff - "$scratch/out" || return
    cmp spectra/spectrum=on/spectrum.csv spectra/spectrum.csv || return
    run 0 --vary spectrum=off "${cells[@]}" && [ ! -e spectra/spectrum.csv ]
}
check 'spectra of the cells that have them' some_spectra

# ---- which cells are run ----

behind=$PWD/writer
run 0 "${four[@]}" --out undisturbed
four_of_writer() {
    rm -rf four && run 0 "${four[@]}" --out four && calls 4 && [ ! -s "$scratch/err" ] && same four
}
check 'the same sweep again elsewhere' four_of_writer

# One at a time: the deepest cell takes longest and comes first, wherever it stands in the job list.
deep_first() {
    run 0 --vary depth=1,3,2 --jobs 1 --out deep && calls 3 || return
    [ "$(grep -o -- '--depth=[0-9]' "$scratch/calls" | xargs)" = '--depth=3 --depth=2 --depth=1' ] || { cat "$scratch/calls"; return 1; }
    [ "$(cut -d , -f 1 deep/layers.csv | xargs)" = 'run depth=1 depth=3 depth=2' ] || { cut -d , -f 1 deep/layers.csv; return 1; }
}
check 'deep cells are run first' deep_first

skipped() {
    find four -type f -path '*_*' -printf '%p %T@\n' | sort >before
    run 0 "${four[@]}" --out four && calls 0 && same four || return
    find four -type f -path '*_*' -printf '%p %T@\n' | sort | diff before -
}
check 'finished cells are left alone' skipped

missing() {
    rm four/layout=pre_seed=0/run.json four/layout=pre_seed=1/cell.txt
    sed -i 's/depth/death/' four/layout=post_seed=0/cell.txt
    printf %s "$(cat four/layout=post_seed=1/cell.txt)" >half && mv half four/layout=post_seed=1/cell.txt
    run 0 "${four[@]}" --out four && calls 4 && same four
}
check 'what is missing, of another command or half-written is run' missing

# Seven cells are damaged in seven ways, and one sweep mends them; an eighth is whole.
damage() {
    run 0 --seeds 0..7 --out damaged && cp -rp damaged whole || return
    truncate -s -100 damaged/seed=0/layers.csv
    sed -i 2p damaged/seed=1/sites.csv
    rm damaged/seed=2/sites.csv
    cp /etc/passwd damaged/seed=3/layers.csv
    truncate -s -10 damaged/seed=4/run.json
    sed -i 's/"status": "ok"/"status": "interrupted"/' damaged/seed=5/run.json
    cp /etc/passwd damaged/seed=6/run.json
    run 0 --seeds 0..7 --out damaged && calls 7 && diff -r whole damaged
}
check 'damaged cells are run again, and they alone' damage

# mended SEED WHY: it was named with its damage, and run to replace what is there.
mended() {
    says "seed=$1 is damaged and is run again: $2" && grep -q -- "--out=damaged/seed=$1 --force\$" "$scratch/calls"
}
check 'one with a shortened table' mended 0 'layers.csv has '
check 'one with a lengthened table' mended 1 'sites.csv has '
check 'one without a table' mended 2 'sites.csv is missing'
check 'one whose table is of something else' mended 3 'layers.csv has '
check 'one with half a record' mended 4 'run.json is not the complete record'
check 'one with the record of an interrupted run' mended 5 "run.json has the status 'interrupted'"
check 'one with a record that is not JSON' mended 6 'run.json is not the complete record'

extended() {
    run 0 "${four[@]}" --seeds 1..2 --out four && calls 2 || return
    [ "$(cut -d , -f 1 four/layers.csv | xargs)" = 'run layout=pre_seed=1 layout=pre_seed=2 layout=post_seed=1 layout=post_seed=2' ] || return
    run 0 "${four[@]}" --out four && calls 0 && same four
}
check 'sweeps may share a folder' extended

newer_program() {
    find four -name cell.txt -exec touch -d '1 hour ago' '{}' +
    touch -d '1 minute ago' 'the program'
    run 0 "${four[@]}" --out four && calls 4 && run 0 "${four[@]}" --out four && calls 0 && same four
}
check 'a newer program is asked' newer_program

full_disk() {
    rm four/*.csv && (ulimit -f 1 && run 1 "${four[@]}" --out four) || return
    says 'cannot write the joined tables into four' && [ "$(wc -l <"$scratch/err")" -eq 1 ] && [ -z "$(find four -maxdepth 1 -type f)" ]
}
check 'without room for the joined tables there are none' full_disk

older_columns() {
    local older=four/layout=pre_seed=0
    sed -i 's/,[^,]*$//' "$older/layers.csv"
    sed -i "s/\"layers.csv\": [0-9]*/\"layers.csv\": $(stat -c %s "$older/layers.csv")/" "$older/run.json"
    run 0 "${four[@]}" --out four && calls 0 || return
    [ "$(awk -F , '{ print NF }' four/layers.csv | xargs)" = '3 3 3 3 3' ]
}
check 'files of an older program are matched by column' older_columns

# ---- training ----

# A program that trains: for each step a row, then a checkpoint. Once, if it is told to, it is killed in the third step.
cat >trainer <<'EOF'
#!/usr/bin/env bash
set -eu
steps=0
resume=
sizes=
for word; do
    case $word in
    --steps=*) steps=${word#*=} ;;
    --resume) resume=yes ;;
    --out=*) out=${word#*=} ;;
    esac
done
[ "$steps" -gt 0 ] || [ ! "$resume" ] || { echo 'harness: --resume has no effect without training' >&2; exit 2; }
mkdir -p "$out"
echo run | tee "$out/config.csv" >"$out/layers.csv"
first=0
if [ "$steps" -gt 0 ]; then
    [ ! "$resume" ] || [ ! -f "$out/checkpoint" ] || first=$(cat "$out/checkpoint")
    [ "$first" -gt 0 ] || echo run,step >"$out/steps.csv.part"
    for ((step = first; step < steps; step++)); do
        [ "$step" -ne 2 ] || ! rm "$scratch/kill" 2>/dev/null || kill -KILL $$
        echo "${out##*/},$step" >>"$out/steps.csv.part"
        echo "$((step + 1))" >"$out/checkpoint"
    done
    mv "$out/steps.csv.part" "$out/steps.csv"
fi
echo "$out $first" >>"$scratch/starts"
for table in config layers steps; do
    [ ! -f "$out/$table.csv" ] || sizes+="${sizes:+, }\"$table.csv\": $(stat -c %s "$out/$table.csv")"
done
echo "{\"status\": \"ok\", \"files\": {$sizes}}" >"$out/run.json"
EOF
chmod +x trainer

# trained ARGS...: a sweep of the trainer; leaves starts = each cell that was run and the step it started from, sorted.
trained() {
    : >"$scratch/starts"
    run 0 "$@" --harness ./trainer && sort -o "$scratch/starts" "$scratch/starts"
}

whole_training() {
    trained --vary steps=0,4,5 --seeds 0,1 --out train || return
    printf 'train/%s.csv\n' layers steps config | diff - "$scratch/out" || return
    printf 'train/steps=%s_seed=%s 0\n' 0 0 0 1 4 0 4 1 5 0 5 1 | diff - "$scratch/starts" || return
    {
        echo run,step
        printf 'steps=4_seed=0,%s\n' 0 1 2 3
        printf 'steps=4_seed=1,%s\n' 0 1 2 3
        printf 'steps=5_seed=0,%s\n' 0 1 2 3 4
        printf 'steps=5_seed=1,%s\n' 0 1 2 3 4
    } | diff - train/steps.csv || return
    trained --vary steps=0,4,5 --seeds 0,1 --out train && [ ! -s "$scratch/starts" ]
}
check 'steps of the cells that train, which are then left alone' whole_training

broken_training() {
    touch "$scratch/kill"
    trained --seeds 0 --steps=4 --out broken || return
    echo 'broken/seed=0 2' | diff - "$scratch/starts" || return
    printf '%s\n' run,step seed=0,0 seed=0,1 seed=0,2 seed=0,3 | diff - broken/steps.csv
}
check 'a training that was killed goes on from its checkpoint' broken_training

# gives N ARGS...: so many of the cells get --resume.
gives() {
    run 0 --print --out o "${@:2}" || return
    [ "$(grep -cE -- ' --resume( |$)' "$scratch/out")" -eq "$1" ] || { cat "$scratch/out"; return 1; }
}

resumed() {
    gives 2 --seeds 0,1 --steps 10 && gives 2 --seeds 0,1 -- --steps=10 && gives 2 --vary steps=0,10,20 || return
    gives 0 --seeds 0,1 && gives 0 --seeds 0,1 --steps 0 && gives 0 --seeds 0 --label 'a --steps 10' || return
    gives 0 --vary resume=on,off --steps 10 && gives 0 --seeds 0 --steps 10 --force || return
    gives 1 --seeds 0 --steps 10 --resume && [ "$(grep -o -- --resume "$scratch/out" | wc -l)" -eq 1 ]
}
check 'cells that train get --resume, and only once' resumed

# ---- failures ----

retried() {
    touch "$scratch/fail"
    run 0 "${four[@]}" --out retry && calls 5 && same retry
}
check 'what failed is tried again' retried

named() {
    touch "$scratch/refail"
    run 1 "${four[@]}" --out fails && calls 5 || return
    local name
    name=$(cat "$scratch/unlucky")
    says "failed twice: ${name##*/}: harness: never any luck" && says '1 of 4 cells' || return
    rm "$scratch/unlucky"
    run 0 "${four[@]}" --out fails && calls 1 && same fails
}
check 'what failed twice is named with its message' named

# ---- kills ----

# hold DIR: a sweep in the background that hangs in one of its cells.
hold() {
    rm -f "$scratch/pids"
    touch "$scratch/hold"
    "$sweep" --harness './the program' "${four[@]}" --out "$1" >/dev/null 2>"$scratch/err" &
    pid=$!
    while [ ! -e "$scratch/pids" ]; do
        kill -0 "$pid" && sleep 0.05 || return
    done
    read -r held shell parallel <"$scratch/pids"
}

# ended: the held sweep ends by itself, well.
ended() {
    wait "$pid" || { echo "exit code $?: $(cat "$scratch/err")"; return 1; }
    [ ! -s "$scratch/err" ] || cat "$scratch/err"
}

second() {
    hold two || return
    run 1 "${four[@]}" --out two && says 'another sweep' || return
    kill -9 "$held"
    ended && same two
}
check 'a second sweep in the same folder is refused' second

killed_shell() {
    hold shell || return
    kill -9 "$shell"
    ended && same shell
}
check 'a killed job is run again' killed_shell

killed_parallel() {
    hold parallel || return
    kill -9 "$parallel"
    ended && same parallel
}
check 'a killed parallel is started again' killed_parallel

# killed SIGNAL
killed() {
    hold "$1" || return
    kill -"$1" "$pid"
    wait "$pid" 2>/dev/null && return 1
    [ ! -e "$1/layers.csv" ] || return
    run 0 "${four[@]}" --out "$1" && same "$1" || return
    # Dead is also what nobody has asked after (a zombie): it has no command line.
    ! grep -q . "/proc/$held/cmdline" 2>/dev/null || { echo 'a cell outlived its sweep'; return 1; }
}
check 'a killed sweep takes its cells along and is continued' killed KILL
check 'so is one that was asked to end' killed TERM

done_testing
