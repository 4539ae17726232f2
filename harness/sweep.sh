#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Sweeps over the program: each cell is one call of it with a run folder of its own. What is done, and of which command,
# is written beside the results, so the same sweep goes on wherever it was broken off.
set -euo pipefail
# shellcheck source=run.sh
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../run.sh"

usage() {
    cat <<'EOF'
Usage: harness/sweep.sh --vary OPTION=V1,V2,... ... [--seeds 0..4] [--out DIR] [OPTIONS OF harness]

Runs harness once for every combination of what is varied, on all cores, one thread each; then writes all results as one
into DIR/layers.csv, DIR/sites.csv, DIR/config.csv, and DIR/steps.csv, DIR/spectrum.csv where cells have them. Finished
cells are not run again, so the same call continues a sweep that was broken off, however that happened. A cell that trains
(--steps) goes on from its checkpoint: it gets --resume, unless --resume or --force is among the options.

  --vary OPTION=V1,V2,...  values of an option of harness, may be repeated; the last one varies fastest.
                           With a ';' in it, it is split there instead: --vary 'probes=rms;rms,grad'
  --seeds LIST             seeds, as 0..4 or 0,3,7; they vary faster than all else
  --jobs N                 cells at a time [as many as CPUs]
  --out DIR                [results/sweeps/<what is varied>]
  --print                  print the job list, one command per line, and run nothing
  --harness PROGRAM        [the one in this tree, built where needed]

What is none of these goes to every cell, as does all behind '--'.

Example
  harness/sweep.sh --vary layout=pre,post,sandwich --vary depth=6,12,24,48,96 --vary qk-norm=off,on --seeds 0..4 \
      --probes rms --out results/sweeps/growth

Exit codes: 0 done, diverged runs too; 1 a cell failed twice; 2 usage.
EOF
}

# fail STATUS SENTENCE
fail() {
    say "$2"
    exit "$1"
}

# quote WORD: $quoted is the word for any POSIX shell, and for xargs.
quote() {
    quoted=$1
    [[ $1 =~ ^[A-Za-z0-9_./:=,+@%-]+$ ]] || quoted="'${1//\'/\'\\\'\'}'"
}

# encode TEXT: $encoded is the text as part of a file name, percent-encoded where needed.
encode() {
    local LC_ALL=C i c
    encoded=
    for ((i = 0; i < ${#1}; i++)); do
        c=${1:i:1}
        if [[ $c != [A-Za-z0-9_.+-] ]]; then
            printf -v c %d "'$c"
            printf -v c %%%02X $((c & 255))
        fi
        encoded+=$c
    done
}

# expand LIST: $expanded is the list of seeds with its ranges written out.
expand() {
    local items item n
    expanded=
    IFS=, read -r -a items <<<"$1"
    for item in "${items[@]}"; do
        if [[ $item =~ ^([0-9]{1,9})\.\.([0-9]{1,9})$ ]]; then
            for ((n = 10#${BASH_REMATCH[1]}; n <= 10#${BASH_REMATCH[2]}; n++)); do
                expanded+=,$n
            done
        elif [[ $item =~ ^[0-9]+$ ]]; then
            expanded+=,$item
        else
            expanded=
            break
        fi
    done
    [ -n "$expanded" ] || fail 2 "--seeds $1: not a list of seeds; write 0..4 or 0,3,7"
    expanded=${expanded#,}
}

# ---- what is asked for ----

varied=()
seeds=
jobs=
out=
print=
program=
fixed=()
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    --print) print=yes ;;
    --vary=* | --seeds=* | --jobs=* | --out=* | --harness=*)
        set -- "${1%%=*}" "${1#*=}" "${@:2}"
        continue
        ;;
    --vary | --seeds | --jobs | --out | --harness)
        [ -n "${2-}" ] || fail 2 "$1 needs a value; --help shows how"
        case $1 in
        --vary)
            [[ $2 =~ ^[a-z][a-z0-9-]*=. ]] || fail 2 "--vary $2: not of the form OPTION=V1,V2,..."
            varied+=("$2")
            ;;
        --seeds) seeds=$2 ;;
        --jobs)
            [[ $2 =~ ^[1-9][0-9]*$ ]] || fail 2 "--jobs $2: not a number of cells at a time"
            jobs=$2
            ;;
        --out) out=$2 ;;
        --harness) program=$2 ;;
        esac
        shift
        ;;
    --)
        shift
        fixed+=("$@")
        break
        ;;
    *) fixed+=("$1") ;;
    esac
    shift
done
[[ "${fixed[*]-}${varied[*]-}$out" != *[[:cntrl:]]* ]] || fail 2 "a control character has no place in a job list"
if [ -n "$seeds" ]; then
    expand "$seeds"
    varied+=("seed=$expanded")
fi
[ ${#varied[@]} -gt 0 ] || fail 2 "nothing varies: give --vary OPTION=V1,V2,... or --seeds; --help shows how"
if [ -z "$out" ]; then
    out=${varied[*]%%=*}
    out=results/sweeps/${out// /-}
fi
while [[ $out == ?*/ ]]; do
    out=${out%/}
done

# ---- the job list ----

# resume: what a cell that trains gets, to go on from its checkpoint; steps: of all cells, where they do not vary.
resume=' --resume'
steps=0
for i in "${!fixed[@]}"; do
    case ${fixed[i]} in
    --steps) steps=${fixed[i + 1]-0} ;;
    --steps=*) steps=${fixed[i]#*=} ;;
    --resume | --resume=* | --force | --force=*) resume= ;;
    esac
done
for vary in "${varied[@]}"; do
    [[ $vary != @(resume|force)=* ]] || resume=
done

# Every combination, the last option fastest: the options and the folder of each cell, and how long it may take.
options=('')
names=('')
weights=(1)
for vary in "${varied[@]}"; do
    option=${vary%%=*}
    separator=,
    [[ $vary != *';'* ]] || separator=';'
    IFS=$separator read -r -a values <<<"${vary#*=}"
    old_options=("${options[@]}") old_names=("${names[@]}") old_weights=("${weights[@]}")
    options=() names=() weights=()
    for i in "${!old_names[@]}"; do
        for value in "${values[@]}"; do
            quote "--$option=$value"
            [[ $option != steps || $value == 0 ]] || quoted+=$resume
            encode "$value"
            options+=("${old_options[i]} $quoted")
            names+=("${old_names[i]:+${old_names[i]}_}$option=$encoded")
            [[ $option == depth && $value =~ ^[0-9]{1,9}$ ]] && weights+=("$value") || weights+=("${old_weights[i]}")
        done
    done
done

# The folder's name must fit a file system; its --out stands last in the command, where cell() looks for it.
program=${program:-$top/build/harness}
quote "$program"
quoted_program=$quoted
everywhere=
for word in "${fixed[@]}" --threads=1; do
    quote "$word"
    everywhere+=" $quoted"
done
[ "$steps" = 0 ] || everywhere+=$resume
declare -A seen=()
commands=()
for i in "${!names[@]}"; do
    name=${names[i]}
    if [ ${#name} -gt 200 ]; then
        read -r sum _ < <(cksum <<<"$name")
        name=${name:0:180}-$sum
        names[i]=$name
    fi
    [ -z "${seen[$name]-}" ] || fail 2 "the cell $name is there twice: a value is named twice"
    seen[$name]=yes
    quote "--out=$out/$name"
    commands+=("$quoted_program${options[i]}$everywhere $quoted")
done
if [ "$print" ]; then
    printf '%s\n' "${commands[@]}"
    exit
fi

if [ "$program" = "$top/build/harness" ]; then
    # shellcheck disable=SC2154 # set in run.sh
    need "${packages[@]}" parallel
    build build harness
else
    command -v parallel >/dev/null || need parallel
fi
[[ -f $program && -x $program ]] || fail 2 "--harness $program: not a program"

# ---- running it ----

# The lock is every process's of the sweep, and a process does not outlive the one that started it (setpriv): so it is free
# as soon as the script was killed, and not before the last cell is gone.
mkdir -p -- "$out" || fail 1 "$out: cannot be made; choose another --out"
exec {lock}<"$out"
flock -w 3 "$lock" || fail 1 "another sweep is at work in $out; wait for its end or choose another --out"

# finished I: cell I is done, by this very command and no older program. The program knows best, but would have to load
# the data: it is asked where that is a file of the user's, and where it is to run again.
finished() {
    local dir=$out/${names[$1]} done_by
    [[ -f $dir/run.json && -f $dir/cell.txt && ! $program -nt $dir/cell.txt && ${commands[$1]} != *@(--force|text:|tokens:)* ]] &&
        IFS= read -r done_by <"$dir/cell.txt" && [ "$done_by" = "${commands[$1]}" ]
}

# cell "I COMMAND": one job. Reports on stdout, in two lines: its status and I; the last line of what it said.
cell() {
    local i=${1%% *} command=${1#* } status=0 dir said
    eval "set -- $command"
    dir=${!#}
    dir=${dir#--out=}
    [ ! -e "$dir/cell.txt" ] || rm -f -- "$dir/cell.txt"
    said=$(exec setpriv --pdeathsig KILL "$@" 2>&1 >/dev/null </dev/null) || status=$?
    if [ "$status" -eq 0 ]; then
        printf '%s\n' "$command" >"$dir/cell.txt" || status=1 # half of it is another command
    elif [ "$status" -gt 128 ]; then
        said="killed by signal $((status - 128))"
    fi
    printf '%s %s\n%s\n' "$status" "$i" "${said##*$'\n'}"
}
export -f cell

# longest_first I...: the cells as lines for cell().
longest_first() {
    local i
    for i; do
        printf '%s %s %s\n' "${weights[i]}" "$i" "${commands[i]}"
    done | sort -s -n -r -k 1,1 | cut -d ' ' -f 2-
}

# progress DONE TOTAL: on a terminal, how many cells are finished, and how long the rest takes (work: DONE of TOTAL).
progress() {
    local left=
    [ -t 2 ] || return 0
    if [ "$1" -gt 0 ]; then
        left=$((SECONDS * ($2 - $1) / $1))
        printf -v left ', %d:%02d:%02d left' $((left / 3600)) $((left / 60 % 60)) $((left % 60))
    fi
    printf '\r\033[K%s of %s cells%s' $((${#names[@]} - ${#pending[@]})) ${#names[@]} "$left" >&2
}

# run_pending: tries the cells in pending once, takes out those that are finished, and has in said[] what the others said.
run_pending() {
    local status i words work=0 total=0
    for i in "${!pending[@]}"; do
        ((total += weights[i])) || true
    done
    SECONDS=0
    progress 0 1
    while read -r status i && IFS= read -r words; do
        ((work += weights[i])) || true
        said[i]=${words:-ended with exit code $status}
        [ "$status" -ne 2 ] || break
        if [ "$status" -eq 0 ]; then
            unset "pending[$i]"
            # A sweep under way, or broken off, does not show what an earlier one has found.
            [ ! -f "$out/config.csv" ] || rm -f -- "$out"/{layers,sites,steps,spectrum,config}.csv
        fi
        progress "$work" "$total"
    done < <(
        PARALLEL_SHELL=$BASH exec setpriv --pdeathsig KILL parallel --plain --will-cite ${jobs:+--jobs "$jobs"} \
            "exec setpriv --pdeathsig KILL bash -c 'cell \"\$1\"' cell {}" < <(longest_first "${!pending[@]}")
    )
    [ ! -t 2 ] || printf '\r\033[K' >&2
    [ "${status:-0}" -ne 2 ] || fail 2 "${names[i]}: ${said[i]}"
}

# concatenate TABLE: the finished cells' files of that name as one, in the order of the job list.
concatenate() {
    local file=$out/$1.csv i files=()
    for i in "${!names[@]}"; do
        [ -n "${pending[i]-}" ] || [ ! -f "$out/${names[i]}/$1.csv" ] || files+=("./${names[i]}/$1.csv")
    done
    if [ ${#files[@]} -eq 0 ]; then
        rm -f -- "$file"
        return
    fi
    # Files of the same columns are put together as they are, others (of an older program) by the columns' names.
    (
        cd -- "$(realpath -- "$out")"
        export LC_ALL=C
        awk 'FNR > 1 || NR == 1
            NR == 1 { header = $0 }
            FNR == 1 && $0 != header { exit 1 }' "${files[@]}" >"$1.csv.part" ||
            awk -f "$top/plots/csv.awk" -f "$top/plots/concat.awk" "${files[@]}" >"$1.csv.part"
        mv -- "$1.csv.part" "$1.csv"
    )
    printf '%s\n' "$file"
}

pending=()
said=()
for i in "${!names[@]}"; do
    finished "$i" || pending[i]=yes
done
[[ ${#pending[@]} -eq 0 || $(parallel --version 2>/dev/null) == 'GNU parallel'* ]] ||
    fail 1 "GNU parallel is missing (Debian: apt-get install parallel)"
[ ${#pending[@]} -eq 0 ] || run_pending
[ ${#pending[@]} -eq 0 ] || run_pending
for table in layers sites steps spectrum config; do
    concatenate "$table"
done
for i in "${!pending[@]}"; do
    say "failed twice: ${names[i]}: ${said[i]-was broken off}"
done
[ ${#pending[@]} -eq 0 ] || fail 1 "${#pending[@]} of ${#names[@]} cells failed and are in none of the files; the same command tries them again"
