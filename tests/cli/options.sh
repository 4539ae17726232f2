#!/usr/bin/env bash
# options.sh PROGRAM: help, version, lists, and how options reach config.csv.
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
    if "$@" >"$scratch/said" 2>&1; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name: $(head -c 500 "$scratch/said" | tr '\n' ' ')"
        failed=1
    fi
}

# quiet ARGS...: succeeds without a word on stderr; its output is in the file out.
quiet() {
    "$program" "$@" >out 2>err || { echo "exit code $?: $(cat err)"; return 1; }
    [ ! -s err ] || { echo "stderr: $(cat err)"; return 1; }
}

# refused_at_the_end STATUS: a wrong last option was refused, so all before it was taken and nothing was run.
refused_at_the_end() {
    if [ "$1" -ne 2 ] || ! grep -q 'no-such-option' err; then
        echo "exit code $1: $(cat err)"
        return 1
    fi
}

# help and version

versions_agree() {
    quiet --version && grep -qx 'harness [0-9][0-9.]*' out && cp out first || return
    local command
    for command in run list describe check; do
        quiet "$command" --version && cmp out first || return
    done
    quiet --depth 4 --version && cmp out first
}
check 'every command tells the version' versions_agree

helps_are_narrow() {
    local words
    for words in --help -h 'run --help' 'list --help' 'describe --help' 'check --help' '--depth 4 --help'; do
        # shellcheck disable=SC2086 # several words
        quiet $words && [ -s out ] || return
        # no colours, no trailing blanks, at most 100 characters
        if LC_ALL=C grep -nE '[[:cntrl:]]| $|.{101}' out; then
            return 1
        fi
        grep -q 'Usage:' out || { echo "no usage in: $words"; return 1; }
    done
}
check 'every command has help of at most 100 columns' helps_are_narrow

help_command() {
    quiet --help && cp out first && quiet help && cmp out first || return
    local command
    for command in run list compare help; do
        quiet "$command" --help && cp out first && quiet help "$command" && cmp out first || return
    done
}
check 'help is a command too' help_command

# hints PATTERN ARGS...: exit code 2, one sentence with PATTERN.
hints() {
    local pattern=$1 status=0
    shift
    "$program" "$@" >out 2>err || status=$?
    { [[ $status -eq 2 && ! -s out && $(wc -l <err) -eq 1 ]] && grep -qF -- "$pattern" err; } || { echo "exit code $status: $(cat err)"; return 1; }
}
check 'help of no command' hints "no command 'lst'; did you mean list" help lst
check 'a command of other programs' hints 'did you mean harness run --steps N?' train --lr 1
check 'a sweep is a program of its own' hints 'did you mean harness/sweep.sh?' sweep
check 'a topic of other programs' hints 'did you mean models?' list architectures
check 'a format of other programs for an operation' hints 'did you mean fp16?' op cast --dtype half
printf '5 3 1\n2 2 2\n' >ids
printf '5 is a number\n' >text.md
: >nothing
mkfifo pipe
check 'a file of numbers is given as tokens' hints 'write --data tokens:ids' --data ids
check 'another file is given as text' hints 'write --data text:text.md' --data text.md
check 'an empty file is given as text' hints 'write --data text:nothing' --data nothing
check 'a file that is not there' hints "no data source and no file 'book.txt'; a file is given as text:FILE or tokens:FILE" --data book.txt
check 'a pipe is not opened' hints "no data source 'pipe'" --data pipe

help_is_whole() {
    quiet --help || return
    local text
    for text in '--layout NAME' '--dtype FORMAT' '--tie[=on|off]' '--qk-norm[=WORD]' '[12]' 'gelu|relu|swiglu|geglu [gelu]' 'Exit codes' \
        'harness list' 'harness describe' 'harness check'; do
        grep -qF -- "$text" out || { echo "missing: $text"; return 1; }
    done
    [ "$(sed -n '/^Examples/,/^$/p' out | grep -c '^  harness ')" -eq 3 ] || { echo 'not three examples'; return 1; }
}
check 'help shows commands, options, defaults, examples' help_is_whole

examples_parse() {
    quiet --help || return
    local line status
    sed -n '/^Examples/,/^$/p' out | grep '^  harness --' >examples
    while read -r line; do
        status=0
        # shellcheck disable=SC2086
        "$program" ${line#harness } --no-such-option >out 2>err || status=$?
        refused_at_the_end "$status" || return
    done <examples
}
check 'examples of the help are right' examples_parse

# lists

lists_name() {
    local topic=$1 word
    shift
    quiet list "$topic" || return
    for word in "$@"; do
        grep -qE "^$word( |\$)" out || { echo "missing: $word"; return 1; }
    done
    if grep -n ' $' out; then
        return 1
    fi
}
check 'list layouts' lists_name layouts pre post sandwich sandwich-depth sandwich-l
check 'list probes' lists_name probes rms grad overflow jacobian
check 'list policies' lists_name policies plain
check 'list inits' lists_name inits unit gpt2 normal xavier trinity pangu
check 'list sites' lists_name sites embed norm_relax norm_in norm_pre qkv scores probs attn_out ffn_out norm_post residual logits softcap loss
check 'list data' lists_name data fashion-mnist text:FILE tokens:FILE zipf uniform
check 'list columns' lists_name columns run layout rms rms_theory jac_fro overflow headroom_bits singular_value option

names_are_taken() {
    local topic=$1 option=$2 name status
    "$program" list "$topic" | awk '{ print $1 }' >names
    while read -r name; do
        status=0
        "$program" "--$option=$name" --no-such-option >out 2>err || status=$?
        refused_at_the_end "$status" || return
    done <names
}
for number in --softcap=1e-50 --score-softcap=1e-60 --query-scalar=1e-80 --pb-relax=1e-40 --ln-relax=1e-45 --z-loss=1e-300 \
    --embed-shrink=1e-60 --rope-scaling=linear:1e-60 --theta=1e-50; do
    check "a number that fp32 does not hold: $number" hints 'is out of the range of fp32' --dry-run "$number"
done
check 'a factor that is 0 in its format' hints 'is 0 in fp16, the format of embeddings' --dry-run --dtype fp16 --embed-scale 1e-9
check 'a cap of an operation that is 0' hints 'is out of the range of fp32' op softcap --softcap 1e-50 --in a --out b

eps_is_told() {
    "$program" --depth 1 --width 16 --heads 2 --data zipf --vocab 32 --seq 8 --batch 2 --probes none --out eps --force "$@" >out 2>err &&
        grep -q 'is 0 in .*, the format of norm statistics' err
}
check 'an eps that is 0 in the format of statistics is told' eps_is_told --norm-stats dtype --dtype fp16 --eps 1e-9
check 'an eps that is 0 in the carrier is told' eps_is_told --eps 1e-50
eps_is_not_told() {
    ! eps_is_told "$@"
}
check 'an eps that is no 0 is not told' eps_is_not_told --dtype fp16 --eps 1e-9

check 'listed layouts are taken' names_are_taken layouts layout
check 'listed probes are taken' names_are_taken probes probes
check 'listed policies are taken' names_are_taken policies policy
check 'listed inits are taken' names_are_taken inits init

# runs

# run FOLDER ARGS...: a run of the least size.
run() {
    local folder=$1
    shift
    "$program" "$@" --depth=1 --width 8 --heads 2 --data zipf --vocab 16 --seq 4 --batch 1 --probes none --out "$folder" \
        >out 2>err || { echo "exit code $?: $(cat err)"; return 1; }
}

# value FOLDER OPTION
value() {
    sed -n "s/^[^,]*,$2,//p" "$1/config.csv"
}

# records OPTION VALUE ARGS...: config.csv says so.
records() {
    local option=$1 want=$2
    shift 2
    rm -rf r
    run r "$@" || return
    [ "$(value r "$option")" = "$want" ] || { echo "config.csv has $option = '$(value r "$option")'"; return 1; }
}
check 'an option without value is on' records qk-norm on --qk-norm
check 'an option may be switched off' records qk-norm off --qk-norm=off
check 'an alias is recorded as the name' records layout sandwich --layout peri-ln
check 'a number is recorded in its shortest form' records eps 0.0001 --eps 0.000100
check 'the seed of the data is the seed' records data-seed 7 --seed 7
check 'the largest seed' records seed 18446744073709551615 --seed 18446744073709551615
check 'key heads are the heads' records kv-heads 2
check 'a label of any letters' records label 'Größe ✓' --label 'Größe ✓'
check 'a label that looks like an option' records label --x --label=--x
check 'a label with an equals sign' records label a=b --label=a=b
check 'the command may be named' records norm layer run --norm layer

if localedef -i de_DE -f UTF-8 "$scratch/de_DE.UTF-8" 2>said; then
    comma_locale() {
        records eps 0.5 --eps 0.5 && cp r/config.csv plain.csv || return
        rm -rf r
        LOCPATH=$scratch LC_ALL=de_DE.UTF-8 run r --eps 0.5 && cmp r/config.csv plain.csv
    }
    check 'a decimal comma in the locale changes nothing' comma_locale
fi

# drawn TERM ARGS...: what a run of two steps writes to a terminal; TERM may be '', for none.
drawn() {
    TERM=$1 python3 - "$program" --depth 1 --width 8 --heads 2 --data zipf --vocab 16 --seq 4 --batch 1 --steps 2 "${@:2}" <<'EOF'
import os, pty, sys
if not os.environ['TERM']:
    del os.environ['TERM']
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
EOF
}
dumb_terminal() {
    { drawn xterm --out xterm </dev/null >out && grep -q $'\e\[K' out; } || { echo 'no bar on a terminal'; return 1; }
    local term
    for term in dumb ''; do
        { drawn "$term" --out "t$term" >out && grep -q status out; } || { cat out; return 1; }
        ! grep -q $'\e' out || { echo "escapes with TERM='$term'"; return 1; }
    done
}
check 'nothing is drawn on a dumb terminal' dumb_terminal

uninstalled_locale() {
    LC_ALL=xx_XX.UTF-8 LANG=xx_XX run u && [ ! -s err ]
}
check 'an uninstalled locale makes no noise' uninstalled_locale

same_run() {
    rm -rf a b
    run a --norm=layer --eps 1e-5 --threads 1 || return
    run b --eps=0.00001 --norm layer --threads 2 --layout pre-ln --force && cmp a/config.csv b/config.csv
}
check 'spelling, order, threads and folder leave config.csv as it is' same_run

other_run() {
    rm -rf a b
    run a --seed 1 && run b --seed 2 || return
    [ "$(tail -n 1 a/config.csv | cut -d, -f1)" != "$(tail -n 1 b/config.csv | cut -d, -f1)" ]
}
check 'another seed is another run' other_run

echo "1..$n"
exit "$failed"
