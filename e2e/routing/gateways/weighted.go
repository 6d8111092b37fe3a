package gateways

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/e2e/routing/bed"
)

// weightSum is what a row's weights come to: shares to the tenth of a percent.
const weightSum = 1000

// Weighted is a variant whose gateways spread requests by weights and nothing else, whatever
// becomes of them: Envoy's weighted round robin.
type Weighted struct {
	Title string
	// Interval is how often new weights are made, of averages over Window.
	Interval, Window time.Duration
	// Weigh returns for each gateway each node's share, which are above 0 and sum to 1.
	Weigh func(Measured) [][]float64
}

// Name is the title.
func (v Weighted) Name() string { return v.Title }

// Open starts the gateways with even weights, and then makes others of what it measures.
func (v Weighted) Open(ctx context.Context, b *bed.Bed) (_ *Set, err error) {
	s := newSet(b, functionCluster)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	even := make([][]float64, len(b.Nodes))
	for i := range even {
		for range b.Nodes {
			even[i] = append(even[i], 1/float64(len(b.Nodes)))
		}
	}
	if err := s.publish(even); err != nil {
		return nil, err
	}
	err = s.startAll(ctx, func(n bed.Node) *clusterv3.Cluster {
		c := cluster()
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3,
			ConfigSourceSpecifier: &core.ConfigSource_PathConfigSource{PathConfigSource: &core.PathConfigSource{Path: s.endpoints(n)}}}}
		return c
	})
	if err != nil {
		return nil, err
	}
	scraper := &scraper{set: s, window: v.Window}
	s.repeat(ctx, v.Interval, func(ctx context.Context) error {
		m, err := scraper.measure(ctx)
		if err != nil {
			return err
		}
		return s.publish(v.Weigh(m))
	})
	return s, nil
}

// repeat does something now and then until the set is closed, which says what went wrong.
func (s *Set) repeat(ctx context.Context, interval time.Duration, do func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- every(ctx, interval, do) }()
	s.control = func() error {
		stop()
		return <-ended
	}
}

// every does something at once and again after each interval, until ctx ends or it fails.
func every(ctx context.Context, interval time.Duration, do func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("controlling the gateways: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// endpoints is the file in which a gateway finds its endpoints.
func (s *Set) endpoints(n bed.Node) string {
	return filepath.Join(s.bed.RunDir(), n.Name, "endpoints.json")
}

// publish gives each gateway its row of weights. Envoy looks when a file takes the other's
// place.
func (s *Set) publish(rows [][]float64) error {
	for i, gateway := range s.bed.Nodes {
		l := locality(0, s.bed.Nodes...)
		for j, e := range l.LbEndpoints {
			e.LoadBalancingWeight = wrapperspb.UInt32(max(1, uint32(math.Round(rows[i][j]*weightSum))))
		}
		resource, err := anypb.New(assignment(l))
		if err != nil {
			return err
		}
		file, err := protojson.Marshal(&discovery.DiscoveryResponse{Resources: []*anypb.Any{resource}})
		if err != nil {
			return err
		}
		path := s.endpoints(gateway)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path+".part", file, 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".part", path); err != nil {
			return err
		}
	}
	return nil
}
