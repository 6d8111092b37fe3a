#!/usr/bin/env bash
# e2e/failures.sh COMMAND...: runs tests, and says at the end once more what has failed, which nobody finds among two hundred packages.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2>&1 | tee "$log"
status=$?
if [ "$status" != 0 ]; then
	echo "· of this has failed:" >&2
	grep -vE $'^(ok  \t|\\?   \t)' "$log" | tail -n 100 >&2
fi
exit "$status"
