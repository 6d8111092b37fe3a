package platform

// Change is what applying a manifest did.
type Change string

// The changes, in kubectl's words.
const (
	Created    Change = "created"
	Configured Change = "configured"
	Unchanged  Change = "unchanged"
	Deleted    Change = "deleted"
)
