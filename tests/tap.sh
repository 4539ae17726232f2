# tap.sh, for tests in bash that run the program: lines of TAP, calls of "$program", cells of what it writes. The script that reads
# this has set program and an empty folder scratch, is in it, and ends with done_testing.
# shellcheck shell=bash disable=SC2154
environment=(env)
n=0
failed=0

# check NAME COMMAND...: one line of TAP; well if COMMAND succeeds, skipped if it gives 77. What it prints is shown where it
# fails.
check() {
    local name=$1 status=0
    shift
    n=$((n + 1))
    "$@" >"$scratch/said" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        echo "ok $n - $name"
    elif [ "$status" -eq 77 ]; then
        echo "ok $n - $name # SKIP $(head -c 200 "$scratch/said" | tr '\n' ' ')"
    else
        echo "not ok $n - $name: $(head -c 500 "$scratch/said" | tr '\n' ' ')"
        failed=1
    fi
}

say() {
    echo "$@"
    return 1
}

skip() {
    echo "$@"
    return 77
}

# run STATUS ARGS...: the exit code is STATUS; output is in the files out and err.
run() {
    local want=$1 status=0
    shift
    timeout 200 "${environment[@]}" "$program" "$@" >out 2>err || status=$?
    [ "$status" -eq "$want" ] || say "exit code $status, not $want: $(cat err)"
}

# refused STATUS PATTERN ARGS...: one sentence with PATTERN on stderr, nothing on stdout.
refused() {
    local pattern=$2
    run "$1" "${@:3}" || return
    [ "$(wc -l <err)" -eq 1 ] || say "not one line: $(cat err)" || return
    grep -qF -- "$pattern" err || say "no '$pattern' in: $(cat err)" || return
    [ ! -s out ] || say 'output on stdout'
}

# holds FOLDER FILE...: these files and no others.
holds() {
    diff <(printf '%s\n' "${@:2}" | sort) <(ls -A -- "$1")
}

# field FOLDER NAME: a text at the top of run.json.
field() {
    sed -n "s/^  \"$2\": \"\\(.*\\)\",\$/\\1/p" "$1/run.json"
}

# column TABLE NAME: the cells of a column, the header's left out; none of them has a comma in it.
column() {
    awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }' "$1"
}

# offence FOLDER NAME: the fields of first_forward, first_backward or first_offender in run.json, one a line; none where it is
# null.
offence() {
    sed -n "/^  \"$2\": {\$/,/^  }/p" "$1/run.json" | sed -n 's/^    "\([a-z]*\)": "\{0,1\}\([^",]*\).*/\1 \2/p'
}

# header FOLDER TABLE: its first line has the columns of the list.
header() {
    local want
    want=$("$program" list columns | awk -v table="$2" '$4 == table { print $1 }')
    [ -n "$want" ] || say "no columns of $2" || return
    head -n 1 "$1/$2" | tr ',' '\n' | diff <(echo "$want") -
}

done_testing() {
    echo "1..$n"
    exit "$failed"
}
