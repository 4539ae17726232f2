#!/usr/bin/env bash
# figures.sh: every figure on small results with nan, inf and zero, in every kind of file, whole and without a warning.
set -euo pipefail
root=$(dirname -- "$(realpath -- "$0")")/../..
data=$root/tests/data/plots
command -v gnuplot >/dev/null || exit 77

die() {
    echo "FAILED: $*"
    exit 1
}

plot() {
    "$root/plots/plot" "$@" >stdout 2>stderr || die "plot $* ended with $?: $(cat stderr)"
    [ ! -s stderr ] || die "plot $* complains: $(cat stderr)"
}

# refuses STATUS PATTERN ARGS...: exit code, and a sentence that says why.
refuses() {
    local want=$1 pattern=$2 status=0
    shift 2
    "$root/plots/plot" "$@" >stdout 2>stderr || status=$?
    [ "$status" -eq "$want" ] || die "plot $* ended with $status, not $want"
    grep -q -- "$pattern" stderr || die "plot $* says: $(cat stderr)"
}

# An image is whole when its last bytes are there.
whole() {
    [ "$(stat -c %s "$1")" -gt 4000 ] || die "$1 has $(stat -c %s "$1") bytes"
    case $1 in
    *.png) [ "$(head -c 8 "$1" | tail -c 7 | head -c 3)$(tail -c 8 "$1" | head -c 4)" = PNGIEND ] ;;
    *.pdf) [ "$(head -c 5 "$1")" = %PDF- ] && tail -c 8 "$1" | grep -qa '%%EOF' ;;
    *.svg) grep -q '<svg' "$1" && tail -c 9 "$1" | grep -qF '</svg>' && ! grep -qiE '[ ,"](-?nan|-?inf)[ ,"]' "$1" ;;
    esac || die "$1 is not whole"
}

# says FILE TEXT...: an SVG file shows each text.
says() {
    local file=$1 text
    shift
    for text in "$@"; do
        grep -qF ">$text<" "$file" || die "$file does not say \"$text\""
    done
}

for script in "$root"/plots/*.gp; do
    figure=$(basename "$script" .gp)
    [ "$figure" != style ] || continue
    [[ $(head -n 1 "$script") == '# '*'?' ]] || die "$figure.gp does not begin with its question"
    reads=$(sed -n 's/^# Reads: //p' "$script")
    for ending in svg png pdf; do
        plot "$figure" "$data/$reads" -o "$figure.$ending"
        [ "$(cat stdout)" = "$figure.$ending" ] || die "stdout is $(cat stdout)"
        whole "$figure.$ending"
    done
done

says growth.svg no-norm sandwich sandwich-l post pre theory 'no-norm: inf' 'pre: 0' 'RMS of the residual stream by depth'
plot growth "$data/layers.csv" --set log=no -o linear.svg
says linear.svg 'no-norm: inf' pre
! grep -qF '>pre: 0<' linear.svg || die "a zero is a value on a linear axis"

# A run folder and another order of columns, spread over two files: the same figure.
mkdir 'a run' runs runs/one
{
    sed -n 1p "$data/layers.csv"
    grep ',sandwich,' "$data/layers.csv"
} >'a run/layers.csv'
python3 - "$data/layers.csv" runs/one/layers.csv <<'EOF'
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline='')))
csv.writer(open(sys.argv[2], 'w', newline='')).writerows(r[::-1] for r in rows if 'sandwich' not in r)
EOF
plot growth 'a run' runs -o 'an other.svg'
cmp growth.svg 'an other.svg' || die "the same rows in two files give another figure"

refuses 2 'there is no figure "shrink".*' shrink "$data/layers.csv"
refuses 2 'growth .*How does' shrink "$data/layers.csv"
refuses 2 'which results' growth
refuses 2 '.svg, .png or .pdf' growth "$data/layers.csv" -o x.jpeg
refuses 2 'no setting "colour=red"' growth "$data/layers.csv" --set colour=red
refuses 1 'nowhere: no CSV file' growth nowhere
sed 's/,rms,/,rsm,/' "$data/layers.csv" >misnamed.csv
refuses 1 'no column rms' growth misnamed.csv -o x.svg
sed '5s/,[^,]*$//' "$data/layers.csv" >short.csv
refuses 1 'short.csv:5: 31 fields' growth short.csv -o x.svg
refuses 1 'cannot be written' growth "$data/layers.csv" -o no/folder/x.svg
[ ! -e x.svg ] || die "a figure that failed left a file"
