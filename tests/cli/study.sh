#!/usr/bin/env bash
# study.sh PROGRAM: harness study on a tiny study from end to end, wrong words, and whether the studies of the tree are sound.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
shopt -s nullglob
top=$(dirname -- "$(realpath -- "$0")")/../..
if [[ $(parallel --version 2>&1) != 'GNU parallel'* ]]; then
    echo '1..0 # SKIP GNU parallel is missing'
    exit
fi
# A copy: the sweeps would rebuild the one in the build folder.
cp -- "$1" harness
cp -r -- "${NH_TEST_DATA:?}/studies" studies
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

# study ARGS...: succeeds; leaves out and err.
study() {
    ./harness study "$@" --studies studies >out 2>err || { echo "exit code $?: $(cat err)"; return 1; }
}

# says FILE LINE...: lines of a file, blanks in a row being one.
says() {
    local file=$1 line
    shift
    for line; do
        tr -s ' ' <"$file" | grep -qxF -- "$line" || { echo "missing: $line in: $(cat "$file")"; return 1; }
    done
}

# refused STATUS PATTERN ARGS...: that exit code, one sentence that says PATTERN, no output.
refused() {
    local want=$1 pattern=$2 status=0
    shift 2
    ./harness study "$@" >out 2>err || status=$?
    if [ "$status" -ne "$want" ] || [ -s out ] || [ "$(wc -l <err)" -ne 1 ] || ! grep -qF -- "$pattern" err; then
        echo "exit code $status: $(cat err)"
        return 1
    fi
}

# changed FROM TO: studies/changed is the tiny study with one text in another's place.
changed() {
    mkdir -p studies/changed && sed "s/$1/$2/" studies/tiny/study.json >studies/changed/study.json &&
        ! cmp -s studies/tiny/study.json studies/changed/study.json
}

whole() {
    study tiny --out o || return
    says out 'Overflow at the start' 'e4m3 1000 3 0 0 3/3 [0.44, 1] 0 0 weight (3 of 3) inf 3 of 3 diverged 0' \
        'holds [claim] Small ones do not' ' first_step >= 3 in every run: 3 of 3; > 3' \
        'fails It happens in attention' ' first_sublayer attn in every run: 0 of 3; embed in 3' \
        ' lr@11 [0.99, 1.01] as power of lr: 1 +- 0, 2 seeds' 'tiny: reproduced (4 of 5 expectations hold, 1 fails)' 'report o/report.md'
}
check 'a study from end to end' whole

files() {
    python3 - <<'END'
import csv
table = list(csv.DictReader(open('o/table.csv', newline='')))
assert len(table) == 5 and [row['n'] for row in table] == ['3', '3', '3', '3', '6'], table
small, large = table[0], table[2]
assert small['dtype'] == 'e4m3' and small['embed-rms'] == '0.1' and small['first_step_median'] == '> 3', small
assert large['first_step_max'] == '0' and large['first_site'] == 'weight' and large['first_site_runs'] == '3', large
assert large['final_loss_mean'] == '' and large['diverged'] == '3' and abs(float(large['diverged_low']) - .4385) < 1e-4, large
assert table[3]['final_loss_mean'] != '' and table[3]['first_step_min'] == '> 3' and table[4]['dtype'] == '', table
rows = list(csv.DictReader(open('o/expectations.csv', newline='')))
assert [row['verdict'] for row in rows] == ['holds', 'holds', 'fails', 'holds', 'holds'], rows
assert [row['decides'] for row in rows] == ['claim', 'claim', 'nothing', 'scale', 'nothing'], rows
assert rows[0]['where'] == 'sweep=start, dtype=e4m3, embed-rms=1000', rows[0]
END
    # shellcheck disable=SC2016 # nothing to expand
    says o/report.md '# A tiny stack in a tiny format' '**reproduced (4 of 5 expectations hold, 1 fails)**' '## Expectations' \
        'Claim: Large embeddings overflow e4m3 at once, small ones do not.' '### Learning rates' 'Anything else.' \
        '| It happens in attention | first_sublayer | attn in every run | 0 of 3; embed in 3 | fails | nothing |' \
        '- start: `harness/sweep.sh --seeds 0..2 --vary embed-rms=0.1,1000 --vary dtype=e4m3,fp32 --steps 3`'
}
check 'table.csv, expectations.csv, report.md' files

figures() {
    grep -F 'the figure missing.svg (plots/no-such-figure.gp) was not drawn' err && [ ! -e o/missing.svg ] || return
    ! command -v gnuplot >/dev/null || { [ -s o/loss.svg ] && says o/report.md '![Loss by step.](loss.svg)'; }
}
check 'figures; one that is not there is a warning' figures

again() {
    mv out before && touch stamp && study tiny --out o && cmp before out && [ -z "$(find o/runs -name run.json -newer stamp)" ]
}
check 'a second call runs nothing and says the same' again

missing_cell() {
    rm -r o/runs/start/embed-rms=0.1_dtype=e4m3_seed=1 && touch stamp && study tiny --out o && cmp before out &&
        [ "$(find o/runs -name run.json -newer stamp)" = o/runs/start/embed-rms=0.1_dtype=e4m3_seed=1/run.json ]
}
check 'a cell that is missing is run' missing_cell

older_cells() {
    changed 'embed-rms=0.1,1000' 'embed-rms=0.1' && study changed --out o && says out 'e4m3 0.1 3 2 0 1/3 [0.061, 0.79] > 3 4 [4, 4.5] 1 of 3 diverged 0' \
        'too few runs [claim] Large embeddings overflow in the first step' 'changed: inconclusive (2 of 5 expectations hold, 0 fail)' &&
        [ "$(grep -c '^Overflow at the start,' o/table.csv)" -eq 2 ]
}
check 'runs of an older job list do not count' older_cells

quick() {
    study tiny --quick --jobs 1 || return
    says out ' first_step = 0 in every run: 1 of 1; 0; 1 of at least 3 runs' 'tiny: inconclusive (1 of 5 expectations hold, 1 fails)' \
        'report studies/tiny/quick/report.md' && [ -d studies/tiny/quick/runs-quick/start ] && [ ! -e studies/tiny/quick/runs-quick/rates ] &&
        [ ! -e studies/tiny/report.md ] && grep -qF 'harness study tiny --quick' studies/tiny/quick/report.md
}
check '--quick is less of it, in a place of its own' quick

verdicts() {
    changed '"within": \[0, 0\]' '"within": [1, 1]' && study changed --out o && says out 'changed: refuted (3 of 5 expectations hold, 2 fail)' || return
    changed '"within": \[0, 2\]' '"within": [0, null]' && study changed --out o &&
        says out 'changed: not at this scale (3 of 5 expectations hold, 2 fail)'
}
check 'whatever the verdict, the exit code is 0' verdicts

job_list() {
    study tiny --print --out p && [ "$(wc -l <out)" -eq 18 ] && [ ! -e p ] &&
        says out "$PWD/harness --embed-rms=0.1 --dtype=e4m3 --seed=0 --steps 3 --depth 2 --width 8 --heads 2 --data zipf --vocab 16 --seq 4 --batch 1 --probes none --threads=1 --resume --out=p/runs/start/embed-rms=0.1_dtype=e4m3_seed=0"
}
check '--print runs nothing' job_list

failing_sweep() {
    local status=0
    changed '--depth 2 --width 8' '--depth 4096 --width 65536' || return
    ./harness study changed --studies studies --out q >out 2>err || status=$?
    [ "$status" -eq 1 ] && [ ! -s out ] && grep -q 'sweep start of study changed failed' err && [ ! -e q/report.md ]
}
check 'a sweep that fails' failing_sweep

# Not when the first sweep is done.
wrong_option() {
    rm -rf q
    changed 'steps 12' 'stepps 12' &&
        refused 1 "sweeps[1]: 'args': there is no option '--stepps'; did you mean --steps?" changed --studies studies --out q && [ ! -e q ]
}
check 'a wrong option in the last sweep' wrong_option

# said WORDS PATTERN: a study whose first sweep has these words instead of its steps is refused at once, with that sentence.
said() {
    rm -rf q
    changed '--steps 3"' "$1\"" && refused 1 "sweeps[0]: $2" changed --studies studies --out q && [ ! -e q ]
}
check 'a study overwrites no file' said "--dump \/tmp\/x" "'args': --dump is not for a study to say"
check 'nor with =' said '--dump=x' "'args': --dump is not for a study to say"
check 'nor by cells' said '--vary dump=x,y' "'args': --dump is not for a study to say"
check 'nor behind two dashes' said '-- --dump=x' "'args': --dump is not for a study to say"
for_all_sweeps() {
    changed '"options": "' '"options": "--dump=x ' && refused 1 "'args': --dump is not for a study to say" changed --studies studies
}
check 'nor for all sweeps' for_all_sweeps
quick_words() {
    changed '"quick_seeds": "0"' '"quick_args": "--dump=x"' && refused 1 "'quick_args': --dump is not for a study to say" changed --studies studies
}
check 'nor with --quick' quick_words
words_of_a_shell() {
    changed '--steps 3"' "--steps 3 --label=\$(touch\${IFS}x)'*;\$HOME\"" && study changed --print --out q &&
        [ ! -e x ] && grep -qF -- "'--label=\$(touch\${IFS}x)'\\''*;\$HOME'" out
}
check 'a label with words of a shell' words_of_a_shell
check 'it reads no model' said '--model x' "'args': --model is not for a study to say"
file_as_data() {
    changed 'data zipf' 'data text:x' && refused 1 "'args': --data text:x names a file" changed --studies studies || return
    changed '--data zipf' '--vary data=zipf,tokens:x' && refused 1 "'args': --data tokens:x names a file" changed --studies studies
}
check 'it reads no file as data' file_as_data
check 'it replaces no runs' said '--force' "'args': --force is not for a study to say"
check 'it chooses no program' said '--harness x' "'args': --harness is not for a study to say"
check 'it names no program' said '--called x' "'args': --called is not for a study to say"
check 'it does not ask for help' said '--label -h' "'args': -h is not for a study to say"
check 'a value twice' said '--steps 3 --vary warmup=1,2,1' "'args': warmup=1 is there twice"
check 'a number in two ways' said '--vary lr=0.1,1e-1 --steps 1' "'args': lr=0.1 is there twice"
check 'a value by two names' said '--vary layout=sandwich,peri-ln' "'args': layout=sandwich is there twice"
check 'a value twice in a range' said '--steps 3 --vary warmup=1..3,2' "'args': warmup=2 is there twice"
check 'a range that goes down' said '--vary depth=3..1' "'args': 3..1: a range goes up"
check 'a range with a wrong end' said '--steps 3 --vary grad-accum=65534..65537' "'args': --grad-accum '65537' must be"
check 'cells without end' said '--vary depth=1..999999999' 'this sweep has 11999999988 cells'

# seeds LIST PATTERN
seeds() {
    rm -rf q
    changed '"seeds": "0..2"' "\"seeds\": \"$1\"" && refused 1 "sweeps[0]: $2" changed --studies studies --out q && [ ! -e q ]
}
check 'seeds that go down' seeds 9..0 "'seeds': 9..0: a range goes up"
check 'a seed twice' seeds 0..2,1 "'seeds': seed=1 is there twice"
check 'seeds without end' seeds 0..999999999 'this sweep has 4000000000 cells'

# figure FIELD VALUE PATTERN: of the first figure.
figure() {
    rm -rf q
    changed "\"$1\": \"[a-z.]*\"," "\"$1\": \"${2//\//\\/}\"," && refused 1 "figures[0]: $3" changed --studies studies --out q && [ ! -e q ]
}
check 'a figure in another folder' figure file ../x.svg "'../x.svg' becomes a name of a file"
check 'a figure with too long a name' figure file "$(printf %0200d 0).svg" "'0000000000"
check 'a figure over the report' figure file report.md "'report.md' must end in .svg, .png or .pdf"
check 'a figure drawn by a foreign script' figure figure ../../x "'../../x' becomes a name of a file"

deep() {
    mkdir -p studies/deep && python3 -c 'print("[" * 1000000)' >studies/deep/study.json && refused 1 'line 1 is not valid JSON' deep --studies studies
}
check 'a study that is nested too deeply' deep
huge() {
    mkdir -p studies/huge && truncate -s 8G studies/huge/study.json && refused 1 'at most 1048576 bytes' huge --studies studies &&
        ./harness list studies >/dev/null
}
check 'a study of gigabytes' huge

# The program's file is replaced while a cell runs: all cells are of the same program.
rebuilt() {
    cp harness built && ./built study tiny --studies studies --out r --jobs 1 >out 2>err &
    local study=$!
    while [ ! -e r/runs/start ] && kill -0 "$study" 2>/dev/null; do
        sleep 0.05
    done
    rm built && printf '#!/bin/sh\nexit 1\n' >built && chmod +x built
    wait "$study" || { cat err; return 1; }
    grep -q "^$PWD/built " r/runs/rates/*/cell.txt && says out 'tiny: reproduced (4 of 5 expectations hold, 1 fails)'
}
check 'a study outlives its program' rebuilt

unwritable() {
    [ "$(id -u)" -ne 0 ] || return 0
    mkdir -p shut && chmod a-w shut && refused 1 'cannot write into shut' tiny --studies studies --out shut
}
check 'a folder that cannot be written' unwritable

printed_to_nobody() {
    ./harness study tiny --studies studies --print 2>err | head -n 1 >out || :
    [ ! -s err ] || { cat err; return 1; }
    [ "$(wc -l <out)" -eq 1 ]
}
check 'a job list that is read in part' printed_to_nobody

wrong_json() {
    changed '"sweeps"' '"sweep"' && refused 1 "studies/changed/study.json has no field 'sweep'; did you mean sweeps?" changed --studies studies
}
check 'a broken study' wrong_json
check 'no name' refused 2 'study takes a name'
check 'a name that is near' refused 2 "there is no study 'tinny' in studies; did you mean tiny?" tinny --studies studies
check 'a path' refused 2 'there is no study' studies/tiny --studies .
check 'two names' refused 2 "'other' is too much" tiny other --studies studies
check 'an option that is near' refused 2 "no option '--quik'; did you mean --quick?" tiny --quik
check 'a value for a switch' refused 2 '--quick takes no value' tiny --quick=on
check 'an option twice' refused 2 '--out is given twice' tiny --out o --out p
check 'no runs at a time' refused 2 "--jobs '0' must be a whole number from 1" tiny --jobs 0
check 'an option without its value' refused 2 '--out needs a value' tiny --out
check 'a folder that cannot be made' refused 1 '/dev/null' tiny --studies studies --out /dev/null/x

listed() {
    ./harness list studies >out || return
    for name in "$top"/results/studies/*/; do
        grep -q "^$(basename "$name") " out || { cat out; return 1; }
    done
}
check 'list studies' listed
measures() {
    ./harness list measures >out && grep -q '^first_step ' out && grep -q '^lr_sensitivity ' out
}
check 'list measures' measures

# sound NAME: the study is read, and its cells are runs that the program would start: so many that each two words of a cell occur
# together; of one seed, on data that is quick.
sound() {
    local command
    ./harness study "$1" --print --out s >listed && ./harness study "$1" --print --quick --out s >>listed || return
    sed 's/ --seed=[0-9]*//; s/ --resume//g; s/ --out=.*//' listed | sort -u |
        awk '{ for (i = 2; i <= NF; i++) for (k = i; k <= NF; k++) if (!seen[$i, $k]++) new = NR } new == NR' >commands
    [ -s commands ] || return
    while read -r command; do
        $command --data zipf --dry-run >said.dry 2>&1 || { echo "$command: $(cat said.dry)"; return 1; }
    done <commands
}
for name in "$top"/results/studies/*/; do
    check "the study $(basename "$name")" sound "$(basename "$name")"
done

echo "1..$n"
exit "$failed"
