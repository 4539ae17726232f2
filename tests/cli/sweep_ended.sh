#!/usr/bin/env bash
# sweep_ended.sh PROGRAM: a sweep that is ended by a signal keeps what its trainings have done.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
scratch=$PWD
cells=(--depth 1 --width 8 --heads 2 --seq 4 --batch 1 --data uniform --vocab 16 --probes none --seeds 0..1 --jobs 2)
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

# begun FOLDER: both cells have trained for a step.
begun() {
    local part
    for part in "$1"/seed=0/steps.csv.*.part "$1"/seed=1/steps.csv.*.part; do
        [[ -f $part && $(wc -l <"$part") -gt 1 ]] || return
    done
}

# The signal goes to the whole group of processes, as that of a terminal does, or to the script alone.
ended() {
    command -v parallel >/dev/null || skip 'GNU parallel is missing' || return
    local group seed
    for group in - ''; do
        rm -rf swept
        setsid "$here/../../harness/sweep.sh" --harness "$program" "${cells[@]}" --steps 100000000 --out swept >out 2>err &
        until begun swept; do kill -0 $! && sleep 0.05 || say "$(cat err)" || return; done
        kill -TERM -- "$group$!" || return
        wait $! 2>said_shell || true
        flock -w 100 swept true || say 'a cell goes on' || return
        for seed in 0 1; do
            [ -s "swept/seed=$seed/checkpoint.safetensors" ] && grep -q '"status": "interrupted"' "swept/seed=$seed/run.json" ||
                say "signal to ${group:-one process}, seed $seed: $(ls "swept/seed=$seed")" || return
        done
    done
}
check 'a sweep that is ended leaves checkpoints of its trainings' ended

done_testing
