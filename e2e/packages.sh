# shellcheck shell=sh
# For scripts that need Debian packages; they source it:
#   need PACKAGE WHAT        notes the package unless WHAT, a program or a file, is there
#   install_missing SCRIPT   installs what was noted; SCRIPT begins its messages
# No service of theirs runs, now or later.
missing=

need() {
	case $2 in
	*/*) [ -e "$2" ] ;;
	*) command -v "$2" >/dev/null ;;
	esac || missing="$missing $1"
}

apt_install() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

install_missing() {
	[ -n "$missing" ] || return 0
	command -v apt-get >/dev/null || { echo "$1: please install:$missing" >&2; exit 1; }
	if [ "$(id -u)" != 0 ]; then
		echo "$1: installing$missing needs root: run it by sudo" >&2
		exit 1
	fi
	echo "· Debian packages:$missing" >&2
	# Without starting services: Headstart runs its own.
	policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
	made=
	if [ ! -e "$policy" ]; then
		made=1
		# A signal makes the shell exit, and each exit takes the file away.
		trap 'rm -f "$policy"' EXIT
		trap 'exit 129' HUP
		trap 'exit 130' INT
		trap 'exit 143' TERM
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
	fi
	# Nor is a cluster of PostgreSQL made, which would be started with the next boot.
	clusters=${CREATECLUSTER_D:-/etc/postgresql-common/createcluster.d}
	case " $missing " in
	*" postgresql-15 "*)
		mkdir -p "$clusters"
		echo 'create_main_cluster = false' >"$clusters/headstart.conf"
		;;
	esac
	# The lists of packages may be old, or not there at all.
	if ! apt_install 2>/dev/null; then
		apt-get update -qq
		apt_install
	fi
	[ -z "$made" ] || rm -f "$policy"
	rm -f "$clusters/headstart.conf"
	trap - EXIT HUP INT TERM
	# Nor with the next boot, for which Debian has enabled it.
	for service in redis-server pgbouncer prometheus; do
		case " $missing " in
		*" $service "*)
			if command -v systemctl >/dev/null; then
				systemctl --quiet disable $service
			else
				update-rc.d $service disable
			fi
			;;
		esac
	done
}
