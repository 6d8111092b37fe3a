#!/bin/sh
# Installs what the benchmark of workflows needs beside e2e/setup.sh: the server of Restate, an engine of durable workflows.
#   e2e/speculation/setup.sh BIN_DIR
set -eu
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
kept=${XDG_CACHE_HOME:-$HOME/.cache}/headstart/restate-1.7.12
if [ ! -d "$kept" ]; then
	echo "· restate-1.7.12" >&2
	rm -rf "$kept.part"
	mkdir -p "$kept.part"
	cp "$here/package.json" "$here/package-lock.json" "$kept.part"
	npm ci --prefix "$kept.part" --cache "$kept.part/cache" --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null
	rm -r "$kept.part/cache"
	mv "$kept.part" "$kept"
fi
ln -sf "$kept/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server" "$bin/restate-server"
