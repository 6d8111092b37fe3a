// Command handoff is a function for tests, and the examples of docs/reference/socket.md: it
// takes its input in each way that there is, and hands it to another function.
//
//	/body               the request's body
//	/file               the input as a file
//	/read               the input by the socket
//	/stream?to=name     its body to another function, as a stream
//	/reference?to=name  x-object to another function, by reference
//	/output             its body as a file, which becomes x-object
//	/host?to=host:port  its body to whoever has this name, as any program calls
//
// The answer is the digest of what came, or the other function's answer.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"time"
)

// daemon is the node's daemon, by the socket that it has put into the sandbox.
var daemon = &http.Client{Transport: &http.Transport{
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv("HEADSTART_SOCKET"))
	},
}}

func main() {
	for path, handle := range map[string]http.HandlerFunc{"/body": body, "/file": file, "/read": read,
		"/stream": stream, "/reference": reference, "/output": output, "/host": host} {
		http.HandleFunc(path, handle)
	}
	server := &http.Server{Addr: ":" + os.Getenv("PORT"), ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// body: the input is the request's body.
func body(w http.ResponseWriter, r *http.Request) {
	digest(w, r.Body)
}

// file: the input is a file, complete, for programs that seek or want a path.
func file(w http.ResponseWriter, r *http.Request) {
	f, err := os.Open(filepath.Join(os.Getenv("HEADSTART_INPUT_DIR"), filepath.Base(r.Header.Get("x-headstart-request"))))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	digest(w, f)
}

// read: the input, or a range of it, comes by the socket, each byte as soon as it is there.
func read(w http.ResponseWriter, r *http.Request) {
	resp, err := daemon.Get("http://headstart/input/" + path.Base(r.Header.Get("x-headstart-request")))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	digest(w, resp.Body)
}

// stream: what comes is passed to another function while it comes.
func stream(w http.ResponseWriter, r *http.Request) {
	call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://headstart/call/-/"+r.URL.Query().Get("to")+"/body", r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call.ContentLength = r.ContentLength
	call.Header.Set("x-headstart-request", r.Header.Get("x-headstart-request")) // on whose behalf
	answer(w, call)
}

// reference: another function gets an object of its store; not a byte of it comes by here.
func reference(w http.ResponseWriter, r *http.Request) {
	call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://headstart/call/-/"+r.URL.Query().Get("to")+"/read", nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call.Header.Set("x-headstart-input", r.Header.Get("x-object")) // such as s3://videos/camera-7/1.mjpeg
	call.Header.Set("x-headstart-request", r.Header.Get("x-headstart-request"))
	answer(w, call)
}

// output: what is written to a file becomes an object, of which not a byte comes by here.
func output(w http.ResponseWriter, r *http.Request) {
	f, err := os.CreateTemp(os.Getenv("HEADSTART_OUTPUT_DIR"), "")
	if err == nil {
		defer os.Remove(f.Name()) // it is memory of this container
		_, err = io.Copy(f, r.Body)
		err = errors.Join(err, f.Chmod(0o644), f.Close()) // the daemon reads it
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	to := url.Values{"to": {r.Header.Get("x-object")}} // such as s3://videos/camera-7/1.mp4
	call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://headstart/output/"+filepath.Base(f.Name())+"?"+to.Encode(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, call)
}

// host: another function is called by its host, without a word of Headstart but the trace.
func host(w http.ResponseWriter, r *http.Request) {
	call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+r.URL.Query().Get("to")+"/body", r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call.Header.Set("traceparent", r.Header.Get("traceparent"))
	resp, err := http.DefaultClient.Do(call)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the caller is gone if this fails
}

// answer passes the other function's answer on.
func answer(w http.ResponseWriter, call *http.Request) {
	resp, err := daemon.Do(call)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	// The caller is gone if this fails.
	_, _ = io.Copy(w, resp.Body)
}

func digest(w http.ResponseWriter, from io.Reader) {
	h := sha256.New()
	if _, err := io.Copy(h, from); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintf(w, "%x", h.Sum(nil))
}
