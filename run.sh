#!/usr/bin/env -S LC_ALL=C.UTF-8 bash
# run.sh ARGS...: installs what is missing, builds what changed, then runs `harness ARGS...` in the caller's folder.
# Talk goes to stderr. test.sh takes its functions from here.
set -euo pipefail

# The user's locale may not be installed, which every program below would tell.
export LC_ALL=C.UTF-8

top=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
# shellcheck disable=SC2034 # read by test.sh as well
packages=(gcc libc6-dev meson ninja-build pkgconf
    libgsl-dev libcsv-dev libopenblas-dev libjansson-dev zlib1g-dev dataset-fashion-mnist gnuplot-nox)

say() {
    printf '%s\n' "${0##*/}: $*" >&2
}

# quietly COMMAND...: shows what the command printed only if it failed.
quietly() {
    local out
    out=$(LC_ALL=C.UTF-8 "$@" 2>&1 </dev/null) && return
    printf '%s\n' "$out" >&2
    say "failed: $*"
    return 1
}

# as_root COMMAND...
as_root() {
    local sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"
}

# An installation that was broken off is finished first: apt-get refuses to work before that.
install_packages() {
    as_root dpkg --configure -a &&
        as_root apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
}

# need PACKAGE...: installs those that are missing.
need() {
    local missing
    if ! command -v dpkg-query >/dev/null; then
        say "this is not a Debian system, so nothing was installed; the build needs what these packages hold: $*"
        return
    fi
    # One line per installed package, compared with what is asked for.
    missing=$(comm -23 <(printf '%s\n' "$@" | sort -u) \
        <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' | sort -u))
    [ -n "$missing" ] || return 0
    mapfile -t missing <<<"$missing"
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        say "missing Debian packages; as root: apt-get install ${missing[*]}"
        return 1
    fi
    say "installing ${missing[*]}"
    # The package lists may be absent or old: they are fetched only if the first try fails.
    install_packages "${missing[@]}" >/dev/null 2>&1 </dev/null && return
    quietly as_root apt-get update && quietly install_packages "${missing[@]}"
}

# build DIR TARGETS [MESON OPTIONS...]: configures DIR where that was never finished, then builds what changed.
# DIR may have come along with a copy of the whole tree: then it still points to the old place and is made anew.
build() {
    local dir=$top/$1 targets=$2 lock
    shift 2
    if [ ! -w "$top" ]; then
        [ ! -x "$dir/harness" ] || return 0 # what was built before the tree became read-only
        say "$top cannot be written and holds no program; copy the tree to a folder of your own"
        return 1
    fi
    exec {lock}<"$top"
    flock "$lock"
    if [ -f "$dir/source" ] && [ "$(<"$dir/source")" != "$top" ]; then
        rm -rf -- "$dir"
    fi
    if [ ! -f "$dir/build.ninja" ]; then
        rm -rf -- "$dir/meson-private"
        say "configuring ${dir##*/}"
        quietly meson setup "$@" "$dir" "$top"
        printf '%s\n' "$top" >"$dir/source"
    elif [ $# -gt 0 ]; then
        quietly meson configure "$@" "$dir"
    fi
    # shellcheck disable=SC2086 # several words
    quietly ninja --quiet -C "$dir" $targets
    exec {lock}<&-
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    need "${packages[@]}"
    build build harness
    exec "$top/build/harness" "$@"
fi
