// Command reader is a sample function that reads its input from the file and leaves the
// request's body alone, as programs on Python's http.server do: it reads a request's head, writes
// the answer and closes the connection, with the body unread. The answer is the input's SHA-256.
//
// READER_PROTOCOL is HTTP/1.0 (an answer that ends with its connection) or HTTP/1.1.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	l, err := net.Listen("tcp", ":"+os.Getenv("PORT"))
	if err != nil {
		slog.Error("reader ends", "error", err)
		os.Exit(1)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	for {
		c, err := l.Accept()
		if err != nil {
			return // it is to end
		}
		go func() { // until its connection ends
			defer c.Close()
			if err := serve(c, os.Getenv("READER_PROTOCOL")); err != nil {
				slog.Warn("a request is not answered", "error", err)
			}
		}()
	}
}

// headBuffer is so small that next to nothing of a body is read with the head.
const headBuffer = 16

func serve(c net.Conn, protocol string) error {
	r, err := http.ReadRequest(bufio.NewReaderSize(c, headBuffer))
	if err == io.EOF {
		return nil // a probe's connection
	} else if err != nil {
		return err
	}
	status := http.StatusOK
	// Whoever reaches the port can send the header: it names a file of the directory, and no other.
	name := filepath.Base(r.Header.Get("x-headstart-input-file"))
	body, err := digest(filepath.Join(os.Getenv("HEADSTART_INPUT_DIR"), name))
	if err != nil {
		status, body = http.StatusInternalServerError, err.Error()
	}
	length := ""
	if protocol == "HTTP/1.1" {
		length = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	_, err = fmt.Fprintf(c, "%s %d %s\r\n%s\r\n%s", protocol, status, http.StatusText(status), length, body)
	return err
}

func digest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
