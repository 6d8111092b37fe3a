package http

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
)

// broken tells connections that will never come about from those that may.
func (o *object) broken(err error) error {
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return source.Because(source.Unavailable(o.config.Store, "it does not speak TLS"), err)
	}
	return err
}

// redirects are the statuses that say that the object is elsewhere.
var redirects = []int{
	http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
	http.StatusPermanentRedirect,
}

// refusal makes an error of an answer's status. What the server says besides is not
// repeated: some repeat what was sent to them.
func (o *object) refusal(status int, ranges, begun bool) error {
	answer := fmt.Sprintf("it answers %d", status)
	switch {
	case status == http.StatusOK, status == http.StatusPartialContent && ranges:
		return nil
	case slices.Contains(redirects, status):
		return source.Unavailable(o.config.Store, answer+", and redirects are not followed: name where the object is")
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return source.Forbidden(o.config.Store, answer)
	case (status == http.StatusNotFound || status == http.StatusGone) && !begun:
		return source.NotFound(o.config.Store, o.ref)
	case status == http.StatusRequestedRangeNotSatisfiable && ranges && !begun:
		return errOneStream
	case status == http.StatusNotFound, status == http.StatusGone, status == http.StatusPreconditionFailed, status == http.StatusRequestedRangeNotSatisfiable:
		return source.Changed(o.config.Store, o.ref)
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return ranged.Again(source.Unavailable(o.config.Store, answer))
	}
	return source.Unavailable(o.config.Store, answer)
}
