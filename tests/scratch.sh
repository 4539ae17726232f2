#!/usr/bin/env bash
# scratch.sh SCRIPT ARGS...: runs SCRIPT with ARGS in an empty folder that is removed afterwards.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf -- "$dir"' EXIT
script=$(realpath -- "$1")
shift
cd -- "$dir"
bash "$script" "$@"
