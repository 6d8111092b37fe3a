package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// LogOptions are what to show of a log.
type LogOptions struct {
	// Function or job, namespace/name.
	Function string
	// Tail is how many lines of each node's log to begin with; negative for all.
	Tail int
	// Follow goes on with what is logged from then on.
	Follow bool
}

// LogLine is one line that a function has logged.
type LogLine struct {
	Node string `json:"node"`
	Line string `json:"line"`
}

// serveLogs answers with a JSON object per line, as they come.
func serveLogs(w http.ResponseWriter, r *http.Request, b Backend) {
	q := r.URL.Query()
	o := LogOptions{Function: r.PathValue("namespace") + "/" + r.PathValue("name"), Follow: q.Has("follow")}
	var err error
	if o.Tail, err = strconv.Atoi(q.Get("tail")); err != nil {
		answer(w, nil, &platform.Refusal{Status: http.StatusBadRequest, Reason: "QueryMalformed", Field: "tail", Message: "tail: use a number of lines, or -1 for all"})
		return
	}
	out, begun := json.NewEncoder(w), false
	err = b.Logs(r.Context(), o, func(l LogLine) error {
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			begun = true
		}
		if err := out.Encode(l); err != nil {
			return err
		}
		if o.Follow {
			return http.NewResponseController(w).Flush()
		}
		return nil
	})
	switch {
	case err != nil && !begun && r.Context().Err() == nil:
		answer(w, nil, err)
	case err != nil:
		panic(http.ErrAbortHandler) // the reader shall not take a part for all of it
	}
}

// Logs calls to with each line that a function has logged, until there are no more or ctx ends.
func (c *Client) Logs(ctx context.Context, o LogOptions, to func(LogLine) error) error {
	if c.replicas != nil {
		return c.replicas.first(ctx, true, func(one *Client) error { return one.Logs(ctx, o, to) })
	}
	namespace, name, _ := strings.Cut(o.Function, "/")
	query := url.Values{"tail": {strconv.Itoa(o.Tail)}}
	if o.Follow {
		query.Set("follow", "")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://headstart/v1/functions/"+url.PathEscape(namespace)+"/"+url.PathEscape(name)+"/logs?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	patient := http.Client{Transport: c.http.Transport} // who follows a log has all the time in the world
	resp, err := patient.Do(req)
	if err != nil {
		return c.noAnswer(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	for d := json.NewDecoder(resp.Body); ; {
		var l LogLine
		err := d.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("the log breaks off here: the platform was stopped, or its control plane started again")
		case err != nil:
			return fmt.Errorf("reading the log: %w", err)
		}
		if err := to(l); err != nil {
			return err
		}
	}
}
