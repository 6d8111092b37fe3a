package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// lookEvery is how often a file is looked for.
const lookEvery = 10 * time.Millisecond

// await returns when the file is there. SIGTERM ends the program as ever.
func await(name string) {
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		time.Sleep(lookEvery)
	}
}

// once is the program of a job.
func once(what, of string) error {
	var from io.ReadCloser
	switch what {
	case "digest":
		f, err := os.Open(of)
		if err != nil {
			return err
		}
		from = f
	case "get":
		daemon := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv("HEADSTART_SOCKET"))
		}}}
		resp, err := daemon.Get("http://headstart" + of)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			return fmt.Errorf("the socket answers %s", resp.Status)
		}
		from = resp.Body
	default:
		return fmt.Errorf("%q is nothing to do", what)
	}
	defer from.Close()
	c := digest(from)
	if c.Error != "" {
		return fmt.Errorf("reading: %s", c.Error)
	}
	fmt.Println(c.SHA256)
	return nil
}
