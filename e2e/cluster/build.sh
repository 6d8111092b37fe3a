#!/bin/sh
# Builds what a test cluster consists of, once, into the user's cache directory, and installs
# the Debian packages that it needs. Safe to run again: what is there and up to date is not
# touched. From nothing it takes about 20 minutes on two cores, and 4 GB of memory.
#   e2e/cluster/build.sh            all of it
#   e2e/cluster/build.sh NAME...    only these programs, or the programs of these groups
# It prints the directory of the programs. With HEADSTART_CLUSTER=oldest they are of the oldest
# Kubernetes that the chart allows and of the Istio before the current one; the rest is the same.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${HEADSTART_CLUSTER-} in
"") kubernetes=1.36.3 pair= ;;
oldest) kubernetes=1.30.14 pair=-oldest ;;
*)
	echo "cluster: HEADSTART_CLUSTER is $HEADSTART_CLUSTER; it may be oldest, or empty" >&2
	exit 1
	;;
esac
bin=${XDG_CACHE_HOME:-$HOME/.cache}/headstart/cluster-$kubernetes
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

wanted() {
	case " $only " in
	"  " | *" $1 "* | *" $2 "*) return 0 ;;
	esac
	return 1
}

# fingerprint PROGRAM COMMAND [PACKAGE]: all that the result depends on. A stamp with it tells
# whether the program is up to date.
stamp() { echo "$bin/.stamps/$(echo "$1" | tr / _)"; }
fingerprint() {
	shift
	{ echo "$@"; go env GOVERSION; cat "$sources"/*; } | sha256sum
}

# group NAME DIRECTORY 20 COMMAND PROGRAM[=PACKAGE]...: programs that are built at once,
# how long they take from nothing, and how they are built from the directory of their module's
# sources: by a command that gets the directory to write to, and the packages. One `go build`
# for all of them links one program while it compiles for the next.
total=0 number=0 stale=
group() {
	group=$1 sources=$here/$2 minutes=$3 command=$4
	shift 4
	programs= packages=
	for p in "$@"; do
		name=${p%%=*} package=${p#*=}
		[ "$package" != "$p" ] || package=
		wanted "$name" "$group" || continue
		number=$((number + 1))
		# shellcheck disable=SC2086 # a program may have no package
		if [ ! -x "$bin/$name" ] || [ "$(cat "$(stamp "$name")" 2>/dev/null)" != "$(fingerprint "$name" $command $package)" ]; then
			programs="$programs $name" packages="$packages $package"
		fi
	done
	[ -n "$programs" ] || return 0
	if [ -z "$stale" ]; then # the first pass only counts
		total=$((total + 1))
		return 0
	fi
	built=$((built + 1))
	say "building$programs ($built of $total, up to $minutes min the first time)"
	out=$bin/.part.$$
	mkdir -p "$out" "$bin/.stamps"
	# shellcheck disable=SC2086 # lists
	(cd "$sources" && $command "$out" $packages) || { rm -rf "$out"; echo "cluster: building$programs has failed" >&2; exit 1; }
	for p in "$@"; do
		name=${p%%=*} package=${p#*=}
		[ "$package" != "$p" ] || package=
		case "$programs " in *" $name "*) ;; *) continue ;; esac
		mkdir -p "$(dirname "$bin/$name")"
		mv "$out/$(basename "$name")" "$bin/$name"
		# shellcheck disable=SC2086 # a program may have no package
		fingerprint "$name" $command $package >"$(stamp "$name")"
	done
	rm -rf "$out"
}

# Commands: what is written is called as its package. Nobody debugs these programs, and most of
# what the compiler has to do is generated code that gains nothing from inlining: without it,
# and without debugging information, building takes a third less. Go's own packages keep it.
static() {
	flags=$1 target=$2
	shift 2
	CGO_ENABLED=0 GOFLAGS= go build -trimpath -gcflags 'all=-l -dwarf=false' -gcflags 'std=-dwarf=false' -ldflags "-s -w $flags" -o "$target" "$@"
}
kubernetes() {
	flags= dir=$1 minor=${kubernetes#*.}
	shift
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags="$flags -X $p.gitVersion=v$kubernetes -X $p.gitMajor=1 -X $p.gitMinor=${minor%.*} -X $p.gitTreeState=clean -X $p.buildDate=2026-01-01T00:00:00Z"
	done
	prefixed k8s.io/kubernetes/cmd "$flags" "$dir" "$@"
}
containerd() {
	dir=$1
	shift
	prefixed github.com/containerd/containerd/v2/cmd "-X github.com/containerd/containerd/v2/version.Version=$containerd" "$dir" "$@"
}
cni() {
	dir=$1
	shift
	prefixed github.com/containernetworking/plugins/plugins "" "$dir" "$@"
}
plain() {
	dir=$1
	shift
	static "" "$dir/" "$@"
}
# prefixed PREFIX FLAGS DIRECTORY PACKAGE...
prefixed() {
	prefix=$1 flags=$2 dir=$3
	shift 3
	for p in "$@"; do
		set -- "$@" "$prefix/$p"
		shift
	done
	static "$flags" "$dir/" "$@"
}
etcd() { static "" "$1/etcd" go.etcd.io/etcd/server/v3; }
runc() {
	CGO_ENABLED=1 GOFLAGS= go build -trimpath -tags 'seccomp urfave_cli_no_docs' -ldflags '-s -w' -o "$1/runc" github.com/opencontainers/runc
}
pause() { gcc -Os -static -s -Wall -Wextra -Werror -o "$1/pause" pause.c; }

groups() {
	group kubernetes tools/kubernetes$pair 10 kubernetes kube-apiserver=kube-apiserver kube-controller-manager=kube-controller-manager \
		kube-scheduler=kube-scheduler kubelet=kubelet kube-proxy=kube-proxy kubectl=kubectl
	group etcd tools/etcd 1 etcd etcd
	group coredns tools/coredns 1 plain coredns=.
	group registry tools/registry 1 plain registry=.
	group runc tools/runc 1 runc runc
	group containerd tools/containerd 2 containerd containerd=containerd containerd-shim-runc-v2=containerd-shim-runc-v2 ctr=ctr
	group cni tools/cni 1 cni cni/bridge=main/bridge cni/loopback=main/loopback cni/host-local=ipam/host-local cni/portmap=meta/portmap
	group pause pause 1 pause pause
	group istio tools/istio$pair 10 plain pilot-discovery=istio.io/istio/pilot/cmd/pilot-discovery pilot-agent=istio.io/istio/pilot/cmd/pilot-agent \
		istioctl=istio.io/istio/istioctl/cmd/istioctl
	group helm tools/istio 3 plain helm=helm.sh/helm/v4/cmd/helm
	group knative tools/knative 2 plain knative/activator=knative.dev/serving/cmd/activator knative/autoscaler=knative.dev/serving/cmd/autoscaler \
		knative/controller=knative.dev/serving/cmd/controller knative/queue=knative.dev/serving/cmd/queue knative/webhook=knative.dev/serving/cmd/webhook
}
groups
if [ "$number" = 0 ]; then
	echo "cluster: no such program: $only" >&2
	exit 1
fi
stale=1 built=0
groups
# Istio's charts and templates are in its module: tests find the version that these programs are of.
mkdir -p "$bin/modules"
cp "$here/tools/istio$pair/go.mod" "$here/tools/istio$pair/go.sum" "$bin/modules/"
echo "$bin"
