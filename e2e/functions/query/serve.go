package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/e2e/functions/service"
)

// answer is what the function says of a request.
type answer struct {
	Said  string `json:"said"`
	Error string `json:"error"`
}

// lateBy is how long after its answer a request's parameter late is asked for.
const lateBy = 50 * time.Millisecond

// serve answers /once by a connection of the request's own, and /kept by one that all of them share; /redis likewise.
func serve(ctx context.Context) error {
	k := &kept{}
	client := sync.OnceValues(func() (*redis.Client, error) {
		o, err := redis.ParseURL(os.Getenv("REDIS_URL"))
		if err != nil {
			return nil, err
		}
		return redis.NewClient(o), nil
	})
	mux := http.NewServeMux()
	handle := func(path string, query func(context.Context, string) (string, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var a answer
			var err error
			began := time.Now()
			if a.Said, err = query(r.Context(), r.URL.Query().Get("q")); err != nil {
				a.Error = err.Error()
			}
			w.Header().Set("X-Took", time.Since(began).String())
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(a) // the client has left, or reads it
			if late := r.URL.Query().Get("late"); late != "" {
				time.AfterFunc(lateBy, func() { _, _ = query(context.WithoutCancel(r.Context()), late) }) // nobody hears of it
			}
		})
	}
	handle("/once", func(ctx context.Context, q string) (string, error) { return once(ctx, nil, q) })
	handle("/kept", k.query)
	handle("/redis", func(ctx context.Context, q string) (string, error) {
		c, err := client()
		if err != nil {
			return "", err
		}
		return command(ctx, c, strings.Fields(q))
	})
	return service.Run(ctx, os.Getenv, "START", mux)
}

// kept is a connection that stays until it fails. Its zero value is ready to use.
type kept struct {
	mu   sync.Mutex
	conn *pgx.Conn // nil: it is not there
}

func (k *kept) query(ctx context.Context, q string) (said string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil {
		if k.conn, err = pgx.Connect(context.WithoutCancel(ctx), ""); err != nil {
			return "", err
		}
	}
	err = k.conn.QueryRow(ctx, q).Scan(&said)
	if k.conn.IsClosed() {
		k.conn = nil
	}
	return said, err
}
