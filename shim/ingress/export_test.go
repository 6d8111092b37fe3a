package ingress

// What tests of time and limits need to know.
const (
	HintLife    = hintLife
	HintsOpen   = hintsOpen
	SyncTimeout = syncTimeout
	Placement   = placementTimeout
	Grace       = deliveryGrace
)
