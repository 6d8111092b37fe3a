package xds

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// pingEvery is how long a connection may be idle until it is asked for a sign of life.
const pingEvery = 5 * time.Second

// readBuffer is for what gateways and nodes say, which is short; gRPC's own 32 KiB for each
// of a thousand connections would be much of what they cost.
const readBuffer = 4 << 10

// window is fixed, gRPC's own least: with one that grows, gRPC measures the way by a ping
// for each message, which is a third of what a change costs here.
const window = 64 << 10

// silence is how long a node may leave a ping unanswered: one whose cores are short counts as
// connected all that time.
const silence = 25 * time.Second

// idleMost is how long a connection without any stream stays.
const idleMost = 3 * time.Minute

// ServerOptions are what a gRPC server for nodes needs: pings, so that a node that
// fell silent counts as disconnected, and leave for theirs, which are more frequent than
// gRPC by itself would bear.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ReadBufferSize(readBuffer),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleMost, Time: pingEvery, Timeout: silence}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2, PermitWithoutStream: true}),
	}
}
