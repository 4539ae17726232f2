# shellcheck shell=bash
# What the tests of figures share; sourced by them with $root, the top of the tree.
# shellcheck disable=SC2034,SC2154 # data is used, and root set, by the script that sources this
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

# An image is whole when its last bytes are there; no coordinate is nan or inf.
whole() {
    [ "$(stat -c %s "$1")" -gt 4000 ] || die "$1 has $(stat -c %s "$1") bytes"
    case $1 in
    *.png) [ "$(head -c 8 "$1" | tail -c 7 | head -c 3)$(tail -c 8 "$1" | head -c 4)" = PNGIEND ] ;;
    *.pdf) [ "$(head -c 5 "$1")" = %PDF- ] && tail -c 8 "$1" | grep -qa '%%EOF' ;;
    *.svg) python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$1" &&
        ! grep -v '<text\|<tspan\|<title' "$1" | grep -qiE '[ ,"](-?nan|-?inf)[ ,"]' ;;
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

# silent FILE TEXT...: it shows none of them.
silent() {
    local file=$1 text
    shift
    for text in "$@"; do
        ! grep -qF ">$text<" "$file" || die "$file says \"$text\""
    done
}

# filled COLUMN VALUE FILE: the file with one value in every row of a column.
filled() {
    python3 - "$@" <<'EOF'
import csv, sys
name, value, path = sys.argv[1:]
rows = list(csv.reader(open(path, newline='')))
at = rows[0].index(name)
csv.writer(sys.stdout, lineterminator='\n').writerows([rows[0]] + [r[:at] + [value] + r[at + 1:] for r in rows[1:]])
EOF
}
