#!/usr/bin/env bash
# inputs.sh: what plots/plot makes of numbers, labels, samples and files that are there already, and what it leaves behind.
set -euo pipefail
root=$(dirname -- "$(realpath -- "$0")")/../..
# shellcheck source=tests/draw.sh
. "$root/tests/draw.sh"

plot growth "$data/layers.csv" -o growth.svg

# A run that dies in its gradients; one whose gradients overflow and recover.
printf '%s\n' run,layout,seed,step,loss,overflow_fwd,overflow_bwd,skipped r1,pre,0,0,4,0,0,0 r1,pre,0,1,3,0,7,1 r1,pre,0,2,3,0,0,0 \
    r1,pre,0,3,2,0,5,1 r1,pre,0,4,2,0,6,1 r2,pre,1,0,4,0,0,0 r2,pre,1,1,3,0,0,0 r2,pre,1,2,3,0,2,1 r2,pre,1,3,3,0,2,1 r2,pre,1,4,3,0,2,1 \
    r3,post,0,0,4,0,9,1 r3,post,0,1,3,0,0,0 r4,post,1,0,4,0,0,0 r4,post,1,1,3,2,3,1 r5,keel,0,0,4,0,8,1 r5,keel,0,1,3,0,0,0 >gradients.csv
plot divergence gradients.csv -o gradients.svg
says gradients.svg 'pre: overflow in gradients at step 2–3 (2 of 2)' 'post: overflow at step 1 (1 of 2)' 'keel: no forward overflow'
sed 's/overflow_bwd/overflow_update/' gradients.csv >updates.csv
plot divergence updates.csv -o updates.svg
says updates.svg 'pre: overflow in update at step 2–3 (2 of 2)'

# One sample measured in two runs counts once; where they differ, a sentence says so.
mkdir twice
printf '%s\n' run,layout,seed,step,layer,sublayer,stream,rms,grad_rms r1,pre,0,0,1,ffn,0,2,3 r2,pre,0,0,1,ffn,0,2, r3,pre,1,0,1,ffn,0,4,5 >twice/layers.csv
printf '%s\n' run,option,value r1,sample,s0 r1,probes,rms r1,probe-every,1 r2,sample,s0 r2,probes,grad r2,probe-every,5 r3,sample,s1 r3,probes,rms \
    r3,probe-every,1 >twice/config.csv
plot curve twice --set x=layer -o twice.svg
says twice.svg 'rms by layer' 'mean and range of 2 seeds'
(
    cd twice
    LC_ALL=C awk -f "$root/plots/csv.awk" -f "$root/plots/runs.awk" -f "$root/plots/series.awk" -v x=layer -v y='rms grad_rms' -v by=layout layers.csv
    printf '%s\n' '1 3 2 4 4 3 5' '' '' >want
    { cmp want series.dat && [ "$(cat members.dat)" = $'1\tr1\n1\tr3' ]; } || die "a sample counts twice: $(cat series.dat members.dat)"
)
sed -i 's/^r2,pre,0,0,1,ffn,0,2,/r2,pre,0,0,1,ffn,0,2.5,/' twice/layers.csv
refuses 1 'runs r1 and r2 are of one sample, but rms is 2 and 2.5 at layer 1' curve twice --set x=layer -o x.svg

# Numbers as C writes them, by the rules that the program has; tests/unit/test_number.c reads the same list.
printf '%s\n' id,value 1,1.5 '2,NAN(0x1)' 3,-nan 4,Infinity '5, 2' >spelled.csv
plot curve spelled.csv --set x=id --set y=value -o spelled.svg
says spelled.svg 'value: nan'
for wrong in 1e400 -1e309 0x10 'nan('; do
    printf '%s\n' id,value 1,1 "2,$wrong" >wrong.csv
    refuses 1 'which is no number' curve wrong.csv --set x=id --set y=value -o x.svg
done
cat >kinds.awk <<'EOF'
NF {
    k = kind($2)
    if (k != $1) {
        print "\"" $2 "\" is " k ", not " $1
        bad = 1
    }
}
END { exit bad }
EOF
LC_ALL=C awk -F '\t' -f "$root/plots/csv.awk" -f kinds.awk "$data/../csv/numbers.tsv" >stdout || die "$(cat stdout)"

# Labels are shown as they are, but for what acts on a terminal or breaks the file.
cat >label.py <<'EOF'
import csv, sys, xml.dom.minidom as m
label, path = sys.argv[1:3]
if path.endswith('.csv'): # the rows with this label
    rows = list(csv.reader(open(path, newline='')))
    at = rows[0].index('label')
    out = csv.writer(open('label.csv', 'w', newline='', encoding='utf-8', errors='surrogateescape'), lineterminator='\n')
    out.writerows([rows[0]] + [r[:at] + [label] + r[at + 1:] for r in rows[1:]])
else: # the text in the figure
    texts = m.parse(path).getElementsByTagName('text')
    sys.exit(not any(label.split() == ' '.join(n.data for n in t.childNodes if n.nodeType == n.TEXT_NODE).split() or
                     ' '.join(label.split()) in ' '.join(' '.join(n.data for n in t.childNodes if n.nodeType == n.TEXT_NODE).split())
                     for t in texts))
EOF
# shellcheck disable=SC2016 # no expansion is meant
for label in "'" "''" "'a''b'" 'a_b^c {x} @d &e ~f' '100 % %d %s' 'back\slash\n' '"quoted"' '<b>&amp;' '$x `date`'; do
    python3 label.py "$label" "$data/layers.csv"
    for by in layout label,layout; do # in the title, in the legend
        [[ $by != layout || $label == *"''"* ]] || continue
        plot curve label.csv --set x=layer --set sublayer=ffn --set by=$by -o label.svg
        whole label.svg
        python3 label.py "$label" label.svg || die "the label $label is not in the figure by $by"
    done
done
python3 label.py $'\e[31m\xff\nx' "$data/layers.csv"
plot growth label.csv -o label.svg
grep -qF '\x1b[31m\xff\x0ax' label.svg || die "control characters of a label are not shown as their bytes"
refuses 1 '\\x1b\[31m' growth $'no\e[31m' -o x.svg
! LC_ALL=C grep -q $'\e' stderr || die "an escape sequence reaches the terminal"

# A figure replaces a figure, and nothing else; what fails leaves the old one, and no other file.
cp growth.svg good.svg
plot growth "$data/layers.csv" -o good.svg
mkdir folder.svg
echo text >text.svg
: >empty.png
ln -s growth.svg link.svg
mkfifo pipe.svg
refuses 2 'folder.svg is a folder; give a file' growth "$data/layers.csv" -o folder.svg
refuses 2 'folder.svg/: a figure ends in' growth "$data/layers.csv" -o folder.svg/
for other in text.svg empty.png link.svg pipe.svg; do
    refuses 2 "$other is there and is no figure" growth "$data/layers.csv" -o $other
done
{ [ "$(cat text.svg)" = text ] && [ -L link.svg ] && [ -p pipe.svg ]; } || die "what is no figure was replaced"
[ "$(stat -c %a good.svg)" = "$(printf %o $((0666 & ~$(umask))))" ] || die "the figure has other rights than a new file"
# The disk is full where the figure goes: its copy is cut, which cat tells.
mkdir full interrupted slow
# shellcheck disable=SC2016
printf '%s\n' '#!/bin/sh' 'echo half' 'exit 1' >"full/cat"
chmod +x full/cat
find . -maxdepth 1 -name '.*' >before
PATH=$PWD/full:$PATH refuses 1 'good.svg cannot be written; an older figure is as it was' growth "$data/layers.csv" -o good.svg
cmp growth.svg good.svg || die "a figure that could not be written has replaced a good one"
find . -maxdepth 1 -name '.*' | cmp - before || die "a failure leaves a file"
# It is full where gnuplot works.
(ulimit -f 4 && TMPDIR=$PWD/interrupted "$root/plots/plot" growth "$data/layers.csv" -o good.svg) >stdout 2>stderr && die "a cut figure is a success"
{ cmp growth.svg good.svg && [ -z "$(ls -A interrupted)" ]; } || die "a cut figure has replaced a good one, or files are left"

# No noise of the surroundings, and no folder left by one that was interrupted.
env LC_ALL=xx_YY.UTF-8 TERM=dumb HOME=/nowhere TMPDIR="$PWD/interrupted" "$root/plots/plot" growth "$data/layers.csv" -o quiet.png >stdout 2>stderr
[ ! -s stderr ] || die "the surroundings make noise: $(cat stderr)"
[ -z "$(ls -A interrupted)" ] || die "a folder is left"
printf '%s\n' '#!/bin/sh' 'touch started' 'exec sleep 60' >slow/gnuplot
chmod +x slow/gnuplot
PATH=$PWD/slow:$PATH TMPDIR=$PWD/interrupted setsid "$root/plots/plot" growth "$data/layers.csv" -o never.svg >stdout 2>stderr &
plotting=$!
until compgen -G 'interrupted/*/started' >/dev/null; do sleep 0.05; done
kill -TERM -- -$plotting
status=0
wait $plotting || status=$?
{ [ "$status" -eq 143 ] && [ -z "$(ls -A interrupted)" ] && [ ! -e never.svg ]; } || die "interrupted: exit code $status, left: $(ls -A interrupted)"
