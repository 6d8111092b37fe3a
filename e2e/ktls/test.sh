#!/bin/sh
# Runs the tests of shim/ktls on a kernel that has TLS: Debian's for clouds, in QEMU, with the tests as its init. QEMU
# emulates the processor, so that no machine has to have KVM. Needs Debian, root the first time, and 5 minutes at most.
#   e2e/ktls/test.sh OUT_DIR [FLAG OF THE TESTS]...
set -eu
cd "$(dirname "$0")/../.."
out=$1
shift
fail() { echo "test-ktls: $*" >&2; exit 1; }
# The tests' own limit, and that of the whole guest, in seconds.
tests=120
whole=180

[ "$(uname -m)" = x86_64 ] || fail "this machine is $(uname -m), but the kernel and QEMU here are for x86_64"
# shellcheck source=e2e/packages.sh
. e2e/packages.sh
need qemu-system-x86 qemu-system-x86_64
need cpio cpio
need openssl openssl
install_missing test-ktls

# The kernel is extracted and not installed: this machine boots as before.
newest() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p'; }
package=$(newest)
[ -n "$package" ] || { apt-get update -qq && package=$(newest); } || true
[ -n "$package" ] || fail "apt knows no linux-image-cloud-amd64: is this Debian?"
kernel=${XDG_CACHE_HOME:-$HOME/.cache}/headstart/$package
if [ ! -d "$kernel" ]; then
	echo "· $package" >&2
	rm -rf "$kernel.part"
	mkdir -p "$kernel.part"
	(cd "$kernel.part" && apt-get download -qq "$package" 2>/dev/null && dpkg-deb -x ./*.deb . && rm ./*.deb) ||
		fail "$package cannot be downloaded: apt-get update may help"
	mv "$kernel.part" "$kernel"
fi

root=$out/root
rm -rf "$root"
mkdir -p "$root/modules" "$root/sbin" "$root/proc" "$root/sys"
# Without aesni-intel: the kernel asks for others while it loads that one.
for m in tls gcm ghash-generic gf128mul ctr \
	chacha20poly1305 chacha_generic poly1305_generic libchacha libpoly1305; do
	find "$kernel/lib/modules" -name "$m.ko" -exec cp {} "$root/modules" \;
done
[ -e "$root/modules/tls.ko" ] || fail "$package has no module tls"
CGO_ENABLED=0 go test -c -trimpath -buildvcs=false -tags ktls -ldflags '-s -w' -o "$root/init" ./shim/ktls
ln -s /init "$root/sbin/modprobe" # the kernel asks it for the modules
# The tests' OpenSSL, with its libraries.
for f in /usr/bin/openssl $(ldd /usr/bin/openssl | grep -o '/[^ ]*'); do
	mkdir -p "$root${f%/*}"
	cp -L "$f" "$root$f"
done
mkdir "$root/tmp"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$out/initrd"

echo "· the tests in $package" >&2
timeout "$whole" qemu-system-x86_64 -accel tcg -cpu max -m 512 -smp 2 -nodefaults -no-reboot -display none -serial stdio \
	-kernel "$kernel"/boot/vmlinuz-* -initrd "$out/initrd" \
	-append "console=ttyS0 quiet panic=-1 -- -test.timeout=${tests}s $*" </dev/null | tr -d '\r' | tee "$out/log" || true
grep -qx PASS "$out/log" || fail "no PASS; $out/log has what the guest has said"
