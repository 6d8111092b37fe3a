package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// Answers of before that are none.
const (
	cut     = "\x00cut"     // the connection is closed
	silence = "\x00silence" // the server says nothing more
)

// fake is as much of a Redis server as the source needs. Its network is in memory: inside a
// synctest bubble its time is the bubble's.
type fake struct {
	// before sees each command first, and may answer it, or do what cut and silence say.
	before func(command []string) string
	// write, if set, sends an answer, piece by piece if it likes.
	write func(conn io.Writer, answer string) error
	// password, if set, is asked for.
	password string

	serving sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	conns   map[net.Conn]bool
	values  map[string]string
	changes map[string]int // by key
	told    []string
}

func newFake() *fake {
	return &fake{conns: map[net.Conn]bool{}, values: map[string]string{}, changes: map[string]int{}}
}

func (f *fake) set(key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[key] = value
	f.changes[key]++
}

func (f *fake) delete(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.values, key)
	f.changes[key]++
}

// said returns the names of the commands so far.
func (f *fake) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.told, " ")
}

func (f *fake) connected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

func (f *fake) dial(context.Context) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.New("connection refused")
	}
	client, server := net.Pipe()
	f.conns[server] = true
	f.serving.Go(func() {
		f.serve(server)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, server)
	})
	return client, nil
}

func (f *fake) close() {
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.serving.Wait()
}

// session is what a server remembers of a connection.
type session struct {
	watched map[string]int
	multi   bool
	known   bool // it has said the password
}

// serve ends with the connection. Like a socket, it takes commands while it still answers.
func (f *fake) serve(conn net.Conn) {
	state, commands, gone := &session{watched: map[string]int{}}, make(chan []string, 100), make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	defer close(gone)
	defer conn.Close()
	reading.Go(func() {
		defer close(commands)
		r := bufio.NewReader(conn)
		for {
			command, err := read(r)
			if err != nil {
				return
			}
			f.mu.Lock()
			f.told = append(f.told, command[0])
			f.mu.Unlock()
			select {
			case commands <- command:
			case <-gone:
				return
			}
		}
	})
	for command := range commands {
		answer := f.answer(state, command)
		if answer == cut {
			return
		}
		if answer == silence {
			for range commands {
			}
			return
		}
		write := f.write
		if write == nil {
			write = func(conn io.Writer, answer string) error { _, err := io.WriteString(conn, answer); return err }
		}
		if err := write(conn, answer+"\r\n"); err != nil {
			return
		}
	}
}

func read(r *bufio.Reader) ([]string, error) {
	var n int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	command := make([]string, n)
	for i := range command {
		var size int
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		command[i] = string(text[:size])
	}
	command[0] = strings.ToUpper(command[0])
	return command, nil
}

func (f *fake) answer(state *session, command []string) string {
	if f.before != nil {
		if answer := f.before(command); answer != "" {
			return answer
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if command[0] == "AUTH" && f.password != "" {
		if state.known = command[1] == f.password; !state.known {
			return "-WRONGPASS invalid username-password pair"
		}
		return "+OK"
	}
	if f.password != "" && !state.known {
		return "-NOAUTH Authentication required."
	}
	switch command[0] {
	case "AUTH", "SELECT":
	case "PING":
		return "+PONG"
	case "UNWATCH":
		clear(state.watched)
	case "WATCH":
		state.watched[command[1]] = f.changes[command[1]]
	case "MULTI":
		state.multi = true
	case "EXEC":
		defer clear(state.watched)
		for key, changes := range state.watched {
			if f.changes[key] != changes {
				return "*-1"
			}
		}
		return "*0"
	case "EXISTS":
		if _, ok := f.values[command[1]]; !ok {
			return ":0"
		}
		return ":1"
	case "STRLEN":
		return ":" + strconv.Itoa(len(f.values[command[1]]))
	case "GETRANGE":
		value := f.values[command[1]]
		// The client is our own; wrong numbers would fail the comparison of the content.
		from, _ := strconv.Atoi(command[2])
		to, _ := strconv.Atoi(command[3])
		from = min(from, len(value))
		part := value[from:max(from, min(to+1, len(value)))]
		return fmt.Sprintf("$%d\r\n%s", len(part), part)
	default:
		return "-ERR unknown command"
	}
	return "+OK"
}

// count returns how many commands of that name there were so far.
func (f *fake) count(name string) int {
	n := 0
	for said := range strings.FieldsSeq(f.said()) {
		if said == name {
			n++
		}
	}
	return n
}

// hangUp closes all connections, on each of which it says something before.
func (f *fake) hangUp(says string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if says != "" {
			go func() { _, _ = io.WriteString(c, says); _ = c.Close() }()
			continue
		}
		_ = c.Close()
	}
}
