//go:build !race

package writeback

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// It has no goroutines: the race detector would only make it slow.

// This file is a model of the protocol, explored state by state. It has one key, nodes that crash, and requests to the
// store whose answers are lost: the store applies them later, at any time, or never. Each step that the protocol takes is
// left out once, and the model then has to find a violation.

// mutation is a step that is left out, or done in another way.
type mutation string

const (
	readsDoNotLook      mutation = "reads do not look for a marker"
	readsLookBeside     mutation = "reads look for a marker beside their question to the store"
	throughDoesNotLook  mutation = "other writes do not look for a marker"
	markerOverwrites    mutation = "a marker replaces another one"
	ackBeforeSync       mutation = "a write is acknowledged before its record is durable"
	ackBeforeMarker     mutation = "a write is acknowledged before its marker"
	plainPut            mutation = "the content is stored by a plain PUT"
	conditionalPut      mutation = "the content is stored by a PUT with a condition on the previous content"
	plainDelete         mutation = "a marker is removed without a condition"
	ownBeforeMarker     mutation = "reads here get a write before its marker is there"
	ownAfterUpload      mutation = "reads here get a write until its record is gone"
	ownAfterRestart     mutation = "reads here get a write that a restart has found"
	dropPending         mutation = "a restart drops writes"
	uploadForeign       mutation = "a restart uploads writes whose marker is not theirs"
	noTombstone         mutation = "an abandoned write is forgotten at once"
	repeatMarker        mutation = "a marker is sent again before it is looked at"
	giveUpWithoutAbort  mutation = "giving up does not abort the upload"
	giveUpUnconditional mutation = "giving up removes whatever marker there is"
	unmarkBeforeUpload  mutation = "a marker is removed before the upload"
	renewWithoutMarker  mutation = "another upload begins without the marker naming it"
	trustLostCompletion mutation = "an upload that is gone counts as complete"
	holderHasRecord     mutation = "a reader elsewhere gets a write of which its node has a record"
	holderCompletes     mutation = "a reader elsewhere gets a write whose upload is being completed"
	hereCompletes       mutation = "a reader on the node gets a write whose upload is being completed"
	lackingMeansStored  mutation = "a node that does not have a write has uploaded it"
	modelOps, modelLate          = 5, 3
	modelUploads                 = 6
)

type kind uint8

const (
	backWrite kind = iota + 1
	throughWrite
	deletion
	reading
	givingUp
)

// operation is one of a scenario's.
type operation struct {
	kind kind
	node int8
}

// Requests to the store.
const (
	putMarker = iota + 1
	replaceMarker
	deleteMarker
	completeUpload
	putContent
)

// request is one that the store may apply late.
type request struct{ kind, op, upload, tag, value int8 }

// Records of a write in its node's journal.
const (
	recordVolatile = iota + 1
	recordDurable
	recordAbandoned
)

// The steps of a write; others use the first ones.
const (
	atStart = iota
	atRecord
	atSync
	atMarker
	atDoubt
	atConfirmed
	atAck
	atUpload
	atGone
	atRenew
	atReplace
	atReplaced
	atUploaded
	atUnmark
	atForget
	atRecovery
	atTombstone
	atTombstoneDelete
	atEnd
	atDead
)

// state is all that counts. It is comparable, so that it is explored once.
type state struct {
	content int8 // the write that the store's content is of; 0: none
	marker  int8 // the write that the marker is of, from 1; 0: none
	named   int8 // the upload that the marker names, by which it is known (its ETag)
	alive   [modelUploads]bool
	uploads int8
	late    [modelLate]request
	lost    int8 // how many more answers get lost
	crashes int8
	dead    int8 // the node that does not come back, from 1
	record  [modelOps]int8
	own     [modelOps]bool // reads on the node get it
	lent    [modelOps]bool // and those on others, which have seen its marker
	ends    [modelOps]bool // its upload is being completed
	step    [modelOps]int8
	upload  [modelOps]int8 // what the write's process knows: the upload, and the marker's tag
	tag     [modelOps]int8
	seen    [modelOps]int8 // what a reader has seen
	result  [modelOps]int8
	history [2*modelOps + 2]int8 // calls (i+1) and returns (-i-1), in their order
	moments int8
}

// model is a scenario, and what is left out.
type model struct {
	ops     []operation
	without mutation
	alive   bool // a node that is given up may be alive
	checked map[string]bool
	states  int
}

func (s *state) note(moment int8) {
	s.history[s.moments] = moment
	s.moments++
}

// apply has the store carry out a request, and tells whether its condition held.
func (m *model) apply(s *state, r request) bool {
	switch r.kind {
	case putMarker:
		if s.marker != 0 && m.without != markerOverwrites {
			return false
		}
		s.marker, s.named = r.op+1, r.upload
	case replaceMarker:
		if s.marker == 0 || s.named != r.tag {
			return false
		}
		s.marker, s.named = r.op+1, r.upload
	case deleteMarker:
		if s.marker == 0 || s.named != r.tag && r.tag >= 0 {
			return false
		}
		s.marker, s.named = 0, 0
	case completeUpload:
		if !s.alive[r.upload] {
			return false
		}
		s.alive[r.upload], s.content = false, r.op+1
	case putContent:
		if r.tag > 0 && s.content != r.tag-1 { // If-Match, or If-None-Match
			return false
		}
		s.content = r.value
	}
	return true
}

// ask returns what follows when a request is sent: it is answered; or its answer is lost, and it is applied later.
func (m *model) ask(s state, r request, answered func(s *state, held bool), unknown func(*state)) (next []state) {
	yes := s
	answered(&yes, m.apply(&yes, r))
	next = append(next, yes)
	if s.lost == 0 {
		return next
	}
	for i := range s.late {
		if s.late[i].kind == 0 {
			s.lost--
			s.late[i] = r
			unknown(&s)
			return append(next, s)
		}
	}
	return next
}

func (m *model) create(s *state, i int) int8 {
	if s.uploads+1 == modelUploads {
		return 0
	}
	s.uploads++
	s.alive[s.uploads] = true
	return s.uploads
}

// after returns the states that follow.
func (m *model) after(s state) (next []state) {
	for i := range s.late { // they come late, or never
		if r := s.late[i]; r.kind != 0 {
			n := s
			n.late[i] = request{}
			next = append(next, n)
			m.apply(&n, r)
			next = append(next, n)
		}
	}
	if s.crashes > 0 {
		for node := range int8(2) {
			next = append(next, m.crash(s, node)...)
		}
	}
	for i, o := range m.ops {
		if s.step[i] == atEnd || s.step[i] == atDead || s.dead == o.node+1 && o.kind != givingUp {
			continue
		}
		switch o.kind {
		case backWrite:
			next = append(next, m.write(s, i)...)
		case throughWrite, deletion:
			next = append(next, m.through(s, i)...)
		case reading:
			next = append(next, m.read(s, i)...)
		case givingUp:
			next = append(next, m.giveUp(s, i)...)
		}
	}
	return next
}

// crash ends what a node does. What was not durable may be lost.
func (m *model) crash(s state, node int8) (next []state) {
	s.crashes--
	works := false
	for i, o := range m.ops {
		if o.node != node || o.kind == givingUp || s.step[i] == atStart || s.step[i] == atEnd {
			continue
		}
		works = true
		s.own[i], s.lent[i], s.ends[i] = false, false, false
		if s.record[i] == recordVolatile {
			s.record[i] = 0
		}
		s.step[i] = atDead
		if o.kind == backWrite && s.record[i] != 0 {
			s.step[i] = atRecovery
			s.own[i] = m.without == ownAfterRestart && s.record[i] == recordDurable
		}
	}
	if !works {
		return nil
	}
	next = append(next, s)
	for i := range m.ops {
		if m.ops[i].kind == givingUp && !m.alive {
			s.dead = node + 1
			return append(next, s)
		}
	}
	return next
}

func (m *model) write(s state, i int) []state {
	op, o := int8(i), m.ops[i]
	switch s.step[i] {
	case atStart:
		s.note(op + 1)
		s.step[i] = atRecord
	case atRecord:
		if s.upload[i] = m.create(&s, i); s.upload[i] == 0 {
			return nil
		}
		s.tag[i] = s.upload[i]
		s.record[i], s.step[i] = recordDurable, atMarker
		if m.without == ackBeforeSync {
			s.record[i] = recordVolatile
		}
		s.own[i] = m.without == ownBeforeMarker
		if m.without == ackBeforeMarker {
			s.note(-op - 1)
		}
	case atMarker:
		if s.marker == op+1 && m.without == repeatMarker {
			s.step[i] = atConfirmed
			return []state{s}
		}
		if s.marker != 0 && m.without != markerOverwrites {
			return nil // 412: it waits
		}
		return m.ask(s, request{kind: putMarker, op: op, upload: s.upload[i]}, func(s *state, _ bool) { s.step[i] = atConfirmed },
			func(s *state) {
				s.step[i] = atDoubt
				if m.without == repeatMarker {
					s.step[i] = atMarker
				}
			})
	case atDoubt:
		s.step[i] = atConfirmed
		if s.marker != op+1 {
			s.record[i], s.step[i], s.own[i] = recordAbandoned, atTombstone, false
			if m.without == noTombstone {
				s.record[i], s.step[i] = 0, atEnd
			}
		}
	case atConfirmed:
		s.own[i], s.lent[i], s.step[i] = true, true, atAck
	case atAck:
		if m.without != ackBeforeMarker {
			s.note(-op - 1)
		}
		s.step[i] = atUpload
		if m.without == unmarkBeforeUpload {
			s.marker, s.named = 0, 0
		}
	case atUpload:
		if m.without == ackBeforeSync && s.record[i] == recordVolatile { // or later
			n := s
			n.record[i] = recordDurable
			return []state{n}
		}
		r := request{kind: completeUpload, op: op, upload: s.upload[i]}
		switch m.without {
		case plainPut:
			r = request{kind: putContent, value: op + 1}
		case conditionalPut:
			if s.content == op+1 {
				s.step[i] = atUploaded
				return []state{s}
			}
			r = request{kind: putContent, value: op + 1, tag: s.content + 1}
		}
		s.lent[i], s.ends[i] = s.lent[i] && m.without == holderCompletes, true
		return m.ask(s, r, func(s *state, held bool) {
			s.step[i] = atUploaded
			if !held {
				s.step[i] = atGone
			}
		}, func(*state) {})
	case atGone:
		s.step[i] = atRenew
		if s.content == op+1 || m.without == trustLostCompletion {
			s.step[i] = atUploaded
		}
	case atRenew:
		u := m.create(&s, i)
		if u == 0 {
			return nil
		}
		s.upload[i], s.step[i] = u, atReplace
		if m.without == renewWithoutMarker {
			s.step[i] = atUpload
		}
	case atReplace:
		return m.ask(s, request{kind: replaceMarker, op: op, upload: s.upload[i], tag: s.tag[i]}, func(s *state, _ bool) { s.step[i] = atReplaced },
			func(s *state) { s.step[i] = atReplaced })
	case atReplaced, atRecovery:
		if s.record[i] == recordAbandoned {
			s.step[i] = atTombstone
			break
		}
		switch {
		case m.without == dropPending && s.step[i] == atRecovery:
			s.record[i], s.step[i], s.own[i] = 0, atEnd, false
		case s.marker == op+1:
			s.upload[i], s.tag[i], s.step[i] = s.named, s.named, atUpload
		case m.without == uploadForeign:
			s.step[i] = atUpload
		case m.without == noTombstone:
			s.record[i], s.step[i], s.own[i] = 0, atEnd, false
		default:
			s.record[i], s.step[i], s.own[i] = recordAbandoned, atTombstone, false
		}
	case atUploaded:
		s.own[i] = s.own[i] && m.without == ownAfterUpload
		s.lent[i] = false
		s.step[i] = atUnmark
	case atUnmark:
		tag := s.tag[i]
		if m.without == plainDelete {
			tag = -1
			if s.marker != op+1 { // looked at before
				s.step[i] = atForget
				return []state{s}
			}
		}
		return m.ask(s, request{kind: deleteMarker, tag: tag}, func(s *state, _ bool) { s.step[i] = atForget }, func(*state) {})
	case atForget:
		s.record[i], s.step[i], s.own[i] = 0, atEnd, false
	case atTombstone:
		switch {
		case s.marker == op+1:
			s.tag[i], s.step[i] = s.named, atTombstoneDelete
		case s.expects(op):
			return nil
		default: // it has looked for long enough
			s.record[i], s.step[i] = 0, atEnd
		}
	case atTombstoneDelete:
		return m.ask(s, request{kind: deleteMarker, tag: s.tag[i]}, func(s *state, _ bool) { s.step[i] = atTombstone },
			func(s *state) { s.step[i] = atTombstone })
	default:
		panic(fmt.Sprint(o, s.step[i]))
	}
	return []state{s}
}

// expects tells whether a marker of a write may still come.
func (s *state) expects(op int8) bool {
	for _, r := range s.late {
		if (r.kind == putMarker || r.kind == replaceMarker) && r.op == op {
			return true
		}
	}
	return false
}

// The steps of others than writes.
const (
	atLook = iota + 1
	atWait
	atStore
	atReturn
	atSecondLook
	atHolder
)

// look waits until the marker that it has seen is gone.
func (m *model) look(s state, i int, then int8) []state {
	switch {
	case s.step[i] == atLook && s.marker != 0:
		s.seen[i], s.step[i] = s.marker, atWait
	case s.step[i] == atWait && s.marker == s.seen[i]:
		return nil
	default:
		s.step[i] = then
	}
	return []state{s}
}

func (m *model) through(s state, i int) []state {
	op := int8(i)
	switch s.step[i] {
	case atStart:
		s.note(op + 1)
		s.step[i] = atLook
		if m.without == throughDoesNotLook {
			s.step[i] = atStore
		}
	case atLook, atWait:
		return m.look(s, i, atStore)
	case atStore:
		value := op + 1
		if m.ops[i].kind == deletion {
			value = 0
		}
		return m.ask(s, request{kind: putContent, value: value}, func(s *state, _ bool) { s.step[i] = atReturn },
			func(s *state) { s.step[i] = atEnd })
	case atReturn:
		s.note(-op - 1)
		s.step[i] = atEnd
	}
	return []state{s}
}

func (m *model) read(s state, i int) []state {
	op := int8(i)
	switch s.step[i] {
	case atStart:
		s.note(op + 1)
		s.step[i] = atLook
	case atLook:
		for w, o := range m.ops {
			if o.node == m.ops[i].node && s.own[w] &&
				(!s.ends[w] || m.without == hereCompletes || m.without == ownAfterUpload) {
				s.result[i], s.step[i] = int8(w)+1, atReturn
				return []state{s}
			}
		}
		switch m.without {
		case readsDoNotLook:
			s.step[i] = atStore
		case readsLookBeside:
			s.result[i], s.step[i] = s.content, atSecondLook
		default:
			next := m.look(s, i, atStore)
			if s.marker != 0 && m.ops[s.marker-1].node != m.ops[i].node { // or its node is asked
				n := next[0]
				n.step[i] = atHolder
				next = append(next, n)
			}
			return next
		}
	case atHolder:
		return m.hold(s, i)
	case atSecondLook:
		s.step[i] = atReturn
		if s.marker != 0 {
			s.seen[i], s.step[i] = s.marker, atWait
		}
	case atWait:
		return m.look(s, i, atStore)
	case atStore:
		s.result[i], s.step[i] = s.content, atReturn
	case atReturn:
		s.note(-op - 1)
		s.step[i] = atEnd
	}
	return []state{s}
}

// hold has a reader get what it has seen the marker of from the node that the marker names; or it waits, as that node does
// not have it, or cannot be reached.
func (m *model) hold(s state, i int) (next []state) {
	w := s.seen[i] - 1
	has := s.lent[w] || m.without == holderHasRecord && s.record[w] != 0
	if has && s.dead != m.ops[w].node+1 {
		n := s
		n.result[i], n.step[i] = w+1, atReturn
		next = append(next, n)
	}
	s.step[i] = atWait
	if !has && m.without == lackingMeansStored {
		s.step[i] = atStore
	}
	return append(next, s)
}

// giveUp is the operator's: a write of what the store has.
func (m *model) giveUp(s state, i int) []state {
	op := int8(i)
	switch s.step[i] {
	case atStart, atSecondLook:
		if s.marker == 0 || s.dead != m.ops[s.marker-1].node+1 && !m.alive {
			if s.mayMark(m) {
				return nil
			}
			if s.step[i] == atSecondLook {
				s.note(-op - 1)
			}
			s.result[i], s.step[i] = nothing, atEnd
			return []state{s}
		}
		if s.step[i] == atStart {
			s.note(op + 1)
		}
		s.seen[i], s.tag[i], s.step[i] = s.marker, s.named, atLook
	case atLook:
		if m.without != giveUpWithoutAbort {
			s.alive[s.tag[i]] = false
		}
		s.step[i] = atStore
	case atStore:
		s.step[i] = atReturn
		tag := s.tag[i]
		if m.without == giveUpUnconditional {
			tag = -1
		}
		if s.result[i] = s.content; !m.apply(&s, request{kind: deleteMarker, tag: tag}) {
			s.result[i], s.step[i] = nothing, atSecondLook // it has changed
		}
	case atReturn:
		s.note(-op - 1)
		s.step[i] = atEnd
	}
	return []state{s}
}

// nothing is the result of giving up what is not there.
const nothing = -1

// mayMark tells whether a marker may still come.
func (s *state) mayMark(m *model) bool {
	for i := range m.ops {
		if m.ops[i].kind == backWrite && (s.expects(int8(i)) || s.step[i] != atEnd && s.step[i] != atDead && s.dead != m.ops[i].node+1) {
			return true
		}
	}
	return false
}

// linearizable tells whether the operations can have happened one after the other, each between its call and its return.
func (m *model) linearizable(s *state, last bool) bool {
	key := fmt.Sprint(s.history, s.result, s.step, last, s.content)
	if ok, known := m.checked[key]; known {
		return ok
	}
	called, returned := [modelOps]int{}, [modelOps]int{}
	for at, moment := range s.history[:s.moments] {
		if moment > 0 {
			called[moment-1] = at + 1
		} else {
			returned[-moment-1] = at + 1
		}
	}
	var try func(done uint, content int8) bool
	try = func(done uint, content int8) bool {
		all := true
		for i := range m.ops {
			all = all && (returned[i] == 0 || done&(1<<i) != 0)
		}
		if all && (!last || content == s.content) {
			return true
		}
		for i, o := range m.ops {
			if done&(1<<i) != 0 || called[i] == 0 || o.kind == reading && returned[i] == 0 {
				continue
			}
			first := true // nobody else has returned before
			for j := range m.ops {
				first = first && (done&(1<<j) != 0 || returned[j] == 0 || returned[j] > called[i])
			}
			if !first {
				continue
			}
			after := content
			switch o.kind {
			case backWrite, throughWrite:
				after = int8(i) + 1
			case deletion:
				after = 0
			case givingUp:
				switch {
				case s.step[i] != atReturn && s.step[i] != atEnd:
					continue
				case s.result[i] != nothing:
					after = s.result[i]
				}
			case reading:
				if s.result[i] != content {
					continue
				}
			}
			if try(done|1<<i, after) {
				return true
			}
		}
		return false
	}
	ok := try(0, 0)
	m.checked[key] = ok
	return ok
}

// explore looks at all states, and returns the first violation with the way to it.
func (m *model) explore(lost, crashes int8) (violation string) {
	m.checked = map[string]bool{}
	start := state{lost: lost, crashes: crashes}
	visited := map[state]struct{}{start: {}}
	queue := []state{start}
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		next := m.after(s)
		if bad := m.wrong(&s, next); bad != "" {
			m.states = len(visited)
			return fmt.Sprintf("%s: content %d, marker %d, records %v, steps %v, history %v, results %v", bad, s.content, s.marker,
				s.record, s.step, s.history[:s.moments], s.result)
		}
		for _, n := range next {
			if _, known := visited[n]; !known {
				visited[n] = struct{}{}
				queue = append(queue, n)
			}
		}
	}
	m.states = len(visited)
	return ""
}

func (m *model) wrong(s *state, next []state) string {
	if s.moments > 0 && s.history[s.moments-1] < 0 && !m.linearizable(s, false) {
		return "not linearizable"
	}
	quiet := true
	for _, n := range next {
		quiet = quiet && n.crashes < s.crashes // but for a crash nothing happens
	}
	if !quiet || s.uploads+1 == modelUploads { // the operator and the node could go on so
		return ""
	}
	if s.marker != 0 {
		return "a marker is left"
	}
	for i, o := range m.ops {
		if s.dead == o.node+1 {
			continue
		}
		if s.record[i] != 0 {
			return "a record is left"
		}
		if s.step[i] != atEnd && s.step[i] != atDead && o.kind != givingUp {
			return "an operation is stuck"
		}
	}
	if !m.linearizable(s, true) {
		return "the store's content is not the last write's"
	}
	return ""
}

// scenario is some operations, and how much fails.
type scenario struct {
	name          string
	ops           []operation
	lost, crashes int8
	alive         bool
}

// scenarios begin with the small ones.
var scenarios = []scenario{
	{name: "a writer and readers", lost: 2, crashes: 1, ops: []operation{{backWrite, 0}, {reading, 0}, {reading, 1}}},
	{name: "a deletion", lost: 2, ops: []operation{{backWrite, 0}, {deletion, 1}, {reading, 1}}},
	{name: "a deletion, and a reader where the writer is", lost: 2, ops: []operation{{backWrite, 0}, {deletion, 1}, {reading, 0}}},
	{name: "a writer through the node", lost: 1, crashes: 1, ops: []operation{{backWrite, 0}, {throughWrite, 1}, {reading, 1}}},
	{name: "two writers", lost: 1, crashes: 1, ops: []operation{{backWrite, 0}, {backWrite, 1}, {reading, 0}}},
	{name: "two writers on one node", lost: 1, crashes: 1, ops: []operation{{backWrite, 0}, {backWrite, 0}, {reading, 1}}},
	{name: "a node that is given up and alive", lost: 1, alive: true, ops: []operation{{backWrite, 0}, {backWrite, 1}, {givingUp, 2}}},
	{name: "a node that does not come back", crashes: 1, ops: []operation{{backWrite, 0}, {backWrite, 1}, {givingUp, 2}, {reading, 1}}},
}

// more is what is explored besides when crash tests are long, too: it takes minutes.
var more = []scenario{
	{name: "two writers", lost: 2, crashes: 1, ops: []operation{{backWrite, 0}, {backWrite, 1}, {reading, 0}}},
	{name: "two writers on one node", lost: 2, crashes: 1, ops: []operation{{backWrite, 0}, {backWrite, 0}, {reading, 1}}},
	{name: "three writers", lost: 1, crashes: 1, ops: []operation{{backWrite, 0}, {backWrite, 1}, {throughWrite, 2}}},
	{name: "two crashes", lost: 1, crashes: 2, ops: []operation{{backWrite, 0}, {backWrite, 1}, {reading, 0}}},
	{name: "two writers and a deletion", lost: 1, crashes: 1, ops: []operation{{backWrite, 0}, {deletion, 1}, {backWrite, 1}}},
	{name: "a node that is given up and alive", lost: 1, crashes: 1, alive: true, ops: []operation{{backWrite, 0}, {backWrite, 1}, {givingUp, 2}}},
	{name: "a node that does not come back", lost: 1, crashes: 1, ops: []operation{{backWrite, 0}, {backWrite, 1}, {givingUp, 2}, {reading, 1}}},
}

// The protocol keeps its promises in each state.
func TestTheProtocol(t *testing.T) {
	all := scenarios
	if os.Getenv("HEADSTART_CRASHES") != "" {
		all = append(slices.Clone(all), more...)
	}
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			m := &model{ops: sc.ops, alive: sc.alive}
			if bad := m.explore(sc.lost, sc.crashes); bad != "" {
				t.Error(bad)
			}
			t.Logf("%d states", m.states)
		})
	}
}

// Each step is needed: without it something goes wrong.
func TestEachStepIsNeeded(t *testing.T) {
	for _, without := range []mutation{readsDoNotLook, readsLookBeside, throughDoesNotLook, markerOverwrites, ackBeforeSync,
		ackBeforeMarker, plainPut, conditionalPut, plainDelete, ownBeforeMarker, ownAfterUpload, ownAfterRestart, dropPending,
		uploadForeign, noTombstone, repeatMarker, giveUpWithoutAbort, giveUpUnconditional, unmarkBeforeUpload,
		renewWithoutMarker, trustLostCompletion, holderHasRecord, holderCompletes, hereCompletes, lackingMeansStored} {
		t.Run(strings.ReplaceAll(string(without), " ", "_"), func(t *testing.T) {
			for _, sc := range scenarios {
				m := &model{ops: sc.ops, without: without, alive: sc.alive}
				if bad := m.explore(sc.lost, sc.crashes); bad != "" {
					t.Logf("%s, after %d states: %s", sc.name, m.states, bad)
					return
				}
			}
			t.Error("nothing goes wrong")
		})
	}
}
