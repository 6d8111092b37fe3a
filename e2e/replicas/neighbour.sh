#!/bin/sh
# Builds the control plane and the daemon of the neighbouring version, the commit that the file
# `neighbour` names, into a directory whose name it prints. A second run builds nothing. In a
# clone without that commit it says so, and prints "none".
#   e2e/replicas/neighbour.sh DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
commit=$(grep -v '^#' "$here/neighbour")
out=$1/$commit
if [ ! -d "$out" ]; then
	git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null || git -C "$root" fetch -q --unshallow 2>/dev/null || :
	git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null || {
		echo "NOT CHECKED: neighbouring versions, as this clone has no commit $commit: git fetch --unshallow" >&2
		echo none
		exit 0
	}
	echo "· building the neighbouring version, $commit" >&2
	mkdir -p "$1"
	tree=$(mktemp -d "$1/build-XXXXXX")
	trap 'rm -rf "$tree"' EXIT
	git -C "$root" archive "$commit" | tar -x -C "$tree"
	(cd "$tree" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ ./control-plane/cmd/headstart-controlplane ./shim/cmd/headstart-node)
	mv "$tree/bin" "$out" # whole, or not there
fi
echo "$out"
