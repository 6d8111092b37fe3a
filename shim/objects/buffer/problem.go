package buffer

import (
	"fmt"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// IsFull tells whether err says that the buffer does not take the bytes: it is full or too
// small, the function has as much of it as it may, or it is away. What is in it stays.
func IsFull(err error) bool {
	switch problem.ReasonOf(err) {
	case problem.ReasonBufferFull, problem.ReasonBufferQuota, problem.ReasonBufferTooSmall, problem.ReasonBufferUnavailable:
		return true
	}
	return false
}

// Full is a medium's problem when it has no room: another one is tried then.
func Full(detail string) *problem.Problem {
	return problem.New(http.StatusInsufficientStorage, problem.ReasonBufferFull, "", detail)
}

// Unavailable is a medium's problem when it is away, and the bytes with it.
func Unavailable(detail string) *problem.Problem {
	return problem.New(http.StatusServiceUnavailable, problem.ReasonBufferUnavailable, "", detail)
}

func noRoom(size int64) *problem.Problem {
	return Full(fmt.Sprintf("the node's input buffer has no room for %d bytes", size))
}

// tooSmall is of an entry for which to wait is in vain.
func tooSmall(size, most int64) *problem.Problem {
	return problem.New(http.StatusInsufficientStorage, problem.ReasonBufferTooSmall, "",
		fmt.Sprintf("the input has %d bytes, and no input of the function can have more than %d in the node's buffer", size, most))
}

func overQuota(detail string) *problem.Problem {
	return problem.New(http.StatusInsufficientStorage, problem.ReasonBufferQuota, "", detail)
}

// isNoRoom tells whether there may be room if something is evicted.
func isNoRoom(err error) bool { return problem.ReasonOf(err) == problem.ReasonBufferFull }

// isElsewhere tells whether another tier may have room.
func isElsewhere(err error) bool {
	return isNoRoom(err) || problem.ReasonOf(err) == problem.ReasonBufferUnavailable
}
