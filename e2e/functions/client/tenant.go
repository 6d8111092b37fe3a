package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/client/report"
)

const (
	// sessionLimit bounds one session, which a fault may hold up.
	sessionLimit = 15 * time.Second
	// tenantPause is between sessions: the node has time to have another one ready.
	tenantPause = 300 * time.Millisecond
	// keptPause is between questions on the session that is kept.
	keptPause = 50 * time.Millisecond
)

// whose asks whose session it is, and marks it.
const whose = `select current_user || ' ' || current_setting('application_name'), pg_backend_pid(),
	(select backend_start from pg_stat_activity where pid = pg_backend_pid()),
	coalesce(current_setting('client.marker', true), ''), set_config('client.marker', $1, false)`

// tenant opens one session after the other.
func tenant(destination string, times int) error {
	gate, err := net.Dial("tcp", os.Getenv("CLIENT_GATE"))
	if err != nil {
		return err
	}
	defer gate.Close() // each word was written whole
	var mu sync.Mutex
	words := json.NewEncoder(gate)
	say := func(w report.Word) error {
		w.Tenant = os.Getenv("CLIENT_TENANT")
		mu.Lock()
		defer mu.Unlock()
		return words.Encode(w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := keep(ctx, os.Getenv("CLIENT_KEPT")); err != nil {
			_ = say(report.Word{Lost: err.Error()}) // or nobody listens
		}
	})
	defer keeping.Wait()
	defer cancel()
	for had, asked := 0, 0; had < times; time.Sleep(tenantPause) {
		w, err := session(destination)
		w.First = asked == 0
		if asked++; err != nil {
			w = report.Word{Failed: err.Error()}
		} else {
			had++
		}
		if err := say(w); err != nil {
			return err
		}
	}
	if err := say(report.Word{Over: true}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, gate)
	return err
}

// session opens one, and says whose it is.
func session(destination string) (w report.Word, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sessionLimit)
	defer cancel()
	began := time.Now()
	p, err := openPostgres(ctx, "socket", destination)
	if err != nil {
		return w, err
	}
	defer p.close()
	var marker string
	w.Asked = os.Getenv("CLIENT_USER") + " " + os.Getenv("PGAPPNAME")
	err = p.conn.QueryRow(ctx, whose, os.Getenv("CLIENT_TENANT")).Scan(&w.Whose, &w.PID, &w.Started, &w.Marker, &marker)
	w.Waited = w.Started.Before(began)
	return w, err
}

// keep asks on one session until ctx ends.
func keep(ctx context.Context, destination string) error {
	p, err := openPostgres(ctx, "socket", destination)
	if err != nil {
		return err
	}
	defer p.close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(keptPause):
		}
		if err := p.ask(context.Background()); err != nil {
			return err
		}
	}
}
