package curator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// lookEvery is how soon the control plane hears of a new volume. A look reads a small file for each.
	lookEvery = 5 * time.Second
	// grain is what numbers of bytes are rounded to, so that few changes are told.
	grain = 64 << 20
	// lackingFor is how long the disk may be too full: once a minute the node makes room.
	lackingFor = 2 * time.Minute
	// damageFor is how long an operator hears of damaged objects after the last: a day has the scrub's next look.
	damageFor = 24 * time.Hour
	// volumesMost is how many volumes the control plane hears of: a message has 1 MiB with the longest names.
	volumesMost = 1024
)

// Watch tells what the node keeps whenever that is different, until ctx ends.
func (c *Curator) Watch(ctx context.Context, tell func(*nodeapi.Keeps)) {
	var told *nodeapi.Keeps
	fits := time.Now() // when the disk had enough free the last time
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		now := c.objects.Condition()
		if now.Lacks == 0 {
			fits = time.Now()
		}
		volumes, err := c.volumes.List()
		m := keeps(now, volumes)
		if time.Since(fits) >= lackingFor {
			m.Problems = append(m.Problems, "its disk has less free space than --cache-spare: nothing more is kept")
		}
		if err != nil {
			m.Problems = append(m.Problems, text("its volumes cannot be listed: "+problem.Of(err).Error()))
		}
		if now.Damages > 0 && time.Since(now.Damaged) < damageFor {
			m.Problems = append(m.Problems, fmt.Sprintf(
				"objects that it kept were damaged, and were dropped: %d since its daemon started", now.Damages))
		}
		if !proto.Equal(m, told) {
			for _, p := range m.GetProblems() {
				if !slices.Contains(told.GetProblems(), p) {
					c.log.Warn("what the node keeps has a problem", "problem", p)
				}
			}
			told = m
			tell(m)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// keeps is the message without problems. Volumes that no pod has are room for others, and damaged ones nobody gets.
func keeps(now objects.Condition, versions []tree.Held) *nodeapi.Keeps {
	m := &nodeapi.Keeps{Bytes: now.Bytes / grain * grain, Limit: now.Limit}
	slices.SortStableFunc(versions, func(a, b tree.Held) int { return cmp.Compare(b.Pods, a.Pods) })
	for _, h := range versions {
		if h.Pods == 0 && !h.Pinned {
			now.Room += h.Bytes
		}
		if h.Prefix != "" && !h.Damaged && len(m.Volumes) < volumesMost {
			m.Volumes = append(m.Volumes, &nodeapi.KeptVolume{
				Namespace: h.Namespace, Store: text(h.Store), Prefix: text(h.Prefix), Bytes: h.Bytes})
		}
	}
	slices.SortFunc(m.Volumes, func(a, b *nodeapi.KeptVolume) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetStore(), b.GetStore()),
			cmp.Compare(a.GetPrefix(), b.GetPrefix()), cmp.Compare(b.GetBytes(), a.GetBytes()))
	})
	m.Volumes = slices.CompactFunc(m.Volumes, func(a, b *nodeapi.KeptVolume) bool {
		return a.GetNamespace() == b.GetNamespace() && a.GetStore() == b.GetStore() && a.GetPrefix() == b.GetPrefix()
	})
	m.Room = now.Room / grain * grain
	return m
}
