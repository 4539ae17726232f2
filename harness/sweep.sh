#!/usr/bin/env -S LC_ALL=C.UTF-8 bash
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
cells are not run again, so the same call continues a sweep that was interrupted. Finished means: by this very command, and
every file is there with the size that run.json tells; a damaged cell is named and run again. A cell that trains (--steps)
goes on from its checkpoint: it gets --resume, unless --resume or --force is among the options.

  --vary OPTION=V1,V2,...  values of an option of harness, may be repeated; the last one varies fastest.
                           With a ';' in it, it is split there instead: --vary 'probes=rms;rms,grad'
                           Whole numbers may be ranges: depth=6..12, or 6..96*2 for 6, 12, 24, 48, 96
  --seeds LIST             seeds, as 0..4 or 0,3,7; they vary faster than all else
  --jobs N                 cells at a time [as many as CPUs]
  --out DIR                [results/sweeps/<what is varied>]
  --print                  print the job list, one command per line, and run nothing
  --dry-run                print what all cells would cost together, and run and write nothing
  --harness PROGRAM        [the one in this tree, built where needed]
  --called NAME            name of PROGRAM in the job list [PROGRAM]

What is none of these goes to every cell, as does all behind '--'.

Example
  harness/sweep.sh --vary layout=pre,post,sandwich --vary depth=6,12,24,48,96 --vary qk-norm=off,on --seeds 0..4 \
      --probes rms --out results/sweeps/growth

Exit codes: 0 done, diverged runs too; 1 a cell failed twice, or the results cannot be written; 2 usage.
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

# Options that take whole numbers, for which ranges are understood.
whole_numbers=' seed data-seed depth width heads kv-heads head-dim experts experts-active experts-shared dense-layers window seq
    batch vocab image-grid image-levels steps warmup grad-accum scale-window probe-every val-every checkpoint-every jac-samples
    jac-iterations '

# A sweep of more cells than this is taken for a slip of the finger.
max_cells=100000

# expand OPTION VALUES: ${values[@]} is the list of values, with the ranges of whole numbers written out; 2 = a range is not valid.
# ${n_values} is how many there are; a list of too many is not written out.
range='^([0-9]{1,18})\.\.([0-9]{1,18})(\*([0-9]{1,9}))?$'
expand() {
    local separator=, item n last factor items
    [[ $2 != *';'* ]] || separator=';'
    IFS=$separator read -r -a items <<<"$2"
    values=()
    n_values=0
    for item in "${items[@]}"; do
        if [[ $whole_numbers != *[[:space:]]"$1"[[:space:]]* || ! $item =~ $range ]]; then
            values+=("$item")
            ((n_values += 1))
            continue
        fi
        n=$((10#${BASH_REMATCH[1]})) last=$((10#${BASH_REMATCH[2]})) factor=${BASH_REMATCH[4]:+$((10#${BASH_REMATCH[4]}))}
        ((n <= last)) && { [ -z "$factor" ] || ((n > 0 && factor > 1)); } || return 2
        if [ -z "$factor" ] && ((last - n >= max_cells)); then
            ((n_values += last - n + 1))
            continue
        fi
        while ((n <= last)); do
            values+=("$n")
            ((n_values += 1))
            [ "$factor" ] || { ((n += 1)); continue; }
            ((n <= last / factor)) || break
            ((n *= factor))
        done
    done
}

# same_values: of ${values[@]} two are the same text or number; $same is one of them.
same_values() {
    local value number
    local -A seen=()
    for value in "${values[@]}"; do
        number=$value
        [[ ! $value =~ ^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$ ]] || LC_ALL=C printf -v number %.17g "$value" 2>/dev/null || :
        same=$value
        [ -z "${seen[=$number]-}" ] || return 0
        seen[=$number]=yes
    done
    return 1
}

# ---- what is asked for ----

varied=()
seeds=
jobs=
out=
print=
dry_run=
program=
called=
fixed=()
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    --print) print=yes ;;
    --dry-run | --dry-run=on) dry_run=yes ;;
    --vary=* | --seeds=* | --jobs=* | --out=* | --harness=* | --called=*)
        set -- "${1%%=*}" "${1#*=}" "${@:2}"
        continue
        ;;
    --vary | --seeds | --jobs | --out | --harness | --called)
        [ -n "${2-}" ] || fail 2 "$1 needs a value; --help shows how"
        case $1 in
        --vary)
            [[ $2 =~ ^[a-z][a-z0-9-]*=. ]] || fail 2 "--vary $2: not of the form OPTION=V1,V2,..."
            [[ $2 != @(out|dry-run|threads)=* ]] || fail 2 "--vary $2: --${2%%=*} is the same for all cells; give it without --vary"
            varied+=("$2")
            ;;
        --seeds) seeds=$2 ;;
        --jobs)
            [[ $2 =~ ^[1-9][0-9]*$ ]] || fail 2 "--jobs $2: not a number of cells at a time"
            jobs=$2
            ;;
        --out) out=$2 ;;
        --harness) program=$2 ;;
        --called) called=$2 ;;
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
    item='[0-9]+(\.\.[0-9]+(\*[0-9]+)?)?'
    if [[ ! $seeds =~ ^$item(,$item)*$ ]] || ! expand seed "$seeds"; then
        fail 2 "--seeds $seeds: not a list of seeds; write 0..4 or 0,3,7"
    fi
    varied+=("seed=$seeds")
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
force=
for i in "${!fixed[@]}"; do
    case ${fixed[i]} in
    --steps) steps=${fixed[i + 1]-0} ;;
    --steps=*) steps=${fixed[i]#*=} ;;
    --resume | --resume=*) resume= ;;
    --force | --force=*) force=yes resume= ;;
    esac
done
for vary in "${varied[@]}"; do
    [[ $vary != @(resume|force)=* ]] || resume=
done

# Every combination, the last option fastest: the options and the folder of each cell, and how long it may take.
options=('')
names=('')
weights=(1)
cells=1
more=
for vary in "${varied[@]}"; do
    expand "${vary%%=*}" "${vary#*=}" || fail 2 "--vary $vary: a range goes up, as 6..12, or by a factor from 2, as 6..96*2"
    if ((cells > 10 ** 18 / n_values)); then more=' or more'; else ((cells *= n_values)); fi
    ! same_values || fail 2 "--vary $vary: $same is there twice; name each value once"
done
[ "$cells" -le "$max_cells" ] || fail 2 "this sweep has $cells cells$more, the largest possible one $max_cells; vary less"
for vary in "${varied[@]}"; do
    option=${vary%%=*}
    expand "$option" "${vary#*=}"
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
quote "${called:-$program}"
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
    need "${packages[@]}" parallel python3
    build build harness
elif ! command -v parallel >/dev/null || ! command -v python3 >/dev/null; then
    need parallel python3
fi
[[ -f $program && -x $program ]] || fail 2 "--harness $program: not a program"
command -v python3 >/dev/null || fail 1 "python3 is missing (Debian: apt-get install python3)"
[ -e /proc/self/fd ] || fail 1 "/proc is not mounted, and GNU parallel cannot work without it; mount it"
jobs=${jobs:-$(nproc)}

# All cells are run by the program that is there now, whatever becomes of its file meanwhile.
exec {image}<"$program"
export image

# in_parallel: runs the shell's commands on stdin, one a line. What GNU parallel itself says, such as that it finds no
# /sys, is no talk of the cells: it goes to $noise.
file=$(mktemp)
exec {noise}<>"$file"
rm -f -- "$file"
in_parallel() {
    PARALLEL_SHELL=$BASH exec setpriv --pdeathsig KILL parallel --plain --will-cite --jobs "$jobs" "$@" 2>&"$noise"
}

# need_parallel: ends the sweep where there is none, or the program of another project that has its name.
need_parallel() {
    [[ $(parallel --version 2>/dev/null) == 'GNU parallel'* ]] || fail 1 "GNU parallel is missing (Debian: apt-get install parallel)"
}

# no_cell: ends the sweep where GNU parallel could not start a single cell.
no_cell() {
    local words
    words=$(tail -n 1 "/proc/self/fd/$noise")
    fail 1 "GNU parallel started no cell${words:+: $words}"
}

# ---- what it would cost ----

# dry_cell COMMAND: what the program tells of one cell, in one line of four numbers; a failure in one line of words.
dry_cell() {
    local said status=0
    eval "set -- $1"
    said=$(exec setpriv --pdeathsig KILL "/proc/self/fd/$image" "${@:2}" --dry-run 2>&1 </dev/null) || status=$?
    [ "$status" -eq 0 ] || { printf 'failed %s %s\n' "$status" "${said##*$'\n'}"; return; }
    awk '$1 == "parameters" { p = $2 }
        $1 == "operations" { sub(/.*; /, ""); o = $1 }
        $1 == "memory" { m = $2 }
        $1 == "time" { t = $3 }
        END { print p, o, m, t }' <<<"$said"
}
export -f dry_cell

# The memory of a sweep is that of its largest cells, as many as run at a time.
if [ "$dry_run" ]; then
    need_parallel
    told=$(in_parallel "exec setpriv --pdeathsig KILL bash -c 'dry_cell \"\$1\"' cell {}" < <(printf '%s\n' "${commands[@]}"))
    [ -n "$told" ] || no_cell
    status=0
    told=$(LC_ALL=C sort -g -r -k 3,3 <<<"$told" | LC_ALL=C awk -v jobs="$jobs" -v cells="${#commands[@]}" '
        $1 == "failed" { status = $2; sub(/^failed [0-9]+ (harness: )?/, ""); failure = $0; next }
        NF != 4 { next }
        { n++; parameters += $1; operations += $2; memory += n <= jobs ? $3 : 0; time += $4 }
        $1 > most { most = $1 }
        $3 > largest { largest = $3 }
        $4 > longest { longest = $4 }
        END {
            if (status) {
                print failure
                exit status
            }
            if (n != cells) {
                print "only " n + 0 " of " cells " cells told what they would cost"
                exit 1
            }
            time /= jobs
            printf "cells       %d, %d at a time\n", cells, jobs
            printf "parameters  %.0f in all, %.0f in the largest cell\n", parameters, most
            printf "operations  %.4g in all, probes included\n", operations
            printf "memory      %.1f MiB, %.1f MiB for the largest cell\n", memory, largest
            printf "time        about %.1f s\n", (time > longest ? time : longest)
        }') || status=$?
    [ "$status" -eq 0 ] || fail "$status" "$told"
    printf '%s\n' "$told"
    exit
fi

# ---- running it ----

# The lock is every process's of the sweep, and a process does not outlive the one that started it (setpriv), but for a
# training, which finishes its step and writes a checkpoint: so the lock is free soon after the script was killed, and not
# before the last cell is gone.
why=$(LC_ALL=C mkdir -p -- "$out" 2>&1) || fail 1 "$out: cannot be made (${why##*: }); choose another --out"
[ -w "$out" ] || fail 1 "$out: cannot be written; choose another --out"
exec {lock}<"$out"
flock -w 10 "$lock" || fail 1 "another sweep is at work in $out; wait for its end or choose another --out"
# Tables in a folder where no cell has run are somebody else's.
shopt -s nullglob
run_before=("$out"/*/cell.txt)
shopt -u nullglob
for table in layers sites steps spectrum config; do
    [[ $force || ${#run_before[@]} -gt 0 || ( ! -e $out/$table.csv && ! -L $out/$table.csv ) ]] ||
        fail 2 "$out/$table.csv was not written by a sweep; choose another --out, or --force to replace it"
done
# Left by a sweep that was killed while it joined its tables.
rm -f -- "$out"/{layers,sites,steps,spectrum,config}.csv.*.part

# completed I: cell I was completed by this very command.
completed() {
    local done_by
    [[ -f $out/${names[$1]}/cell.txt ]] && IFS= read -r done_by <"$out/${names[$1]}/cell.txt" && [ "$done_by" = "${commands[$1]}" ]
}

# current I: nothing that the completed cell I depends on may have changed since. The program knows best, but would have to
# read the data: it is asked where it is newer, where a file or a folder of the user's is read, and where it is to run again.
current() {
    [[ ! $program -nt $out/${names[$1]}/cell.txt && ${commands[$1]} != *@(--force|--model|text:|tokens:)* ]]
}

# cells ACTION I...: what cells.py answers about the cells. It needs nothing but the standard library (-IS), and starts faster alone.
cells() {
    local i action=$1
    shift
    for i; do
        printf '%s\n' "${names[i]}"
    done | python3 -IS "$top/harness/cells.py" "$action" "$out"
}

# find_damaged I...: of completed cells; ${damage[i]} is what is wrong with the files of cell i. It is run from the start.
find_damaged() {
    local i state
    while read -r i && IFS= read -r state <&3; do
        [ "$state" = whole ] || damage[i]=$state
    done < <(printf '%s\n' "$@") 3< <(cells check "$@")
}

# cell "I ANEW COMMAND": one job; ANEW is yes where the files of an earlier run are damaged and are to be replaced. Reports on
# stdout, in two lines: its status and I; the last line of what it said.
#
# A training that loses its shell gets SIGHUP, which neither Ctrl-C nor GNU parallel sends: a second signal of a kind would end
# it without a checkpoint.
cell() {
    local i anew command status=0 dir said word words=()
    read -r i anew command <<<"$1"
    eval "set -- $command"
    dir=${!#}
    dir=${dir#--out=}
    shift
    for word; do
        [[ $anew == yes && $word == --resume ]] || words+=("$word")
    done
    [ "$anew" = no ] || words+=(--force)
    [ ! -e "$dir/cell.txt" ] || rm -f -- "$dir/cell.txt"
    said=$(exec setpriv --pdeathsig HUP "/proc/self/fd/$image" "${words[@]}" 2>&1 >/dev/null </dev/null) || status=$?
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
    local i anew
    for i; do
        [ "${damage[i]-}" ] && anew=yes || anew=no
        printf '%s %s %s %s\n' "${weights[i]}" "$i" "$anew" "${commands[i]}"
    done | sort -s -n -r -k 1,1 | cut -d ' ' -f 2-
}

terminal=
[ ! -t 2 ] || [ "${TERM:-dumb}" = dumb ] || terminal=yes

# progress DONE TOTAL: on a terminal that can wipe a line, how many cells are finished, and how long the rest takes (work: DONE of TOTAL).
progress() {
    local left=
    [ "$terminal" ] || return 0
    if [ "$1" -gt 0 ]; then
        left=$((SECONDS * ($2 - $1) / $1))
        printf -v left ', %d:%02d:%02d left' $((left / 3600)) $((left / 60 % 60)) $((left % 60))
    fi
    printf '\r\033[K%s of %s cells%s' $((${#names[@]} - ${#pending[@]})) ${#names[@]} "$left" >&2
}

# run_pending: tries the cells in pending once, takes out those that are finished, and has in said[] what the others said.
run_pending() {
    local status i words work=0 total=0 finished=()
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
            unset "pending[$i]" "damage[$i]"
            finished+=("$i")
            # A sweep under way, or broken off, does not show what an earlier one has found.
            [ ! -f "$out/config.csv" ] || rm -f -- "$out"/{layers,sites,steps,spectrum,config}.csv
        fi
        progress "$work" "$total"
    done < <(
        in_parallel "exec setpriv --pdeathsig KILL bash -c 'cell \"\$1\"' cell {}" < <(longest_first "${!pending[@]}")
    )
    [ ! "$terminal" ] || printf '\r\033[K' >&2
    [ "${status:-0}" -ne 2 ] || fail 2 "${names[i]}: ${said[i]}"
    find_damaged "${finished[@]}"
    for i in "${finished[@]}"; do
        [ -z "${damage[i]-}" ] || pending[i]=yes said[i]=${damage[i]}
    done
}

pending=()
said=()
damage=()
known=()
for i in "${!names[@]}"; do
    completed "$i" && known+=("$i") || pending[i]=yes
done
find_damaged "${known[@]}"
for i in "${known[@]}"; do
    [ -z "${damage[i]-}" ] || say "${names[i]} is damaged and is run again: ${damage[i]}"
    [[ -z ${damage[i]-} ]] && current "$i" || pending[i]=yes
done
[ ${#pending[@]} -eq 0 ] || need_parallel
[ ${#pending[@]} -eq 0 ] || run_pending
[ ${#pending[@]} -eq 0 ] || run_pending
[ ${#pending[@]} -eq 0 ] || [ ${#said[@]} -gt 0 ] || no_cell
finished=()
for i in "${!names[@]}"; do
    [ -n "${pending[i]-}" ] || finished+=("$i")
done
cells join "${finished[@]}" || exit 1
for i in "${!pending[@]}"; do
    say "failed twice: ${names[i]}: ${said[i]-was broken off}"
done
[ ${#pending[@]} -eq 0 ] || fail 1 "${#pending[@]} of ${#names[@]} cells failed and are in none of the files; the same command tries them again"
