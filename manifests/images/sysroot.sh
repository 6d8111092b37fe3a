#!/bin/sh
# Puts Debian's redis-server for an architecture, with all that it needs, below a directory. What is there is not touched.
#   manifests/images/sysroot.sh amd64|arm64 DIR
# It needs apt and dpkg-deb, and neither root nor that the machine has the architecture.
set -eu
arch=$1 root=$2
[ -e "$root/usr/bin/redis-server" ] && exit 0
echo "· redis-server for $arch" >&2
for tool in apt-get dpkg-deb; do
	command -v $tool >/dev/null || { echo "sysroot: $tool is needed: run this on Debian" >&2; exit 1; }
done
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/archives/partial"
: >"$state/status" # nothing is installed, so that all that it needs is fetched
apt() {
	apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures::="$arch" -o APT::Install-Recommends=false -o Debug::NoLocking=true \
		-o APT::Sandbox::User="$(id -un)" -o Dir::State::Lists="$state/lists" -o Dir::State::status="$state/status" \
		-o Dir::Cache::Archives="$state/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@" >&2
}
apt update
apt install --yes --download-only redis-server
rm -rf "$root.part"
mkdir -p "$root.part"
for package in "$state"/archives/*.deb; do
	dpkg-deb --extract "$package" "$root.part"
done
mv -T "$root.part" "$root"
