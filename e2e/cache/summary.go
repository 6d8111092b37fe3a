package cache

import (
	"github.com/headstart-mesh/headstart/e2e/chart"
	"github.com/headstart-mesh/headstart/e2e/result"
)

// The summary's names.
const (
	HitRatioGain     = "hit_ratio_gain"
	ByteHitGain      = "byte_hit_gain"
	NodeHitReduction = "node_hit_reduction"
	HitOpen          = "hit_open_p50_us"
	MissRatio        = "miss_ratio"
	PrestagedStart   = "prestaged_start_ratio"
	VolumeVsBound    = "volume_vs_bound"
	PeerLinkFraction = "peer_link_fraction"
	OriginFetches    = "origin_fetches"
	BroadcastRatio   = "broadcast_ratio"
	SDKGetVsFloor    = "sdk_get_vs_floor"
	S3HitVsNginx     = "s3_hit_vs_nginx"
	SDKTotalVsBound  = "sdk_total_vs_bound"
	LearnedHitRatio  = "learned_hit_ratio"
	WastedBytesRatio = "wasted_bytes_ratio"
	ChainVsBound     = "chain_vs_bound"
	ChainLocalVsCopy = "chain_local_vs_copy"
)

// Limits are those of all figures of the summary, in their order. A part that is added has its figures here, and its
// drawing in figures.
var Limits = []result.Limit{
	{Name: HitRatioGain, Limit: 0.05, AtLeast: true}, {Name: ByteHitGain, Limit: 0.05, AtLeast: true},
	{Name: NodeHitReduction, Limit: 0.97, AtLeast: true}, {Name: HitOpen, Limit: 200}, {Name: MissRatio, Limit: 1.03},
	{Name: PrestagedStart, Limit: 1.05}, {Name: VolumeVsBound, Limit: 1.1},
	{Name: PeerLinkFraction, Limit: 0.9, AtLeast: true},
	{Name: OriginFetches, Limit: 1}, {Name: BroadcastRatio, Limit: 2.5},
	{Name: SDKGetVsFloor, Limit: 0.9}, {Name: S3HitVsNginx, Limit: 1, AtLeast: true}, {Name: SDKTotalVsBound, Limit: 1.1},
	{Name: LearnedHitRatio, Limit: 0.9, AtLeast: true}, {Name: WastedBytesRatio, Limit: 0.2},
	{Name: ChainVsBound, Limit: 1.15}, {Name: ChainLocalVsCopy, Limit: 0.6},
}

// figures draw the points of parts, by their names in Results: panels by file name.
var figures = map[string]func([]Point) map[string][]chart.Panel{
	Eviction: drawEviction,
	Hits:     drawHits,
	Links:    drawLinks,
	Volumes:  drawVolumes,
	Flows:    drawFlows,
	Chains:   drawChains,
}

// Part is what one part of the benchmark has measured.
type Part = result.Part[Point]

// Results are all parts by their names, measured together or one after the other.
type Results map[string]Part

// Summary has the worst of each figure.
func (r Results) Summary() result.Summary {
	s := result.Summary{}
	for _, part := range r {
		s.TakeFigures(Limits, part.Figures)
	}
	return s
}

// Figures are the drawings of the parts that have been measured, by file name.
func (r Results) Figures() map[string][]chart.Panel {
	all := map[string][]chart.Panel{}
	for name, draw := range figures {
		if points := r[name].Points; len(points) > 0 {
			for file, panels := range draw(points) {
				all[file] = panels
			}
		}
	}
	return all
}
