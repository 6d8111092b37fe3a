package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// HTTP returns a proxy for a store that speaks HTTP/1.1, at host:port. decide is asked about
// each GET, by its path.
func HTTP(backend string, decide func(path string) Fault) (*Server, error) {
	return start(backend, func(_ *Server, client, store net.Conn) {
		asked, answered := bufio.NewReader(client), bufio.NewReader(store)
		for {
			r, err := http.ReadRequest(asked)
			if err != nil {
				return // the client has gone
			}
			var fault Fault
			if r.Method == http.MethodGet {
				fault = decide(r.URL.Path)
			}
			if relay(client, store, answered, r, fault) != nil {
				return
			}
		}
	})
}

// relay answers one request.
func relay(client net.Conn, store io.Writer, answered *bufio.Reader, r *http.Request, fault Fault) error {
	if fault.Kind == Answers {
		text := http.StatusText(fault.Status)
		_, err := fmt.Fprintf(client, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", fault.Status, text, len(text), text)
		return err
	}
	if err := r.Write(store); err != nil {
		return err
	}
	answer, err := http.ReadResponse(answered, r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := client.Write(head(answer)); err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		return nil
	}
	if answer.ContentLength >= 0 {
		_, err := io.Copy(&faulty{client: client, fault: fault}, answer.Body)
		return err
	}
	return copyChunks(&faulty{client: client, fault: fault}, client, answer.Body)
}

// head is what stands before an answer's body. http.Response.Write would add to it.
func head(r *http.Response) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %s\r\n", r.Status)
	r.Header.Del("Content-Length")
	_ = r.Header.Write(&b) // to memory
	if r.ContentLength >= 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", r.ContentLength)
	} else {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// copyChunks sends a body of unknown length; faults strike between two bytes of it.
func copyChunks(to *faulty, raw io.Writer, body io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := chunk(to, raw, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			_, err := io.WriteString(raw, "0\r\n\r\n")
			return err
		case err != nil:
			return err
		}
	}
}

func chunk(to *faulty, raw io.Writer, p []byte) error {
	if _, err := io.WriteString(raw, strconv.FormatInt(int64(len(p)), 16)+"\r\n"); err != nil {
		return err
	}
	if _, err := to.Write(p); err != nil {
		return err
	}
	_, err := io.WriteString(raw, "\r\n")
	return err
}
