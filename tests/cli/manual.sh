#!/usr/bin/env bash
# manual.sh PROGRAM: the manual page has what the help has, and nothing in it is taken for a troff request.
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

skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2 is missing"
}

"$program" --help >help
"$program" manual | grep -A1 -x '\.TP' >entries

prints() {
    "$program" manual >page 2>err && [ -s page ] && [ ! -s err ]
}
check 'harness manual' prints

# every OPTION of the help is the start of an entry.
has_options() {
    local option seen=0
    while read -r option; do
        seen=$((seen + 1))
        grep -qF -- "\\fB${option//-/\\-}\\fR" entries || { echo "missing: $option"; return 1; }
    done < <(grep -oE '^  --[a-z0-9-]+' help)
    [ "$seen" -gt 20 ] || { echo "only $seen options in the help"; return 1; }
}
check 'every option is in it' has_options

# every command of the help is in the synopsis and the start of an entry.
has_commands() {
    local command seen=0
    while read -r command; do
        seen=$((seen + 1))
        grep -qE "^.fBharness.fR \[?.fB$command.fR" page || { echo "not in the synopsis: $command"; return 1; }
        grep -q "^.fBharness.fR .fB$command.fR" entries || { echo "missing: $command"; return 1; }
    done < <(sed -n '/^Usage/,/^$/s/^  harness \[*\([a-z]*\).*/\1/p' help)
    [ "$seen" -ge 6 ] || { echo "only $seen commands in the help"; return 1; }
}
check 'every command is in it' has_commands

has_files() {
    local file
    for file in $("$program" list columns | grep -oE '[a-z]+\.csv ' | sort -u) run.json; do
        grep -qxF "\\fB$file\\fR" page || { echo "missing: $file"; return 1; }
    done
}
check 'every result file is in it' has_files

is_plain() {
    if LC_ALL=C grep -n "[^ -~]\|^'\| \$" page; then
        return 1
    fi
    if grep '^\.' page | grep -vxE '\.(TH HARNESS 1 .*|SH [A-Z ]+|SS [A-Z][a-z]+|TP|PP|RS|RE|br|nf|fi|nh|ad l)'; then
        return 1
    fi
    # Behind a dash, a quote or a caret of the text there is a backslash before it.
    if grep -nE "(^|[^\\])-|['^~\`]" page | grep -v '^[0-9]*:\.TH'; then
        return 1
    fi
}
check 'nothing in it needs escaping' is_plain

refuses() {
    local status=0
    "$program" manual all >out 2>err || status=$?
    [ "$status" -eq 2 ] && [ ! -s out ] && [ "$(wc -l <err)" -eq 1 ]
}
check 'it takes no argument' refuses

has_help() {
    "$program" manual --help | grep -x 'Usage: harness manual'
}
check 'its own help' has_help

if command -v groff >said; then
    no_warning() {
        groff -man -Tutf8 -ww -z page 2>warnings && ! grep . warnings
    }
    check 'groff has no warning' no_warning

    # words FROM TO FILE: all words of the lines from FROM up to TO, exclusive.
    words() {
        sed -n "/^ *$1\$/,/^ *$2\$/p" "$3" | sed '$d' | grep -oE '[^ ]+'
    }
    groff -man -Tascii -P-cbou page >shown

    options_agree() {
        words Model Examples help >a
        words Model General shown >b
        [ -s a ] && diff a b
    }
    check 'groff shows the options as the help has them' options_agree

    examples_agree() {
        sed -n '/^Examples$/,/^$/s/^  //p' help >a
        sed -n '/^EXAMPLES$/,/^$/s/^  *//p' shown >b
        [ -s a ] && diff a b
    }
    check 'groff shows the examples as the help has them' examples_agree

    exit_codes_agree() {
        local codes
        codes=$(sed -n '/^EXIT STATUS$/,/^EXAMPLES$/s/^  *\([0-9]\)  */\1 /p' shown | tr '\n' ';')
        [ "$(grep '^Exit codes' help)" = "Exit codes: $(sed 's/;$/./; s/;/; /g' <<<"$codes")" ] || { echo "$codes"; return 1; }
    }
    check 'groff shows the exit codes as the help has them' exit_codes_agree
else
    skip 'what groff shows' groff
fi

# It has no date: it is made with the program.
if command -v mandoc >said; then
    no_lint() {
        mandoc -Tlint -Wwarning page >warnings || true
        ! grep -v 'missing date' warnings
    }
    check 'mandoc has no warning' no_lint
else
    skip 'mandoc has no warning' mandoc
fi

echo "1..$n"
exit "$failed"
