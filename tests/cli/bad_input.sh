#!/usr/bin/env bash
# bad_input.sh PROGRAM: what is wrong is refused with the right exit code, one sentence on stderr and nothing else: no output,
# no file. Each case runs in an empty folder of its own.
set -euo pipefail
program=$(realpath -- "$1")
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
environment=(env)
n=0
failed=0

# result PROBLEM NAME: one line of TAP; PROBLEM is empty where all is well.
result() {
    n=$((n + 1))
    if [ -z "$1" ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2: $1"
        failed=1
    fi
}

# refused STATUS PATTERN ARGS...: PATTERN is what the sentence must say.
refused() {
    local want=$1 pattern=$2 status=0 problem=
    shift 2
    local folder=$scratch/$n
    mkdir -- "$folder"
    (cd -- "$folder" && timeout 20 "${environment[@]}" "$program" "$@" >"$scratch/stdout" 2>"$scratch/stderr") || status=$?
    if [ "$status" -ne "$want" ]; then
        problem="exit code $status, not $want"
    elif [ "$(wc -l <"$scratch/stderr")" -ne 1 ]; then
        problem="$(wc -l <"$scratch/stderr") lines on stderr"
    elif ! grep -q '^harness: ' "$scratch/stderr"; then
        problem="no 'harness: ' before the sentence"
    elif LC_ALL=C grep -q '[[:cntrl:]]' "$scratch/stderr" || ! iconv -f UTF-8 -t UTF-8 "$scratch/stderr" >"$scratch/utf8"; then
        problem="the sentence has bytes that cannot be printed"
    elif ! grep -qF -- "$pattern" "$scratch/stderr"; then
        problem="the sentence does not say '$pattern': $(head -c 300 "$scratch/stderr")"
    elif [ -s "$scratch/stdout" ]; then
        problem="output on stdout"
    elif [ -n "$(ls -A "$folder")" ]; then
        problem="left behind: $(ls -A "$folder")"
    fi
    result "$problem" "$(printf '%q ' "$@" | head -c 100)"
}

# options
refused 2 "no option '--nonsense'" --nonsense
refused 2 'did you mean --depth' --dpeth 4
refused 2 'did you mean --depth' --dep 4
refused 1 "cannot open 'folder/config.json'" --model folder
refused 2 '--depth is given twice' --depth 4 --depth 4
refused 2 '--dtype is given twice' --dtype fp16 --depth 4 --dtype=bf16
refused 2 '--NAME=on|off' --qk-norm on
refused 2 "'--'" --
refused 2 "'--'" -- --depth 4
refused 2 "'--'" --depth 4 -- list
refused 2 "'-x'" -x
refused 2 "'stray'" --depth 4 stray
refused 2 "no option '--'" --=4
refused 2 '\xff\xfe' $'--\xff\xfe'
refused 2 '\x0a' $'--two\nlines'

# commands
refused 2 'did you mean list?' lst
refused 2 "no command ''" ''
refused 2 "no command 'depth'" depth 4
refused 2 "no command '\\xff\\x0a'" $'\xff\n'
refused 2 "'list'" run list
refused 2 "'run'" run run
refused 2 "'list'" --depth 4 list layouts
refused 2 'list takes one topic' list
refused 2 'list takes one topic' list layouts probes
refused 2 'did you mean layouts?' list layuots
refused 2 'topics: ' list nothing
refused 2 "'--json'" list --json
refused 2 'did you mean sandwich' describe sandwhich
refused 2 'did you mean sandwich' check sandwhich
refused 2 '' describe

# values
for option in layout depth dtype policy seed data probes label out set eps threads; do
    refused 2 "--$option needs a value" "--$option"
    refused 2 "--$option needs a value" "--$option="
    refused 2 "--$option needs a value" "--$option" ''
done
refused 2 '--depth needs a value' --depth --width 64
refused 2 'did you mean sandwich' --layout sandwhich --depth 4
for value in 0 5000 -3 4x 0x10 1e2 4.5 +4 ' 4' '4 ' nan inf 99999999999999999999 4294967308 four $'4\n' $'\xff' --; do
    refused 2 --depth "--depth=$value"
done
for value in -1 1e30 18446744073709551616 0x1 1.5 ''; do
    refused 2 --seed --seed "$value"
    refused 2 --data-seed --data-seed "$value"
done
for value in -1 2 nan inf 1e999 0x1p-3 0,5 1e 1e-5x; do
    refused 2 --eps --eps "$value"
done
for value in nan inf -inf 0 -0 -1 1e-999 big; do
    refused 2 --embed-rms "--embed-rms=$value"
done
for value in fp17 e0m3 e1m3 e12m3 e5m0 e5m53 e05m10 E5M10 FP16 fp16x 'fp16 '; do
    refused 2 'eXmY' --dtype "$value"
done
refused 2 '1..65536' --width 1e2
refused 2 '1..32768' --seq 0
refused 2 '1..32768' --batch 0
refused 2 '1..16777217' --vocab 0
refused 2 'or all' --threads 0
refused 2 'or all' --threads -1
refused 2 'off|on' --qk-norm=maybe
refused 2 'rope|nope|learned' --pos alibi
refused 2 'attn,ffn|attn|ffn' --branches none
refused 2 'gelu|relu' --ffn silu
refused 2 'no policy' --policy nope
refused 2 "no probe 'foo'" --probes rms,foo
refused 2 "no probe ''" --probes rms,
refused 2 'did you mean fashion-mnist' --data fashion-mnst
refused 2 'write --data text:FILE' --data text
refused 2 'write --data tokens:FILE' --data tokens:
refused 2 'write --data zipf' --data zipf:3
refused 2 'printable UTF-8' --label $'two\nlines'
refused 2 'printable UTF-8' --label $'\xc3'
refused 2 '200 bytes' --label "$(printf '%0201d' 0)"
refused 2 'printable UTF-8' --out $'a\tb'
refused 2 'NAME=VALUE' --set alpha
refused 2 '--set alpha' --layout pre --set alpha=1
refused 2 '1..4096' --depth "$(printf '%0100000d' 0)"

# training
refused 2 '0..1000000000' --steps -1
refused 2 'adamw|muon|sgd' --steps 2 --optimizer adam
refused 2 '--lr' --steps 2 --lr 0
refused 2 'no effect without training' --resume

# contradictions
refused 2 '--heads 5 would do' --width 100 --heads 7
refused 2 'take an even width' --width 9 --heads 3
refused 2 '--kv-heads 2 would do' --heads 4 --kv-heads 3
refused 2 'sandwich' --layout pre --post-gain 2
refused 2 '--theta has no effect' --pos nope --theta 500
refused 2 '--image-grid has no effect' --data zipf --image-grid 14
refused 2 '--image-levels has no effect' --data uniform --image-levels 16
refused 2 '--qk-norm has no effect' --branches ffn --qk-norm
refused 2 '--qk-init has no effect' --branches ffn --qk-init 0
refused 2 '--score-scale has no effect' --branches ffn --score-scale after
refused 2 '--window has no effect' --branches ffn --window 8
refused 2 '--window 16 has no effect' --data zipf --seq 16 --window 16
refused 2 'sequences of 64 tokens' --data zipf --window 100
refused 2 '--heads has no effect' --branches ffn --heads 4
refused 2 '--kv-heads has no effect' --branches ffn --kv-heads 2
refused 2 '--theta has no effect' --branches ffn --theta 500
refused 2 '--qk-norm has no effect' --layout hybridnorm --qk-norm
refused 2 '--eps has no effect' --layout no-norm --eps 1e-6
refused 2 '--ffn has no effect' --branches attn --ffn relu
refused 2 '--ffn-mult has no effect' --branches attn --ffn-mult 2
refused 2 '--cotangent has no effect' --probes none --cotangent random
refused 2 '--jac-samples has no effect' --probes rms --jac-samples 8
refused 2 '--spectrum has no effect' --probes rms --spectrum

# the same words under a locale whose decimal point is a comma
if localedef -i de_DE -f UTF-8 "$scratch/de_DE.UTF-8" 2>/dev/null; then
    environment=(env "LOCPATH=$scratch" LC_ALL=de_DE.UTF-8)
    refused 2 '--eps' --eps 0,5
    refused 2 '0..1' --eps 1,5
    environment=(env)
fi

# what cannot be read or written
refused 1 /nonexistent --data text:/nonexistent --depth 2
refused 1 /dev/null --data tokens:/dev/null --depth 2
refused 1 /nonexistent --data tokens:/nonexistent --depth 2 --steps 2 --resume
refused 2 '--val-every has no effect' --data "text:$program" --steps 2 --val-every 1
refused 1 /proc/nope --data zipf --depth 1 --width 8 --heads 2 --probes none --out /proc/nope/x
refused 1 /dev/null --data zipf --depth 1 --width 8 --heads 2 --probes none --out /dev/null/x

# A full or closed standard output is a failure, not silence.
if [ -w /dev/full ]; then
    for words in --help --version 'list columns' 'run --help'; do
        status=0
        # shellcheck disable=SC2086 # two words
        "$program" $words >/dev/full 2>"$scratch/stderr" || status=$?
        problem=
        [ "$status" -eq 1 ] || problem="exit code $status, not 1"
        [ "$(wc -l <"$scratch/stderr")" -eq 1 ] || problem="not one line on stderr"
        result "$problem" "$words >/dev/full"
    done
fi
status=0
"$program" --version >&- 2>/dev/null || status=$?
problem=
[ "$status" -eq 1 ] || problem="exit code $status, not 1"
result "$problem" '--version with standard output closed'

echo "1..$n"
exit "$failed"
