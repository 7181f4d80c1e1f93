#!/bin/bash
# Build the explorer and check every line of claims.txt: about 3 minutes, some GB of memory. Exit 1 when a line comes out otherwise.
set -euo pipefail
cd "$(dirname "$0")"
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
g++ -O2 -std=c++17 -o "$build/slot_model" slot_model.cpp

failed=0
while IFS='|' read -r _ want parameters; do
    want=$(echo $want)
    case $want in
        ok) pattern='^OK' ;;
        *) pattern="^VIOLATION (${want#hole })" ;;
    esac
    # The parameters are words of one line, to be split.
    got=$(timeout 300 "$build/slot_model" $parameters quiet=1 2>&1) || true
    grep -q "$pattern" <<<"$got" && verdict=as-expected || { verdict=WRONG; failed=1; }
    echo "$verdict | want $want |$parameters | ${got:-not finished in 300 s}"
done < <(grep -v '^#' claims.txt)
exit $failed
