package uplink

import "github.com/headstart-mesh/headstart/shim/nodeapi"

// journalSize is how many messages wait for a stream before the oldest are dropped; a
// reconnect's registration states everything anew.
const journalSize = 1024

// journal has the latest reports and events, for streams that are each at another place in it.
type journal struct {
	first    int // the number of entries[0]
	entries  []*nodeapi.NodeMessage
	nextTold int // all before it some control plane was told
}

func (j *journal) end() int { return j.first + len(j.entries) }

// add appends a message. It is false if one had to be dropped that nobody was told.
func (j *journal) add(m *nodeapi.NodeMessage) (kept bool) {
	kept = true
	if len(j.entries) == journalSize {
		kept = j.first < j.nextTold
		j.entries[0] = nil
		j.entries = j.entries[1:]
		j.first++
	}
	j.entries = append(j.entries, m)
	return kept
}

// since returns what has come since the place, and the place behind it. Whoever asks tells a
// control plane.
func (j *journal) since(place int) (news []*nodeapi.NodeMessage, next int) {
	place = max(place, j.first)
	next = j.end()
	j.nextTold = max(j.nextTold, next)
	return append(news, j.entries[place-j.first:]...), next
}
