package http

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pquerna/cachecontrol/cacheobject"
)

// notKept is for objects of which the server wants no copy kept.
const notKept = -1

// fresh is how long an answer holds as the server says it (RFC 9111, section 4.2), for a cache that several users
// share. There is no heuristic: an answer whose server does not say holds until the next request. Nor is there
// anything stale, so must-revalidate asks for nothing more.
func (o *object) fresh(h http.Header) time.Duration {
	said, err := cacheobject.ParseResponseCacheControl(strings.Join(h.Values("Cache-Control"), ","))
	if err != nil || said.NoStore || said.PrivatePresent || strings.Contains(strings.Join(h.Values("Vary"), ","), "*") {
		return notKept
	}
	// What was asked for with credentials holds for others only if the server says so (section 3.5).
	authorized := o.config.Credentials != nil && !said.Public && !said.MustRevalidate && said.SMaxAge < 0
	if said.NoCachePresent || authorized {
		return 0
	}
	lifetime := expires(h)
	switch {
	case said.SMaxAge >= 0:
		lifetime = time.Duration(said.SMaxAge) * time.Second
	case said.MaxAge >= 0:
		lifetime = time.Duration(said.MaxAge) * time.Second
	}
	old := time.Duration(0) // the answer's age when the server sent it
	if age := h.Get("Age"); age != "" {
		seconds, err := strconv.ParseUint(age, 10, 31)
		if err != nil {
			return 0
		}
		old = time.Duration(seconds) * time.Second
	}
	return max(0, max(0, lifetime)-old)
}

// expires is how long an answer holds by its dates, 0 if it has not both.
func expires(h http.Header) time.Duration {
	until, err := http.ParseTime(h.Get("Expires"))
	if err != nil {
		return 0
	}
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return until.Sub(date)
}
