package streams

import (
	"net"
	"sync"
	"time"
)

// endsLimit is how many ends a shim may owe: one for each target ahead, and one for each question that may be open.
const endsLimit = TargetsLimit + questionsLimit

// ends are the programs' connections that the daemon takes as soon as the shim sends them, by the id of its question.
type ends struct {
	mu      sync.Mutex
	awaited map[uint64]func(net.Conn)
}

// await has take called once. False: there are too many, and it was.
func (e *ends) await(question message, take func(net.Conn)) bool {
	limit := Timeout
	if question.Ahead {
		limit += aheadLimit
	}
	e.mu.Lock()
	_, twice := e.awaited[question.ID]
	full := twice || len(e.awaited) >= endsLimit
	if !full {
		e.awaited[question.ID] = take
	}
	e.mu.Unlock()
	if full {
		take(nil)
		return false
	}
	time.AfterFunc(limit, func() { e.take(question.ID, nil) })
	return true
}

// came takes the word of a shim. What was not asked about, or is too late, is closed.
func (e *ends) came(word parcel) {
	var program net.Conn
	if len(word.files) == 1 {
		if s, err := streamOf(word.files[0]); err == nil {
			program = s
		}
	}
	e.take(word.End, program)
}

func (e *ends) take(id uint64, program net.Conn) {
	e.mu.Lock()
	take := e.awaited[id]
	delete(e.awaited, id)
	e.mu.Unlock()
	switch {
	case take != nil:
		take(program)
	case program != nil:
		_ = program.Close() // nothing was said by it
	}
}

// close gives up all that have not come.
func (e *ends) close() {
	e.mu.Lock()
	all := e.awaited
	e.awaited = nil
	e.mu.Unlock()
	for _, take := range all {
		take(nil)
	}
}
