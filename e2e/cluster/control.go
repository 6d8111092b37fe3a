package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	controlFile = "control.sock"
	// headerTimeout ends connections that never say what they want.
	headerTimeout = 10 * time.Second
	// farewell is how long an answer may take when the cluster is gone.
	farewell = 5 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20
)

// control lets other processes of root's do what only the supervisor can.
type control struct {
	server *http.Server
	served sync.WaitGroup
}

func serveControl(s *supervisor) (*control, error) {
	listener, err := net.Listen("unix", s.path(controlFile))
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(s.path(controlFile), 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	c := &control{server: &http.Server{Handler: routes(s), ReadHeaderTimeout: headerTimeout}}
	c.served.Go(func() { _ = c.server.Serve(listener) })
	return c, nil
}

// close waits for answers that are under way.
func (c *control) close() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if c.server.Shutdown(ctx) != nil {
		_ = c.server.Close()
	}
	c.served.Wait()
}

func routes(s *supervisor) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.status())
	})
	do := func(pattern string, act func(ctx context.Context, node string) error) {
		mux.HandleFunc("POST "+pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := act(r.Context(), r.PathValue("node")); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	do("/nodes/{node}/stop", s.stopNode)
	do("/nodes/{node}/start", s.startNode)
	do("/nodes/{node}/containerd/restart", s.restartContainerd)
	do("/apiserver/stop", func(ctx context.Context, _ string) error { return s.stopAPIServer(ctx) })
	do("/apiserver/start", func(ctx context.Context, _ string) error { return s.startAPIServer(ctx) })
	// Who asks may go away: half a cluster is of no use.
	do("/down", func(ctx context.Context, _ string) error { return s.down(context.WithoutCancel(ctx)) })
	return mux
}

// remote is a cluster that another process supervises.
type remote struct{ client http.Client }

func newRemote(dir string) *remote {
	return &remote{client: http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(dir, controlFile))
		},
	}}}
}

func (r *remote) ask(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://cluster"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := r.client.Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the cluster's supervisor: %s", bytes.TrimSpace(body))
	}
	return body, err
}

func (r *remote) status(ctx context.Context) (Status, error) {
	body, err := r.ask(ctx, http.MethodGet, "/status")
	if err != nil {
		return Status{}, err
	}
	var s Status
	if err := json.Unmarshal(body, &s); err != nil {
		return Status{}, fmt.Errorf("reading the cluster's status: %w", err)
	}
	return s, nil
}

func (r *remote) post(ctx context.Context, path string) error {
	_, err := r.ask(ctx, http.MethodPost, path)
	return err
}

func (r *remote) stopNode(ctx context.Context, node string) error {
	return r.post(ctx, "/nodes/"+node+"/stop")
}

func (r *remote) startNode(ctx context.Context, node string) error {
	return r.post(ctx, "/nodes/"+node+"/start")
}

func (r *remote) restartContainerd(ctx context.Context, node string) error {
	return r.post(ctx, "/nodes/"+node+"/containerd/restart")
}
func (r *remote) stopAPIServer(ctx context.Context) error  { return r.post(ctx, "/apiserver/stop") }
func (r *remote) startAPIServer(ctx context.Context) error { return r.post(ctx, "/apiserver/start") }
func (r *remote) down(ctx context.Context) error           { return r.post(ctx, "/down") }
