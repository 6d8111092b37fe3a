package s3

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// statusNoRange is how a store answers when an object has no byte of the range.
const statusNoRange = http.StatusRequestedRangeNotSatisfiable

// uselessError is an answer that is no error and yet not what was asked for.
type uselessError struct{ error }

// refusals are error codes that mean the credentials although the status is neither 401
// nor 403: S3 has the first four with 400, versitygw without accounts the last with 404.
var refusals = []string{"AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "XAdminUserNotFound"}

// failure turns an error of the store's client into one that ranged.Fetcher knows. Answers
// of the store are told by status and code only: some stores repeat in their messages what
// was sent to them.
func (o *object) failure(err error, begun bool) error {
	var (
		own       *problem.Problem
		secret    *credentialsError
		useless   *uselessError
		unchanged *source.Unchanged
	)
	switch {
	case err == nil, errors.As(err, &own), errors.As(err, &unchanged):
		return err
	case errors.As(err, &secret):
		none := source.Because(source.Forbidden(o.store, secret.what), secret.error)
		if secret.passing {
			return ranged.Again(none)
		}
		return none
	case errors.As(err, &useless):
		return source.Unavailable(o.store, useless.Error())
	}
	if code := status(err); code != 0 {
		return o.answer(code, err, begun)
	}
	return err
}

func (o *object) answer(status int, err error, begun bool) error {
	answer, code := fmt.Sprintf("it answers %d", status), ""
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
		answer += fmt.Sprintf(" %.60q", code)
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, slices.Contains(refusals, code):
		return source.Forbidden(o.store, answer)
	case status == http.StatusNotFound && !begun:
		return source.NotFound(o.store, o.ref)
	case status == http.StatusNotFound, status == http.StatusPreconditionFailed, status == statusNoRange:
		return source.Changed(o.store, o.ref)
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return ranged.Again(source.Unavailable(o.store, answer))
	}
	return source.Unavailable(o.store, answer)
}

// status returns the HTTP status of the answer that err is about; 0 is none.
func status(err error) int {
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}
