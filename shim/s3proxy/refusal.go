package s3proxy

import (
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

// Codes of what is not the program's fault.
const codeInternal, codeUnavailable = "InternalError", "ServiceUnavailable"

// refusal is an error in the words of S3.
type refusal struct {
	status        int
	code, message string
}

func (e *refusal) Error() string { return e.code + ": " + e.message }

func refuse(status int, code, message string) error { return &refusal{status, code, message} }

// refusalOf is what a client of S3 is told of an error.
func refusalOf(err error) *refusal {
	if e, is := errors.AsType[*refusal](err); is {
		return e
	}
	if e, is := errors.AsType[*sigv4.Error](err); is {
		return &refusal{e.Status, e.Code, e.Message}
	}
	p := problem.Of(err)
	switch p.Status {
	case http.StatusForbidden:
		return &refusal{p.Status, "AccessDenied", p.Detail}
	case http.StatusInternalServerError:
		return &refusal{http.StatusBadGateway, codeInternal, "the node cannot ask the store; its log says why"}
	}
	return &refusal{http.StatusServiceUnavailable, codeUnavailable, p.Detail} // SDKs try again
}

// write answers with it in the form of S3 (API reference, "Error responses").
func (e *refusal) write(w http.ResponseWriter, r *http.Request) {
	id := requestID()
	body, err := xml.Marshal(struct {
		XMLName   xml.Name `xml:"Error"`
		Code      string
		Message   string
		Resource  string
		RequestID string `xml:"RequestId"`
	}{Code: e.code, Message: e.message, Resource: r.URL.Path, RequestID: id})
	if err != nil { // the path has what XML cannot say
		body = []byte("<Error><Code>" + e.code + "</Code></Error>")
	}
	body = append([]byte(xml.Header), body...)
	h := w.Header()
	h.Set("Content-Type", "application/xml")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Amz-Request-Id", id)
	linger(w, r)
	w.WriteHeader(e.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // nobody is left to tell
	}
}

// linger is for answers that do not need the request's body: the program may be sending it still.
func linger(w http.ResponseWriter, r *http.Request) {
	if r.Close && r.ContentLength != 0 {
		serve.Linger(w)
	}
}
