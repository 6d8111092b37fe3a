#!/bin/sh
# Builds what a test cluster consists of, once, into the user's cache directory, and installs
# the Debian packages that it needs. Safe to run again: what is there and up to date is not
# touched. From nothing it takes about 25 minutes on two cores, and 4 GB of memory.
#   e2e/cluster/build.sh            all of it
#   e2e/cluster/build.sh NAME...    only these programs
# It prints the directory of the programs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=${XDG_CACHE_HOME:-$HOME/.cache}/headstart/cluster-1.36.3
kubernetes=v1.36.3
containerd=v2.4.2
only=$*
say() { echo "· $*" >&2; }

if [ "$(uname -m)" != x86_64 ]; then
	echo "cluster: this machine is $(uname -m); the cluster is built and tested for x86_64 only" >&2
	exit 1
fi
if ! command -v go >/dev/null; then
	echo "cluster: Go 1.26 or later is needed; see https://go.dev/doc/install" >&2
	exit 1
fi

# shellcheck source=e2e/packages.sh
. "$here/../packages.sh"
need gcc gcc
need libc6-dev /usr/lib/x86_64-linux-gnu/libc.a
need pkg-config pkg-config
need libseccomp-dev /usr/include/seccomp.h
need nftables nft
need iptables iptables
need conntrack conntrack
need socat socat
need iproute2 ip
need util-linux nsenter
need curl curl
install_missing cluster

# program NAME MODULE MINUTES COMMAND...: one program, how long it takes from nothing, and how
# it is built from the directory of its module's sources; $out is where to. A stamp with all
# that the result depends on tells whether it is up to date.
total=0 number=0 stale=
program() {
	name=$1 sources=$here/$2 minutes=$3
	shift 3
	case " $only " in
	"  " | *" $name "*) ;;
	*) return 0 ;;
	esac
	number=$((number + 1))
	stamp=$bin/.stamps/$(echo "$name" | tr / _)
	print=$({ echo "$@"; go env GOVERSION; cat "$sources"/*; } | sha256sum)
	if [ -x "$bin/$name" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$print" ]; then
		return 0
	fi
	if [ -z "$stale" ]; then # the first pass only counts
		total=$((total + 1))
		return 0
	fi
	built=$((built + 1))
	say "building $name ($built of $total, up to $minutes min the first time)"
	mkdir -p "$(dirname "$bin/$name")" "$bin/.stamps"
	out=$bin/$name.part.$$
	(cd "$sources" && "$@" "$out") || { rm -f "$out"; echo "cluster: building $name has failed" >&2; exit 1; }
	mv "$out" "$bin/$name"
	echo "$print" >"$stamp"
}

# Commands; the last argument is the file to write.
static() { pkg=$1 flags=$2 target=$3; CGO_ENABLED=0 GOFLAGS= go build -trimpath -ldflags "-s -w $flags" -o "$target" "$pkg"; }
kubernetes() {
	flags=
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags="$flags -X $p.gitVersion=$kubernetes -X $p.gitMajor=1 -X $p.gitMinor=36 -X $p.gitTreeState=clean -X $p.buildDate=2026-01-01T00:00:00Z"
	done
	static "k8s.io/kubernetes/cmd/$1" "$flags" "$2"
}
plain() { static "$1" "" "$2"; }
containerd() { static "github.com/containerd/containerd/v2/cmd/$1" "-X github.com/containerd/containerd/v2/version.Version=$containerd" "$2"; }
cni() { plain "github.com/containernetworking/plugins/plugins/$1" "$2"; }
runc() {
	CGO_ENABLED=1 GOFLAGS= go build -trimpath -tags 'seccomp urfave_cli_no_docs' -ldflags '-s -w' -o "$1" github.com/opencontainers/runc
}
pause() { gcc -Os -static -s -Wall -Wextra -Werror -o "$1" pause.c; }

programs() {
	program kube-apiserver tools/kubernetes 7 kubernetes kube-apiserver
	program kube-controller-manager tools/kubernetes 2 kubernetes kube-controller-manager
	program kube-scheduler tools/kubernetes 1 kubernetes kube-scheduler
	program kubelet tools/kubernetes 2 kubernetes kubelet
	program kube-proxy tools/kubernetes 1 kubernetes kube-proxy
	program kubectl tools/kubernetes 1 kubernetes kubectl
	program etcd tools/etcd 1 plain go.etcd.io/etcd/server/v3
	program coredns tools/coredns 3 plain .
	program registry tools/registry 1 plain .
	program runc tools/runc 1 runc
	program containerd tools/containerd 2 containerd containerd
	program containerd-shim-runc-v2 tools/containerd 1 containerd containerd-shim-runc-v2
	program ctr tools/containerd 1 containerd ctr
	program cni/bridge tools/cni 1 cni main/bridge
	program cni/loopback tools/cni 1 cni main/loopback
	program cni/host-local tools/cni 1 cni ipam/host-local
	program cni/portmap tools/cni 1 cni meta/portmap
	program pause pause 1 pause
	program pilot-discovery tools/istio 10 plain istio.io/istio/pilot/cmd/pilot-discovery
	program pilot-agent tools/istio 1 plain istio.io/istio/pilot/cmd/pilot-agent
	program istioctl tools/istio 2 plain istio.io/istio/istioctl/cmd/istioctl
	program helm tools/istio 1 plain helm.sh/helm/v4/cmd/helm
	for p in activator autoscaler controller queue webhook; do
		program "knative/$p" tools/knative 1 plain "knative.dev/serving/cmd/$p"
	done
}
programs
if [ "$number" = 0 ]; then
	echo "cluster: no such program: $only" >&2
	exit 1
fi
stale=1 built=0
programs
echo "$bin"
