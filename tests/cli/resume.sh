#!/usr/bin/env bash
# resume.sh PROGRAM CRASH: a training that is broken off, by a kill at any moment, a signal or a full disk, and goes on; what
# it must not go on from. CRASH is the library of crash.c.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
crash=$(realpath -- "$2")
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
cd -- "$scratch"
small=(--depth 1 --width 16 --heads 2 --seq 8 --batch 2 --data uniform --vocab 32 --dtype fp16)
main=("${small[@]}" --policy megatron-fp16 --scale-window 4 --warmup 5 --schedule cosine --steps 40 --probe-every 6 --checkpoint-every 9)
long=("${small[@]}" --steps 1500 --probe-every 40 --checkpoint-every 50 --threads 1)
files=(checkpoint.safetensors config.csv layers.csv sites.csv steps.csv)
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

# part FOLDER TABLE: the file in which the table of a run under way grows; it has eight hex digits of its own in its name.
part() {
    compgen -G "$1/$2.csv.????????.part" || return
}

# same FOLDER FOLDER: the same files with the same bytes, but for what run.json tells of time and machine, and the lock that a kill leaves.
same() {
    diff -rq --exclude=run.json --exclude=.lock "$1" "$2" && diff <(timeless "$1") <(timeless "$2")
}

timeless() {
    grep -vE '"(wall_s|peak_rss_mib|threads)"' "$1/run.json"
}

straight() {
    run 0 "${main[@]}" --out straight && holds straight "${files[@]}" run.json
}
check 'a run that nothing breaks off' straight

straight_long() {
    run 0 "${long[@]}" --out straight_long
}
check 'and a longer one' straight_long

# preloaded ARGS...: with the library of crash.c; its exit code, and no word of the shell about the death.
preloaded() {
    local status=0
    {
        ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 LD_PRELOAD=$crash "$program" "$@" >out 2>err || status=$?
    } 2>said_shell
    return "$status"
}

# broken FOLDER ARGS...: the main run, dead at a random change of its files behind its first checkpoint.
broken() {
    until [ -s "$1/checkpoint.safetensors" ] && part "$1" layers >/dev/null; do
        rm -rf "$1"
        NH_CRASH_AT=$((40 + RANDOM % 100)) preloaded "${main[@]}" --out "$@" || [ $? -eq 137 ] || say "$(cat err)" || return
    done
    local step
    step=$(grep -ao '"step":"[0-9]*"' "$1/checkpoint.safetensors" | tr -dc 0-9)
    [[ $((step % 9)) -eq 0 || $step -eq 40 ]] || say "a checkpoint of step $step"
}

# ---- deaths ----

# At every change of a file, and now and then again while it goes on from there.
crashes() {
    local tiny=(--depth 1 --width 8 --heads 2 --seq 4 --batch 1 --data uniform --vocab 16 --threads 1 --probe-every ends "$@")
    run 0 "${tiny[@]}" --out tiny --force || return
    local at status
    for ((at = 1;; at++)); do
        rm -rf crash
        status=0
        NH_CRASH_AT=$at preloaded "${tiny[@]}" --out crash || status=$?
        [ "$status" -ne 0 ] || break
        [ "$status" -eq 137 ] || say "call $at: exit code $status: $(cat err)" || return
        [ ! -e crash/run.json ] || same crash tiny || say "call $at: looks whole" || return
        if [ $((at % 3)) -eq 0 ]; then
            status=0
            NH_CRASH_AT=$((1 + at % 17)) preloaded "${tiny[@]}" --out crash --resume || status=$?
            [[ $status = 137 || $status = 0 ]] || say "call $at: then exit code $status: $(cat err)" || return
        fi
        run 0 "${tiny[@]}" --out crash --resume && same crash tiny || say "call $at" || return
    done
    [ "$at" -gt 30 ] || say "only $at calls"
}
check 'death at every change of a file' crashes --policy megatron-fp16 --steps 3 --checkpoint-every 2
check 'and with experts' crashes --steps 3 --checkpoint-every 2 --optimizer muon --experts 3 --experts-active 2 --experts-shared 1
check 'and where a run stops by itself' crashes --dtype fp16 --loss-scale 1e9 --steps 4 --checkpoint-every 1

# signalled SIGNAL SECONDS FOLDER: the long run goes on, and is sent a signal; its exit code.
signalled() {
    local status=0
    {
        timeout --foreground --preserve-status -s "$1" "$2" "$program" "${long[@]}" --out "$3" --resume >out 2>err || status=$?
    } 2>said_shell
    return "$status"
}

kills() {
    local kills=0 status
    while [ "$kills" -lt 20 ]; do
        status=0
        signalled KILL "0.$(printf '%03d' $((RANDOM % 120)))" killed || status=$?
        if [ "$status" -eq 137 ]; then
            kills=$((kills + 1))
            [ ! -e killed/run.json ] || same killed straight_long || say 'looks whole' || return
        else # too late
            [ "$status" -eq 0 ] && same killed straight_long && rm -rf killed || return
        fi
    done
    run 0 "${long[@]}" --out killed --resume && same killed straight_long
}
check 'twenty kills at random moments' kills

random_step() {
    local threads
    for threads in 1 2 1; do
        rm -rf one two
        broken one --threads "$threads" && cp -r one two || return
        run 0 "${main[@]}" --threads 1 --out one --resume && same one straight || return
        run 0 "${main[@]}" --threads 2 --out two --resume && same two straight || return
    done
}
check 'from a random step, on any number of threads' random_step

# ---- signals ----

# interrupt SIGNAL STATUS: into the folder stopped; ends by the signal, with all files whole.
interrupt() {
    local status try steps
    rm -rf stopped
    for ((try = 0; try < 100; try++)); do
        status=0
        signalled "$1" "$((try / 10)).$(printf '%03d' $((RANDOM % 300)))" stopped || status=$?
        ! grep -q '"status": "interrupted"' stopped/run.json 2>said_grep || break
        rm -rf stopped # too early, or too late
    done
    [ "$status" -eq "$2" ] || say "exit code $status: $(cat err)" || return
    ! grep -qi 'nan' out || say "not measured is not nan: $(cat out)" || return
    grep -q '"final_loss": null' stopped/run.json && grep -qE '"start_loss": [0-9.]+,' stopped/run.json || say "$(grep _loss stopped/run.json)" || return
    grep -q '^status  *interrupted' out || say "said: $(cat out)" || return
    steps=$(sed -n 's/^    "steps_done": \([0-9]*\),$/\1/p' stopped/run.json)
    diff <(seq 0 $((steps - 1))) <(column stopped/steps.csv step)
}

interrupted() {
    interrupt "$@" && holds stopped "${files[@]}" run.json || return
    refused 2 '--resume goes on from its checkpoint' "${long[@]}" --out stopped || return
    run 0 "${long[@]}" --out stopped --resume && same stopped straight_long
}
check 'Ctrl-C' interrupted INT 130
check 'the signal of kill' interrupted TERM 143

# Only the interruption leaves a checkpoint, and it is gone in the end.
no_checkpoints() {
    local files=("${files[@]:1}") long=("${long[@]/%50/never}")
    run 0 "${long[@]}" --out never && holds never "${files[@]}" run.json || return
    interrupt TERM 143 && [ -s stopped/checkpoint.safetensors ] && run 0 "${long[@]}" --out stopped --resume && same stopped never
}
check 'an interruption without --checkpoint-every' no_checkpoints

impatience() {
    local status=0
    rm -rf stopped
    {
        "$program" "${long[@]/1500/10000000}" --out stopped >out 2>err &
        until part stopped steps >/dev/null && [ -s "$(part stopped steps)" ]; do kill -0 $! && sleep 0.01 || return; done
        kill -INT $!
        kill -INT $! || true # it may be dead already
        wait $! || status=$?
    } 2>said_shell
    [ "$status" -eq 130 ] || say "exit code $status: $(cat err)"
}
check 'a second Ctrl-C' impatience

# ---- what is there already ----

# unchanged COMMAND...: it succeeds, and the files below the folder broken stay as they are. What a death left of a checkpoint under
# way is of no use, and the program may remove it.
unchanged() {
    rm -f broken/checkpoint.safetensors.*.part
    sha256sum broken/* >before
    "$@" && sha256sum --quiet -c before && diff <(cut -c 67- before) <(printf '%s\n' broken/*)
}

asks() {
    broken broken && unchanged refused 2 '--force starts anew' "${main[@]}" --out broken
}
check 'a run that was broken off is not lost unasked' asks

starts_anew() {
    cp -r broken anew && run 0 "${main[@]}" --out anew --force && same anew straight
}
check 'by force it starts anew' starts_anew

nothing_there() {
    run 0 "${main[@]}" --out fresh --resume && same fresh straight || return
    run 0 "${main[@]}" --out fresh --resume && grep -q 'is there already' out && same fresh straight
}
check 'nothing to go on from, and nothing more to do' nothing_there

in_use() {
    local pid args status=0
    rm -rf used
    "$program" "${long[@]/1500/10000000}" --out used >said_other 2>&1 &
    pid=$!
    until [ -s used/checkpoint.safetensors ]; do kill -0 "$pid" && sleep 0.01 || return; done
    for args in --force --resume; do
        refused 1 'another process is at work' "${long[@]/1500/10000000}" --out used "$args" || status=1
    done
    kill -0 "$pid" && kill -9 "$pid"
    wait "$pid" 2>said_shell || true
    return "$status"
}
check 'a run that another process is at' in_use

# ---- checkpoints not to go on from ----

foreign() {
    rm -rf broken other
    broken broken && broken other --seed 1 || return
    cp other/checkpoint.safetensors broken/
    local args
    for args in '' --resume; do
        # shellcheck disable=SC2086 # one word or none
        unchanged refused 2 'another configuration' "${main[@]}" --out broken $args || return
    done
}
check 'the checkpoint of another run' foreign

# What a run without a checkpoint has left when it was killed: its own is written anew, that of others is not.
foreign_part() {
    rm -rf broken broken_off
    local steps
    broken broken_off && mkdir broken && steps=$(part broken_off steps) && cp "$steps" broken/ || return
    unchanged refused 2 "broken/${steps##*/} is not of this run" "${main[@]}" --seed 1 --out broken || return
    unchanged refused 2 "broken/${steps##*/} is not of this run" "${small[@]}" --out broken || return
    head -c $(($(head -n 1 "$steps" | wc -c) + 3)) "$steps" >"broken/${steps##*/}"
    run 0 "${main[@]}" --out broken && same broken straight
}
check 'half a table of another run' foreign_part

# spoil: writes spoilt versions of broken_off/checkpoint.safetensors into the folder spoilt; its standard input is the body of a
# loop in Python over pieces of the file: length of the header, header, numbers.
spoil() {
    command -v python3 >/dev/null || skip 'no python3' || return
    rm -rf spoilt
    mkdir spoilt && broken broken_off || return
    python3 - <<END
import random, re, struct
file = open('broken_off/checkpoint.safetensors', 'rb').read()
length = struct.unpack('<Q', file[:8])[0]
header, numbers = file[8:8 + length], file[8 + length:]
count = 0
def write(data):
    global count
    open(f'spoilt/{count:03}', 'wb').write(data)
    count += 1
def flip(at):
    write(file[:at] + bytes([file[at] ^ 1 << random.randrange(8)]) + file[at + 1:])
def text(name, value):
    other, n = re.subn(f'"{re.escape(name)}":"[^"]*"'.encode(), f'"{name}":"{value}"'.encode(), header)
    assert n == 1, name
    write(struct.pack('<Q', len(other)) + other + numbers)
$(cat)
END
}

# all_refused: each of the files in the folder spoilt.
all_refused() {
    local file
    for file in spoilt/*; do
        rm -rf broken
        cp -r broken_off broken && cp "$file" broken/checkpoint.safetensors || return
        unchanged refused 1 broken/checkpoint.safetensors "${main[@]}" --out broken --resume || say "$file" || return
    done
}

cut_off() {
    spoil <<<'for n in (0, 1, 7, 8, 100, 8 + length, len(file) // 2, len(file) - 1): write(file[:n])' && all_refused
}
check 'a checkpoint that is cut off' cut_off

flipped() {
    spoil <<<'for at in [0, 9, 8 + length, len(file) - 1] + random.sample(range(8 + length, len(file)), 6): flip(at)' && all_refused
}
check 'a checkpoint in which a bit has turned over' flipped

texts() {
    spoil <<'END' && all_refused
wrong = ['', 'x', '-1', '99999999999999999999', '1 2', '0x1p+30', '3 0 1 9999 1 1 0x1p+0', '7']
names = re.findall(r'"([a-z_.]+)":"', header.split(b'}')[0].decode())
for i, name in enumerate(names):
    if name != 'run':
        text(name, wrong[i % len(wrong)])
text('step', '41'), text('first_forward', '3 5 1 0 1 1 0x1p+0'), text('scaler.scale', '0x0p+0'), text('layers', '5')
END
}
check 'a checkpoint with other texts' texts

no_checkpoint() {
    spoil <<'END' && all_refused
write(b''), write(b'run\n'), write(struct.pack('<Q', 2) + b'{}'), write(struct.pack('<Q', 24) + b'{"__metadata__":{}}     ')
END
}
check 'a file that is no checkpoint' no_checkpoint

spoilt_tables() {
    local table was is
    broken broken_off || return
    for table in steps layers sites; do
        rm -rf broken
        cp -r broken_off broken && was=$(part broken_off "$table") && is=$(part broken "$table") && rm "$is" || return
        unchanged refused 1 "$table.csv" "${main[@]}" --out broken --resume || return
        echo 'run,label' >"$is"
        unchanged refused 1 "$table.csv" "${main[@]}" --out broken --resume || return
        head -c 2000 "$was" | tr '\n' ' ' >"$is"
        unchanged refused 1 "$table.csv" "${main[@]}" --out broken --resume || return
        sed '2s/,fp/,fq/' "$was" >"$is"
        cmp -s "$was" "$is" && return 1
        unchanged refused 1 "$table.csv" "${main[@]}" --out broken --resume || return
        cp "$was" broken/ && run 0 "${main[@]}" --out broken --resume && same broken straight || return
    done
}
check 'tables that are not those of the checkpoint' spoilt_tables

no_files_told() {
    rm -rf broken
    broken broken && echo "{\"run\": \"$(field straight run)\", \"status\": \"ok\", \"files\": {}}" >broken/run.json || return
    run 0 "${main[@]}" --out broken --resume && same broken straight
}
check 'a run.json that tells of no files is not that of a finished run' no_files_told

# What else there is of the run stays.
lost_table() {
    local table
    for table in steps layers sites; do
        rm -rf broken
        cp -r straight broken && rm "broken/$table.csv" || return
        unchanged refused 1 "$table.csv" "${main[@]}" --out broken --resume || return
    done
}
check 'a finished run that has lost a table' lost_table

# ---- a full disk ----

often=("${small[@]}" --steps 20 --probe-every 1 --checkpoint-every 5)

# 6 KiB a step in sites.csv, 52 in a checkpoint.
file_limit() {
    run 0 "${often[@]}" --out often || return
    (
        trap '' XFSZ
        ulimit -f 64
        refused 1 'too large' "${often[@]}" --out full
    ) || return
    [[ -s full/checkpoint.safetensors && ! -e full/run.json && ! -e full/steps.csv ]] || say "left: $(ls full)" || return
    run 0 "${often[@]}" --out full --resume && same full often
}
check 'a limit on file sizes' file_limit

# Not even the first checkpoint fits.
small_limit() {
    rm -rf full
    (
        trap '' XFSZ
        ulimit -f 48
        refused 1 'too large' "${often[@]}" --out full
    ) || return
    [ -z "$(ls -A full)" ] || say "left: $(ls -A full)" || return
    run 0 "${often[@]}" --out full && same full often
}
check 'a limit that no checkpoint fits in' small_limit

# The signal of the limit does not end it without a word.
told_by_limit() {
    rm -rf full
    (ulimit -c 0 -f 64 && refused 1 'too large' "${often[@]}" --out full) || return
    [[ -s full/checkpoint.safetensors && ! -e full/run.json ]] || say "left: $(ls full)" || return
    run 0 "${often[@]}" --out full --resume && same full often
}
check 'a limit whose signal nobody ignores' told_by_limit

# ---- a look at the start ----

look=(--layout sandwich --depth 20 --dtype fp16 --width 16 --heads 2 --seq 8 --batch 2 --data uniform --vocab 32 --threads 1)

# Dead at every change of a file, in a new folder and by --force over an older run.
looks() {
    run 0 "${look[@]}" --out whole || return
    local at status force
    for force in '' --force; do
        for ((at = 1;; at++)); do
            rm -rf dead
            [ ! "$force" ] || cp -r whole dead || return
            status=0
            # shellcheck disable=SC2086 # one word or none
            NH_CRASH_AT=$at preloaded "${look[@]}" --out dead $force || status=$?
            [ "$status" -ne 0 ] || break
            [ "$status" -eq 137 ] || say "call $at: exit code $status: $(cat err)" || return
            [ ! -e dead/run.json ] || same whole dead || say "call $at: looks whole" || return
            run 0 "${look[@]}" --out dead && same whole dead || say "after call $at" || return
        done
        [ "$at" -gt 10 ] || say "only $at calls" || return
    done
}
check 'a look that dies, then runs again' looks

# ---- export ----

# What is in a folder whose replacement is broken off is the old checkpoint, the new one, or refused.
broken_exports() {
    local model=(--arch llama "${small[@]:0:12}") at status file kind
    run 0 export new "${model[@]}" --seed 1 && run 0 export single "${model[@]}" --eps 1e-3 --seed 2 || return
    cp -r single indexed && mv indexed/model.safetensors indexed/a.safetensors || return
    python3 -c 'import json, struct, sys
raw = open("indexed/a.safetensors", "rb").read()
names = [n for n in json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]]) if n != "__metadata__"]
json.dump({"weight_map": {n: "a.safetensors" for n in names}}, open("indexed/model.safetensors.index.json", "w"))' || return
    for kind in single indexed; do
        for ((at = 1;; at++)); do
            rm -rf broken && cp -r "$kind" broken || return
            status=0
            NH_CRASH_AT=$at preloaded export broken "${model[@]}" --seed 1 --force || status=$?
            [ "$status" -ne 0 ] || break
            [ "$status" -eq 137 ] || say "call $at: exit code $status: $(cat err)" || return
            status=0
            "$program" --model broken --data uniform --seq 8 --dry-run >out 2>err || status=$?
            if [ "$status" -eq 0 ]; then
                diff -r broken "$kind" -x '*.part' -x '*.old' >said || diff -r broken new -x '*.part' -x '*.old' -x a.safetensors >said ||
                    say "$kind, call $at: a mixture: $(cat said)" || return
            else
                [ "$status" -eq 1 ] || say "$kind, call $at: exit code $status: $(cat err)" || return
            fi
        done
        [ "$at" -gt 8 ] || say "only $at calls" || return
        diff -r broken new -x a.safetensors || return
    done
}
check 'an export that is broken off' broken_exports

done_testing
