// Command witness is a function for tests: it answers with what it sees of its request,
// its input and its sandbox.
//
//	/             all of it, as a Report
//	/sleep?ms=N   the same, N milliseconds later
//	/exit?code=N  ends the program without an answer
//	/say?ms=N     the request's body, N milliseconds later
//	/dial?to=ADDR whether it can connect to an address
//
// With WITNESS_SAYS set it writes that first. With WITNESS_MUTE set it never listens, and says so when SIGTERM can end
// it; with WITNESS_EXIT=N it ends at once; with WITNESS_SLOW=3s it listens after that time. With WITNESS_TELL set it
// writes a line for each request, with its header x-number.
//
// With arguments it is a job's program, and knows nothing of Headstart but a path:
//
//	digest FILE    prints the file's SHA-256
//	get URL-PATH   prints that of what the socket HEADSTART_SOCKET answers
//
// With WITNESS_AWAIT set to a file's name it says that it waits, and does so until the file is there.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/witness/report"
)

// inputDir is where a sandbox has its inputs.
const inputDir = "/headstart/input"

func main() {
	if says := os.Getenv("WITNESS_SAYS"); says != "" {
		fmt.Fprintln(os.Stderr, says)
	}
	if code, err := strconv.Atoi(os.Getenv("WITNESS_EXIT")); err == nil {
		os.Exit(code)
	}
	if os.Getenv("WITNESS_MUTE") != "" {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		fmt.Println("mute")
		<-end
		return
	}
	if slow, err := time.ParseDuration(os.Getenv("WITNESS_SLOW")); err == nil {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		select {
		case <-time.After(slow):
			signal.Stop(end)
		case <-end:
			return
		}
	}
	if name := os.Getenv("WITNESS_AWAIT"); name != "" {
		fmt.Println("waiting")
		await(name)
	}
	if len(os.Args) == 3 {
		if err := once(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { answer(w, r) })
	http.HandleFunc("/sleep", func(w http.ResponseWriter, r *http.Request) {
		pause(r)
		answer(w, r)
	})
	http.HandleFunc("/say", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // or as much as came
		pause(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the caller is gone if this fails
	})
	http.HandleFunc("/dial", func(w http.ResponseWriter, r *http.Request) {
		said := "connected"
		c, err := net.DialTimeout("tcp", r.URL.Query().Get("to"), time.Second)
		if err != nil {
			said = err.Error()
		} else {
			c.Close()
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"said": said})
	})
	http.HandleFunc("/exit", func(_ http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Query().Get("code")) // 0 if it is none
		os.Exit(code)
	})
	server := &http.Server{Addr: ":" + os.Getenv("PORT"), ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// pause waits for as long as a request says, or until it is given up.
func pause(r *http.Request) {
	ms, _ := strconv.Atoi(r.URL.Query().Get("ms")) // 0 if it is none
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
	case <-r.Context().Done():
	}
}

func answer(w http.ResponseWriter, r *http.Request) {
	if os.Getenv("WITNESS_TELL") != "" {
		fmt.Println("request", r.Header.Get("x-number"))
	}
	rep := report.Report{Method: r.Method, Proto: r.Proto, Path: r.URL.RequestURI(), Host: r.Host, Header: r.Header, UID: os.Getuid()}
	rep.Body = digest(r.Body)
	if name := r.Header.Get("x-headstart-input-file"); name != "" {
		rep.File = file(filepath.Join(inputDir, filepath.Base(name))) // the header may be anybody's
	}
	rep.Inputs = named(r.Header.Get("x-headstart-request"))
	entries, err := os.ReadDir(inputDir)
	if err != nil {
		rep.DirError = err.Error()
	}
	for _, e := range entries {
		rep.Dir = append(rep.Dir, e.Name())
	}
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "HEADSTART_") {
			rep.Env = append(rep.Env, e)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	// The caller is gone if this fails.
	_ = json.NewEncoder(w).Encode(rep)
}

// named are the inputs of a request that have names.
func named(request string) map[string]report.Content {
	dir, inputs := os.Getenv("HEADSTART_INPUTS_DIR"), map[string]report.Content{}
	names, _ := os.ReadDir(dir) // or there are none
	for _, name := range names {
		path := filepath.Join(dir, name.Name(), filepath.Base(request)) // the header may be anybody's
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			inputs[name.Name()] = file(path)
		}
	}
	return inputs
}

func file(name string) report.Content {
	f, err := os.Open(name)
	if err != nil {
		return report.Content{Error: err.Error()}
	}
	defer f.Close()
	c := digest(f)
	if err := os.WriteFile(filepath.Join(inputDir, "mine"), nil, 0o600); err == nil {
		c.Writable = true
	}
	if f, err := os.OpenFile(name, os.O_WRONLY, 0); err == nil {
		_ = f.Close() // nothing was written
		c.Writable = true
	}
	return c
}

func digest(r io.Reader) report.Content {
	h := sha256.New()
	n, err := io.Copy(h, r)
	c := report.Content{Bytes: n, SHA256: fmt.Sprintf("%x", h.Sum(nil))}
	if err != nil {
		c.Error = err.Error()
	}
	return c
}
