#!/bin/sh
# Runs packages of tests on a cluster: first those that bring one up themselves or need its
# programs only, then, one after the other on one cluster, those that share it; the attacks among them
# count in out/trust.json. Needs root, and `make setup build`.
#   e2e/cluster/test.sh [-short] PACKAGE...
set -eu
cd "$(dirname "$0")/../.."
flags="-v -count=1 -p 1 -timeout 60m -tags cluster" # longer than any test allows itself: one that is cut off takes nothing down
if [ "${1-}" = -short ]; then
	flags="$flags -short"
	shift
fi
if [ $# = 0 ]; then
	echo "· no test on a cluster is touched" >&2
	exit 0
fi
# In this order: the first wants a cluster that Headstart has never been on.
sharing="./e2e/cluster/journey ./e2e/cluster/faults ./e2e/cluster/meshtest ./e2e/cluster/knative"
alone= shared=
for p in "$@"; do
	case " $sharing " in *" ${p%/} "*) ;; *) alone="$alone $p" ;; esac
done
for p in $sharing; do
	case " $* " in *" $p "* | *" $p/ "*) shared="$shared $p" ;; esac
done
programs="kubernetes etcd coredns registry runc containerd cni pause istio helm"
case "$shared " in *"/knative "*) programs= ;; esac
# shellcheck disable=SC2086 # lists
HEADSTART_CLUSTER_BIN=$(e2e/cluster/build.sh $programs)
HEADSTART_BIN=${HEADSTART_BIN:-$PWD/out/bin}
export HEADSTART_CLUSTER_BIN HEADSTART_BIN
if [ -n "$alone" ]; then
	echo "· tests with the cluster's programs:$alone" >&2
	# shellcheck disable=SC2086 # lists
	"$HEADSTART_BIN/trust" -part cluster-programs test $flags $alone
fi
[ -n "$shared" ] || exit 0
echo "· tests on one cluster:$shared" >&2
go build -trimpath -buildvcs=false -o "$HEADSTART_BIN/cluster-cluster" ./e2e/cluster/cmd/cluster
down() { "$HEADSTART_BIN/cluster-cluster" down; }
trap 'exit 1' INT TERM
trap down EXIT
"$HEADSTART_BIN/cluster-cluster" up --detach >&2
# shellcheck disable=SC2086 # lists
"$HEADSTART_BIN/trust" -part cluster test $flags $shared
