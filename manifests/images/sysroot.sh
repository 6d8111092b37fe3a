#!/bin/sh
# Puts Debian's present redis-server for an architecture, with all that it needs, below a directory, in place of what is there.
#   manifests/images/sysroot.sh amd64|arm64 DIR
# It needs apt and dpkg-deb, and neither root nor that the machine has the architecture.
set -eu
arch=$1 root=$2
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
mkdir -p "$root.part/var/lib/dpkg/info" # what is in which package, as where they are installed
for package in "$state"/archives/*.deb; do
	dpkg-deb --extract "$package" "$root.part"
	{ dpkg-deb --field "$package"; echo; } >>"$root.part/var/lib/dpkg/status"
	dpkg-deb --fsys-tarfile "$package" >"$state/files"
	tar -t -f "$state/files" >"$state/names"
	sed 's/^\.//' "$state/names" >"$root.part/var/lib/dpkg/info/$(dpkg-deb --field "$package" Package).list"
done
cp /etc/os-release "$root.part/etc/" # apt's sources are this machine's
rm -rf "$root"
mv -T "$root.part" "$root"
