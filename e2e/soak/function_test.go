//go:build integration

package soak

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	slogpkg "log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
)

// caseHeader tells the function which case a request is, and entryHeader which one an entry.
const (
	caseHeader  = "x-soak-case"
	entryHeader = "ce-" + entryField
)

// part is what a function saw of an input.
type part struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Broken is why it did not come to its end.
	Broken string `json:"broken,omitempty"`
}

// report is what a function answers, in one line ahead of the filler.
type report struct {
	Request string `json:"request"`
	Body    part   `json:"body"`
	File    *part  `json:"file,omitempty"`
	// Socket is what it read by its socket.
	Socket *part `json:"socket,omitempty"`
	// Got says what it, or another, was given that asked for what is not its own.
	Got string `json:"got,omitempty"`
	// Stray are other files where the input is.
	Stray []string `json:"stray,omitempty"`
	// Late says that nobody waited for it any more.
	Late bool `json:"-"`
}

// function is the program of all instances of a node.
type function struct {
	w       *world
	node    *node
	address string
}

func newFunction(w *world, n *node) *function {
	f := &function{w: w, node: n}
	f.address = serve(w.t, http.HandlerFunc(f.handle))
	return f
}

// serve serves h until the test's end, and returns where.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ErrorLog: slogpkg.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }() // it ends with Close
	t.Cleanup(func() { _ = s.Close(); <-served })
	return l.Addr().String()
}

func (f *function) handle(rw http.ResponseWriter, req *http.Request) {
	number, err := strconv.Atoi(cmp.Or(req.Header.Get(caseHeader), req.Header.Get(entryHeader)))
	if err != nil {
		http.Error(rw, "no case", http.StatusTeapot)
		return
	}
	r := f.w.find(f.w.plan.Case(number).ID)
	if r == nil {
		http.Error(rw, "no such case", http.StatusTeapot)
		return
	}
	nth := r.enter()
	if nth == 0 {
		http.Error(rw, "a request of a case that is over", http.StatusTeapot)
		return
	}
	defer r.handlers.Done()
	switch {
	case r.Fault == plan.FunctionCloses:
		closeUnread(rw)
		return
	case r.Fault == plan.FunctionRefuses && nth == 1:
		http.Error(rw, "not now", http.StatusInternalServerError)
		return
	}
	rep := report{Request: req.Header.Get("x-headstart-request")}
	if s := f.socket(r, rep.Request); s != nil {
		rep.Socket, rep.Got = s.use(req.Context())
	}
	r.proceed() // also without a socket
	// Before all that waits: a server sees only then that its client has gone.
	rep.Body = read(req.Body)
	switch {
	case r.Fault == plan.NodeDies && r.Variant%plan.Moments == plan.DiesDelivered && nth == 1:
		<-req.Context().Done()
		return
	case r.Fault == plan.Duplicate:
		select {
		case <-r.release:
		case <-req.Context().Done():
			return
		}
	}
	if name := req.Header.Get("x-headstart-input-file"); name != "" {
		rep.File, rep.Stray = f.file(r, rep.Request, name)
	}
	rep.Late = req.Context().Err() != nil
	r.saw(rep)
	if f.answer(rw, r, rep) {
		r.answered.Add(1)
	}
}

// closeUnread ends the connection, or the stream of HTTP/2. A server of HTTP/1.1 would read what is
// left of the body before.
func closeUnread(rw http.ResponseWriter) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = conn.Close() // whoever uses it sees it
}

// answer sends the report, and then the filler, of which a part is missing if the case says so,
// and tells whether it could write all.
func (f *function) answer(rw http.ResponseWriter, r *run, rep report) (whole bool) {
	line, err := json.Marshal(rep)
	if err != nil {
		panic(err) // it is made of strings
	}
	filler := r.Filler()
	if r.Variant&4 == 0 {
		rw.Header().Set("Content-Length", fmt.Sprint(len(line)+1+len(filler)))
	}
	if r.Fault == plan.FunctionBreaksOff {
		_, _ = rw.Write(append(line, '\n'))
		_, _ = rw.Write(filler[:r.At])
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}
	w := bufio.NewWriter(rw)
	_, _ = w.Write(append(line, '\n'))
	_, _ = w.Write(filler)
	return w.Flush() == nil // who does not read has left
}

func read(from io.Reader) part {
	h := sha256.New()
	n, err := io.Copy(h, from)
	p := part{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}
	if err != nil {
		p.Broken = err.Error()
	}
	return p
}

// file reads an input as a sandbox sees it, and what else is there.
func (f *function) file(r *run, request, name string) (*part, []string) {
	id, ok := r.pod(f.node)
	if !ok {
		return &part{Broken: "the instance is gone"}, nil
	}
	// What is mounted in the sandbox, and the one beside it.
	input, memory := filepath.Join(f.node.state, "instances", id, "input"), filepath.Join(f.node.run, "memory", "instances", id)
	at := strings.Replace(name, "/headstart/input", input, 1)
	if to, err := os.Readlink(at); err == nil {
		at = strings.Replace(to, "/headstart/memory", memory, 1)
	}
	file, err := os.Open(at)
	if err != nil {
		return &part{Broken: err.Error()}, nil
	}
	defer file.Close()
	p := read(file)
	var stray []string
	for _, dir := range []string{input, memory} {
		entries, _ := os.ReadDir(dir) // that in memory need not be there
		for _, e := range entries {
			if e.Name() != request {
				stray = append(stray, e.Name())
			}
		}
	}
	return &p, stray
}
