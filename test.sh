#!/usr/bin/env -S LC_ALL=C.UTF-8 bash
# test.sh [--sanitize]: installs what is missing, builds, runs all tests. --sanitize: the build with the address and
# undefined-behaviour sanitizers instead of the release build. Last line: "N passed, N failed", counted in test cases.
set -euo pipefail
# shellcheck source=run.sh
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/run.sh"

dir=build
options=(-Dtests=enabled)
slower=1
case "$*" in
'') ;;
--sanitize)
    dir=build-sanitize
    options+=(-Dbuildtype=debugoptimized '-Db_sanitize=address,undefined' -Db_lundef=false)
    slower=5
    ;;
*)
    say "usage: ./test.sh [--sanitize]"
    exit 2
    ;;
esac

# shellcheck disable=SC2154 # set in run.sh
need "${packages[@]}" check libmpfr-dev locales parallel
build "$dir" all "${options[@]}"

# shellcheck disable=SC2154
log=$top/$dir/meson-logs/testlog.json
rm -f -- "$log"
status=0
meson test -C "$top/$dir" --no-rebuild --print-errorlogs --timeout-multiplier "$slower" </dev/null || status=$?

# Cases of a TAP test are its lines; any other test is one case. A test that went wrong as a whole (crash, time-out, too few
# lines) has at least one failed case.
python3 - "$log" <<'EOF'
import json, os, re, sys
passed = failed = skipped = 0
for line in open(sys.argv[1], encoding='utf-8') if os.path.exists(sys.argv[1]) else ():
    test = json.loads(line)
    cases = re.findall(r'^(not ok|ok)\b(.*)$', test.get('stdout') or '', re.M)
    bad = sum(word == 'not ok' for word, _ in cases)
    skip = sum(word == 'ok' and bool(re.search(r'#\s*skip', rest, re.I)) for word, rest in cases)
    good = len(cases) - bad - skip
    if test['result'] == 'SKIP':
        skip = max(skip, 1)
    elif test['result'] in ('OK', 'EXPECTEDFAIL'):
        good = max(good, 1 if skip == 0 else 0)
    else:
        bad = max(bad, 1)
    passed, failed, skipped = passed + good, failed + bad, skipped + skip
if skipped:
    print(f'{skipped} skipped')
print(f'{passed} passed, {failed} failed')
sys.exit(0 if passed > 0 and failed == 0 else 1)
EOF
exit "$status"
