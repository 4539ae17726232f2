#!/usr/bin/env bash
# files.sh PROGRAM: what stands in the place of a file to be written, and other writers of the same file or folder.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
mounts=()
clean() {
    local mount
    for mount in "${mounts[@]}"; do
        fusermount -u "$mount" || umount -l "$mount"
    done
    rm -rf -- "$scratch"
}
trap clean EXIT
cd -- "$scratch"
small=(--depth 1 --width 16 --heads 2 --seq 8 --batch 2 --data uniform --vocab 32)
trains=("${small[@]}" --steps 300 --probe-every 50 --threads 1)
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

# untouched FILE COMMAND...: it succeeds, and the file stays as it is.
untouched() {
    local was
    was=$(stat -c '%i %y %s' "$1" && cksum <"$1") && "${@:2}" && [ "$was" = "$(stat -c '%i %y %s' "$1" && cksum <"$1")" ]
}

# ---- what is there ----

# A pipe in the place of a result file is named, and nobody waits for it.
pipes() {
    local file command status
    run 0 "${small[@]}" --probes rms,overflow --out measured || return
    for file in run.json layers.csv sites.csv config.csv; do
        rm -rf piped
        cp -r measured piped && rm "piped/$file" && mkfifo "piped/$file" || return
        for command in compare report; do
            [[ $command != report || $file != config.csv ]] || continue # report does not read it
            status=0
            timeout 60 "$program" "$command" piped >out 2>err || status=$?
            [[ $status -eq 1 && $(wc -l <err) -eq 1 ]] && grep -q "piped/$file.* not a regular file" err ||
                say "$command, $file: exit code $status: $(cat err)" || return
        done
    done
}
check 'a pipe in the place of a result file is refused' pipes

# tables of others in the folder of a sweep, reports of others in that of a study
sweep_and_study() {
    local status=0
    mkdir theirs_too && echo mine >theirs_too/steps.csv || return
    "$here/../../harness/sweep.sh" --harness "$program" "${small[@]}" --probes none --seeds 0 --out theirs_too >out 2>err || status=$?
    [ "$status" -eq 2 ] && grep -q 'theirs_too/steps.csv was not written by a sweep' err && [ "$(cat theirs_too/steps.csv)" = mine ] ||
        say "sweep: exit code $status: $(cat err)" || return
    mkdir report && echo mine >report/report.md || return
    untouched report/report.md refused 2 'report/report.md was not written by a study' study tiny --studies "$NH_TEST_DATA/studies" --out report
}
check 'a sweep and a study replace nothing that they have not written' sweep_and_study

foreign_record() {
    local text
    for text in '{"version": 2, "scripts": {}}' 'no JSON' '' '{"run": "r01234567"}' '[]' '{"run": 7, "status": "ok"}'; do
        rm -rf theirs
        mkdir theirs && printf '%s' "$text" >theirs/run.json || return
        untouched theirs/run.json refused 2 'theirs/run.json is not the record of a run' "${small[@]}" --out theirs || say "$text" || return
        untouched theirs/run.json refused 2 'theirs/run.json is not the record of a run' "${trains[@]}" --out theirs --resume || return
    done
    run 0 "${small[@]}" --out theirs --force && grep -q '"status": "ok"' theirs/run.json
}
check 'a run.json of another program is not replaced unasked' foreign_record

# root may read everything, so that it becomes somebody else.
unreadable() {
    local somebody=()
    if [ "$(id -u)" -eq 0 ]; then
        somebody=(setpriv --reuid=65534 --clear-groups)
        chmod 755 "$scratch"
        "${somebody[@]}" "$program" --version >out 2>said || skip "root may read everything: $(cat said)" || return
    fi
    local file status
    for file in config.csv run.json; do
        rm -rf closed
        run 0 "${small[@]}" --out closed && chmod 777 closed && chmod 0 "closed/$file" || return
        [ "$file" = run.json ] || rm closed/run.json
        status=0
        "${somebody[@]}" "$program" "${small[@]}" --out closed >out 2>err || status=$?
        [ "$status" -eq 1 ] && grep -q "closed/$file'*: Permission denied" err || say "exit code $status: $(cat err)" || return
    done
}
check 'a file that cannot be read is told as that' unreadable

dump_there() {
    echo precious >dump
    untouched dump refused 2 "'dump' is there already" "${small[@]}" --dump dump --out with_dump || return
    [ ! -e with_dump ] || say 'it has run' || return
    run 0 "${small[@]}" --dump dump --out with_dump --force && ! grep -q precious dump || return
    rm dump && run 0 "${small[@]}" --dump dump --out with_dump && [ -s dump ]
}
check '--dump replaces no file unasked' dump_there

op_there() {
    command -v python3 >/dev/null || skip 'no python3' || return
    python3 - <<'END'
import json, struct
header = json.dumps({'x': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}}).encode()
open('in', 'wb').write(struct.pack('<Q', len(header)) + header + struct.pack('<2f', 1, 2))
END
    echo precious >y
    untouched y refused 2 "'y' is there already" op cast --in in --out y || return
    run 0 op cast --in in --out y --force && ! grep -q precious y && refused 2 'same file' op cast --in in --out in --force
}
check 'op replaces no file unasked' op_there

planted() {
    echo precious >victim
    ln -s "$scratch/victim" link && mkfifo fifo || return
    untouched victim refused 1 'is no regular file' "${small[@]}" --dump link --out planted --force || return
    untouched victim refused 1 'is no regular file' "${small[@]}" --dump fifo --out planted --force || return
    mkdir linked && ln -s "$scratch/victim" linked/run.json.part && ln -s "$scratch/victim" linked/.lock || return
    untouched victim refused 1 'linked/.lock' "${small[@]}" --out linked || return
    rm linked/.lock && mkfifo linked/.lock && refused 1 'linked/.lock is no regular file' "${small[@]}" --out linked || return
    rm linked/.lock && untouched victim run 0 "${small[@]}" --out linked && [ ! -e linked/.lock ]
}
check 'links and pipes that someone has put there' planted

# ---- two writers ----

one_dump() {
    local i status words
    run 0 "${small[@]}" --dump first --out one && run 0 "${small[@]}" --seed 1 --dump second --out other || return
    for words in '' --force; do
        for i in 1 2 3 4 5; do
            rm -f both
            # shellcheck disable=SC2086 # one word or none
            "$program" "${small[@]}" --dump both --out "one_$i" $words >out_1 2>err_1 &
            status=0
            # shellcheck disable=SC2086
            "$program" "${small[@]}" --seed 1 --dump both --out "other_$i" $words >out 2>err || status=$?
            if wait $!; then # both may succeed only where they may replace each other
                [[ $status -eq 0 && $words || $status -eq 2 ]] || say "exit code $status: $(cat err)" || return
            else
                [[ $status -eq 0 && ! $words ]] || say "exit code $status: $(cat err err_1)" || return
            fi
            if [ "$words" ]; then
                cmp -s both first || cmp both second || return
            else
                cmp both "$([ "$status" -eq 0 ] && echo second || echo first)" || return
            fi
            [ -z "$(compgen -G 'both.*')" ] || say "left: $(compgen -G 'both.*')" || return
            rm -rf "one_$i" "other_$i"
        done
    done
}
check 'two processes with one --dump' one_dump

killed_dump() {
    local i
    for i in 1 2 3; do
        touch "stale.0000000$i.part"
    done
    run 0 "${small[@]}" --dump stale --out killed_dump && [ -z "$(compgen -G 'stale.*.part')" ]
}
check 'what killed processes have left of a file is removed' killed_dump

# Two mounts of one folder, as of two machines: no lock reaches from one to the other.
mount_twice() {
    command -v bindfs >/dev/null || skip 'no bindfs' || return
    local i
    mkdir -p shared at_1 at_2
    for i in 1 2; do
        bindfs -o attr_timeout=0,entry_timeout=0,negative_timeout=0 shared "at_$i" 2>said_mount || skip "FUSE is not usable: $(cat said_mount)" || return
        mounts+=("$scratch/at_$i")
    done
}

# The record of a run and its tables belong together, and are those of a run by itself.
is_whole() {
    local table
    for table in config layers sites steps; do
        cmp "$1/$table.csv" "$2/$table.csv" || return
    done
    [ "$(find "$1" -name '*.part')" = '' ] || say "left: $(ls -A "$1")"
}

shared_folder() {
    [ ${#mounts[@]} -gt 0 ] || mount_twice || return
    run 0 "${trains[@]}" --out alone || return
    local pause one two
    for pause in 0 0.02 0.05 0.1 0.2 0.3; do
        rm -rf shared/run
        one=0 two=0
        "$program" "${trains[@]}" --out at_1/run >out_1 2>err_1 &
        sleep "$pause"
        "$program" "${trains[@]}" --out at_2/run >out_2 2>err_2 || two=$?
        wait $! || one=$?
        [[ $one -le 1 && $two -le 1 ]] || say "exit codes $one, $two: $(cat err_1 err_2)" || return
        [[ $one -eq 0 || $(wc -l <err_1) -eq 1 ]] && [[ $two -eq 0 || $(wc -l <err_2) -eq 1 ]] || say "$(cat err_1 err_2)" || return
        if [[ $one -eq 0 || $two -eq 0 ]]; then
            is_whole shared/run alone || say "after $pause s" || return
        else # both have told why; the folder does not look finished to the next one
            run 0 "${trains[@]}" --out at_1/run && is_whole shared/run alone || return
        fi
    done
}
check 'two machines train in one folder' shared_folder

# What the other one has written before it died is not among the rows of the first, nor are rows missing there.
shared_with_dead() {
    [ ${#mounts[@]} -gt 0 ] || mount_twice || return
    local longer=("${trains[@]/300/1500}") try one status
    run 0 "${longer[@]}" --out alone_longer || return
    for try in 1 2 3 4; do
        rm -rf shared/run
        one=0 status=0
        "$program" "${longer[@]}" --out at_1/run >out_1 2>err_1 &
        until [ -n "$(compgen -G 'shared/run/steps.csv*')" ]; do kill -0 $! && sleep 0.01 || return; done
        timeout -s KILL "0.$((try + 1))" "$program" "${longer[@]}" --out at_2/run >out_2 2>err_2 || status=$?
        wait $! || one=$?
        if [ "$one" -eq 0 ]; then
            diff shared/run/steps.csv alone_longer/steps.csv >diff_steps || say "exit code 0, the other one's $status: $(head -n 3 diff_steps)" || return
        else
            [ "$(wc -l <err_1)" -eq 1 ] || say "$(cat err_1)" || return
        fi
        run 0 "${longer[@]}" --out at_1/run && is_whole shared/run alone_longer || return
    done
}
check 'two machines train in one folder and one dies' shared_with_dead

# Both of them with what a killed process has left.
shared_resume() {
    [ ${#mounts[@]} -gt 0 ] || mount_twice || return
    local often=("${trains[@]/300/2000}" --checkpoint-every 20) one=0 two=0
    run 0 "${often[@]}" --out alone_often || return
    rm -rf shared/run
    "$program" "${often[@]}" --out at_1/run >out_1 2>err_1 &
    until [ -s shared/run/checkpoint.safetensors ]; do kill -0 $! && sleep 0.005 || return; done
    kill -9 $! || return
    wait $! 2>said_shell || true
    "$program" "${often[@]}" --resume --out at_1/run >out_1 2>err_1 &
    "$program" "${often[@]}" --resume --out at_2/run >out_2 2>err_2 || two=$?
    wait $! || one=$?
    [[ $one -le 1 && $two -le 1 ]] || say "exit codes $one, $two: $(cat err_1 err_2)" || return
    [[ $one -eq 0 || $two -eq 0 ]] || run 0 "${often[@]}" --resume --out at_1/run || return
    is_whole shared/run alone_often
}
check 'two machines go on with one run' shared_resume

done_testing
