package buffer

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	titleFull        = "BufferFull"
	titleQuota       = "BufferQuota"
	titleUnavailable = "BufferUnavailable"
)

// IsFull tells whether err says that the buffer does not take the bytes: it is full, the
// function has as much of it as it may, or it is away. What is in it stays.
func IsFull(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && (p.Title == titleFull || p.Title == titleQuota || p.Title == titleUnavailable)
}

// Full is a medium's problem when it has no room: another one is tried then.
func Full(detail string) *problem.Problem {
	return problem.New(http.StatusInsufficientStorage, titleFull, "", detail)
}

// Unavailable is a medium's problem when it is away, and the bytes with it.
func Unavailable(detail string) *problem.Problem {
	return problem.New(http.StatusServiceUnavailable, titleUnavailable, "", detail)
}

func noRoom(size int64) *problem.Problem {
	return Full(fmt.Sprintf("the node's input buffer has no room for %d bytes", size))
}

func overQuota(detail string) *problem.Problem {
	return problem.New(http.StatusInsufficientStorage, titleQuota, "", detail)
}

// isNoRoom tells whether another tier may have room.
func isNoRoom(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && p.Title == titleFull
}
