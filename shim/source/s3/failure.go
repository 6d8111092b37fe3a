package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/source"
)

// statusNoRange is how a store answers when an object has no byte of the range.
const statusNoRange = http.StatusRequestedRangeNotSatisfiable

// errStalled cancels an attempt that the store has left without bytes.
var errStalled = fmt.Errorf("no byte for %v", stall)

// brokenError ends an attempt that may be repeated; final says what is wrong when it
// is not.
type brokenError struct{ final error }

func (e *brokenError) Error() string { return e.final.Error() }

// uselessError is an answer that is no error and yet not what was asked for.
type uselessError struct{ error }

// refusals are error codes that mean the credentials although the status is neither 401
// nor 403: S3 has the first four with 400, versitygw without accounts the last with 404.
var refusals = []string{"AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "XAdminUserNotFound"}

// failure turns what ended an attempt into what Fetch returns, or into a brokenError.
// Answers of the store are told by status and code only: some stores repeat in their
// messages what was sent to them.
func (f *fetch) failure(ctx, watched context.Context, err error) error {
	var (
		own     *problem.Problem
		secret  *credentialsError
		useless *uselessError
	)
	switch {
	case ctx.Err() != nil:
		return source.Ended(ctx, f.store, f.ref)
	case errors.As(err, &own):
		return err
	case errors.As(err, &secret):
		return source.Because(source.Forbidden(f.store, "its credentials cannot be read"), secret.error)
	case errors.As(err, &useless):
		return source.Unavailable(f.store, useless.Error())
	case context.Cause(watched) == errStalled:
		return &brokenError{source.Because(source.TimedOut(f.store), errStalled)}
	}
	if code := status(err); code != 0 {
		return f.answer(code, err)
	}
	return &brokenError{source.Because(source.Unavailable(f.store, "the connection failed"), err)}
}

func (f *fetch) answer(status int, err error) error {
	answer, code := fmt.Sprintf("it answers %d", status), ""
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
		answer += fmt.Sprintf(" %.60q", code)
	}
	begun := f.writer != nil
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, slices.Contains(refusals, code):
		return source.Forbidden(f.store, answer)
	case status == http.StatusNotFound && !begun:
		return source.NotFound(f.store, f.ref)
	case status == http.StatusNotFound, status == http.StatusPreconditionFailed, status == statusNoRange:
		return source.Changed(f.store, f.ref)
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return &brokenError{source.Unavailable(f.store, answer)}
	}
	return source.Unavailable(f.store, answer)
}

// status returns the HTTP status of the answer that err is about; 0 is none.
func status(err error) int {
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}
