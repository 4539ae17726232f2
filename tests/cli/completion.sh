#!/usr/bin/env bash
# completion.sh PROGRAM: what the completion script for bash offers.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
cd -- "$scratch"
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

"$program" --help >help

prints() {
    "$program" completion >script 2>err && [ -s script ] && [ ! -s err ]
}
check 'harness completion' prints
check 'bash reads it' bash -uec '. ./script && complete -p harness'
if command -v shellcheck >said; then
    check 'shellcheck has no finding' shellcheck script
fi
# shellcheck disable=SC1091 # made above
. ./script
COMP_WORDBREAKS=$' \t\n"\'@><=;|&(:'
mkdir results resources
touch tokens.txt 'two words.txt'

# offered WORD...: what is offered for the last word of a line, one a line. As in readline, = and : are words of their own.
offered() {
    COMP_WORDS=(harness "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _harness
    printf '%s\n' "${COMPREPLY[@]}" | sort
}

# offers WANTED WORD...: exactly the words in WANTED.
offers() {
    local wanted=$1
    shift
    offered "$@" >got
    diff <(printf '%s\n' "$wanted" | tr ' ' '\n' | sort) got
}

# offers_listed LIST WORD...: exactly the lines of the file LIST.
offers_listed() {
    local list=$1
    shift
    offered "$@" >got
    [ -s "$list" ] && diff <(sort -u "$list") got
}

# commands and options

sed -n '/^Usage/,/^$/s/^  harness \[*\([a-z]*\).*/\1/p' help >commands
check 'all commands' offers_listed commands ''
check 'a command' offers 'describe' desc
check 'no command behind another' offers '' list run
{ grep -oE '^  --[a-z0-9-]+' help | tr -d ' ' && echo --version; } >options
check 'all options of the help' offers_listed options --
check 'all options behind run' offers_listed options run -
check 'an option' offers --layout --lay
check 'an option behind others' offers --layout --depth 4 --qk-norm --lay
check 'options of another command' offers '--baseline --by' compare results --b
check 'an option of export' offers '--run' export results --ru
check 'all commands behind help' offers_listed commands help ''
"$program" list studies | cut -d ' ' -f 1 >listed
check 'all studies' offers_listed listed study ''
"$program" list ops | cut -d ' ' -f 1 >listed
check 'all operations' offers_listed listed op ''
check 'options of a run behind export' offers '--layout' export results --lay
check 'no options of a run behind another command' offers '--help' list --h

# names

# names TOPIC: a name or an alias a line, from the first two columns of a list.
names() {
    "$program" list "$1" | awk '{ print $1; print $2 }' | tr ',' '\n' | grep -vx -e -
}

names layouts >listed
grep '^sand' listed >sand
check 'layouts and their aliases' offers_listed listed --layout ''
check 'layouts with a start' offers_listed sand --layout sand
check 'layouts behind an equals sign' offers_listed sand --layout = sand
check 'all layouts behind an equals sign' offers_listed listed --depth 4 --layout =
check 'layouts in a word that is not broken' offers_listed sand --layout=sand
check 'layouts to describe' offers_listed sand describe sand
check 'layouts to check' offers 'all' check al
check 'topics' offers 'policies probes' list p

check 'formats' offers 'fp16 fp32 fp64 fp8-e4m3 fp8-e5m2' --dtype f
formats_are_known() {
    offered --dtype '' >formats
    local format status
    grep -A1 -e '--dtype' help | grep -oE '\<(fp|bf|tf)[0-9][a-z0-9-]*' | sort -u | diff - formats || return
    while read -r format; do
        status=0
        "$program" "--dtype=$format" --no-such-option 2>err || status=$?
        grep -q no-such-option err || { echo "$format: exit code $status, $(cat err)"; return 1; }
    done <formats
}
check 'formats are those of the help and taken' formats_are_known

names models >listed
check 'architectures' offers_listed listed --arch ''
names policies >listed
check 'policies' offers_listed listed --policy ''
{ names probes && echo none; } >listed
check 'probes' offers_listed listed --probes ''
"$program" list inits | cut -d ' ' -f 1 >listed
check 'inits' offers_listed listed --init ''
"$program" list data | sed 's/ .*//; s/:.*/:/' >listed
check 'data sources' offers_listed listed --data ''

# comma lists

check 'a probe' offers 'rms' --probes rm
check 'a probe behind a comma' offers 'rms,jac rms,jacobian' --probes rms,ja
check 'a probe behind a comma and an equals sign' offers 'rms,jac rms,jacobian' --probes = rms,ja
check 'no probe twice' offers '' --probes grad,rms,g
check 'no probes' offers 'none' --probes n
check 'none is no member of a list' offers '' --probes rms,n

# values

check 'choices' offers 'geglu gelu' --ffn ge
check 'choices with a comma' offers 'attn attn,ffn' --branches a
check 'a word for a number' offers 'auto' --seq ''
check 'a switch takes a value behind an equals sign only' offers 'off on width' --qk-norm =
check 'a switch stands alone' offers '--depth' --qk-norm --dep
check 'nothing for a number' offers '' --depth ''
check 'nothing for a label' offers '' --label r
check 'knobs of an alias' offers 'sites=attn sites=both sites=ffn' --layout peri-ln --set s
check 'values of a knob' offers 'attn' --layout = peri-ln --set sites = a
check 'a knob with a number' offers 'post-fraction=' --set post --layout=mix-ln --set ''
check 'no knobs' offers '' --layout pre --set ''
check 'knobs of an architecture' offers 'sites=attn sites=both sites=ffn' --arch gemma2 --set ''
check 'knobs of an architecture behind an equals sign' offers 'ffn' --arch=gemma2 --set sites = f

# files

check 'folders' offers $'resources\nresults' --out res
check 'folders behind an equals sign' offers 'results' --out = resul
check 'files of text' offers 'tokens.txt' --data text : to
check 'files of tokens' offers 'tokens.txt' --data = tokens : to
check 'files in a word that is not broken' offers 'tokens.txt' --data=tokens:to
blank() {
    [ "$(offered --data text : two)" = 'two words.txt' ] && [ "$(offered --data text : 'two\ w')" = 'two words.txt' ]
}
check 'a file with a blank' blank
check 'files to compare' offers $'resources\nresults' compare res
check 'no file for an option of compare' offers '' compare --by res
check 'files of an operation' offers 'tokens.txt' op linear --in to
check 'folders of a study' offers $'resources\nresults' study warmup --out res
check 'folders of an export' offers $'resources\nresults' export x --run res

# Every option that a run records is a name for --by.
by_is_recorded() {
    "$program" --layout mix-ln --depth 1 --width 8 --heads 2 --experts 2 --experts-active 1 --data zipf --vocab 16 --seq 4 --batch 1 \
        --probes none --steps 1 --optimizer muon --out r 2>err >out || { cat err; return 1; }
    cut -d , -f 2 r/config.csv | grep -vx -e option -e sample | sort >recorded
    offered compare r --by '' | sort >got
    comm -23 recorded got >missing
    [[ $(wc -l <recorded) -gt 50 && ! -s missing ]] || { cat missing; return 1; }
}
check 'names that compare groups by' by_is_recorded

# run.sh

as_run_sh() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _harness_run_sh
    printf '%s\n' "${COMPREPLY[@]}" | sort
}
mkdir -p tree/layouts other
run_sh() {
    complete -p run.sh | grep -q _harness_run_sh && [ "$(as_run_sh tree/run.sh --lay)" = --layout ]
}
check 'run.sh takes the same' run_sh
another_run_sh() {
    [ "$(as_run_sh other/run.sh --lay)" = '' ] && [ "$(as_run_sh other/run.sh tok)" = tokens.txt ]
}
check 'a run.sh of something else gets files' another_run_sh

refuses() {
    local status=0
    "$program" completion zsh >out 2>err || status=$?
    [ "$status" -eq 2 ] && [ ! -s out ] && [ "$(wc -l <err)" -eq 1 ]
}
check 'it takes no argument' refuses

echo "1..$n"
exit "$failed"
